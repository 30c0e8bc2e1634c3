"""Measures the figures that the design promises (docs/cost.md tells them): `python -m bench`."""
