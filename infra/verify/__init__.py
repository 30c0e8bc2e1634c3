"""Tries attacks on a stage that is deployed, and looks whether it is in order: what only its own account can tell."""
