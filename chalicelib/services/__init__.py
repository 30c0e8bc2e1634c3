"""One use case per file: fetch, ask the pure rooms, store."""
