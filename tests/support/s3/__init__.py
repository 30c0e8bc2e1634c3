"""S3 on this machine, for jobs that must not notice: moto's server, and a file system for Spark that speaks to it."""
