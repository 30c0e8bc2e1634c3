"""The client for asyncio. `_sync` is made of this folder by `tools/make_sync.py`; change this one."""
