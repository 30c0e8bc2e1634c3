"""The archive by Spark: any size, and whatever is damaged or unusual."""
