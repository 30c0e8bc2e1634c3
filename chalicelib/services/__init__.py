"""Use cases: fetch, ask the pure rooms, store.

One room for each thing that people want; doors open one way: manage → inspect → produce → core, push → consume → core.
"""
