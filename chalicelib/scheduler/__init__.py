"""Scheduled jobs, all of one shape: `run_once(has_time)` does what is due until `has_time()` says no, and returns a
report. Two runs at once, or the same run again, do no harm."""
