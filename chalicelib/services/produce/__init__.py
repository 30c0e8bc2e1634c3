"""Produce: a draft is appended to a shard's log at once, stored as a timer for later, or prepared in a transaction."""
