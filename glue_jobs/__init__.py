"""The archive's jobs: plain PySpark, the same on AWS Glue and on one machine. They share no code with chalicelib: what
joins them is the journal's schema (docs/journal.md) and the log's row format (chalicelib/store/layout.py)."""
