"""A service in memory for the rows of the feature tables that no other test shows, with time in the test's hand."""

from headrace.testing.plugin import headrace, headrace_service

__all__ = ["headrace", "headrace_service"]
