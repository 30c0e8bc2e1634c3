"""The development runtime: what AWS does around the functions, on one machine. Never shipped to Lambda."""
