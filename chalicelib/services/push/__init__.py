"""Calling subscribers and functions."""
