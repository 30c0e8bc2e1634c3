"""The client for threads. Made of `_async` by `tools/make_sync.py`: change that."""
