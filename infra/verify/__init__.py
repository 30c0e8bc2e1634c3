"""Tries attacks on a stage that is deployed: what only its own account can tell."""
