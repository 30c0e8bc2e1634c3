"""Everything that goes out to subscribers, functions and producers' check URLs, by HTTPS or Lambda."""
