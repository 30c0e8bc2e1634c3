"""The work behind each call: read, decide (in `modes` and `domain`), write by one call of the store.

One package for each kind of work; imports go one way: manage → inspect → produce → core, push → consume → core.
"""
