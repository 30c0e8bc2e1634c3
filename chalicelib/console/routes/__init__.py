"""The console's pages. Importing this package enters them all; what they need is imported when they are asked for."""

from . import deeds, overview, sign_in, topics

__all__ = ["deeds", "overview", "sign_in", "topics"]
