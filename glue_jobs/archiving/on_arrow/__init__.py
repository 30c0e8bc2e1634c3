"""The archive of a small night by Arrow, in this process: the same rows, files and checksums as Spark's."""
