"""Tests against `headrace-local`, which the package's own fixtures start."""

from headrace.testing.plugin import headrace, headrace_service

__all__ = ["headrace", "headrace_service"]
