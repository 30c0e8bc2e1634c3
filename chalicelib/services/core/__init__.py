"""What several use cases need: cached topics and groups, reading the log and cursors, wake-ups, keys, counters."""
