"""Measures the figures that the design promises (docs/cost.md lists them): `python -m bench`."""
