"""Nouns and arithmetic: standard library only, no clock, no environment, no randomness, no I/O."""
