"""From a draft to its place in the log: at once, later, or with a transaction."""
