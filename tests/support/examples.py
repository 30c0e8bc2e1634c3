"""Hypothesis: no deadline. The examples are the same in every run, so that a failure is not a matter of luck; `make
soak` draws new ones, and many more (HYPOTHESIS_PROFILE=long; where its length is stated, some hundreds at a time:
new)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_slow = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile(
    "same", deadline=None, max_examples=60, derandomize=True, database=None, suppress_health_check=_slow
)
settings.register_profile(
    "long", deadline=None, max_examples=5_000, print_blob=True, suppress_health_check=_slow
)
settings.register_profile(
    "new", deadline=None, max_examples=300, database=None, print_blob=True, suppress_health_check=_slow
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
