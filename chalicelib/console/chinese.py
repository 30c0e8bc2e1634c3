"""The console in Chinese: each English phrase of the templates and its translation."""

PHRASES: dict[str, str] = {}
