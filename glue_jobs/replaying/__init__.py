"""Archived messages sent again."""
