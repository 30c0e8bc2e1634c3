"""Hypothesis: no deadline, the same examples each run in CI; long runs by HYPOTHESIS_PROFILE=long."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_slow = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("dev", deadline=None, max_examples=100, suppress_health_check=_slow)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("long", settings.get_profile("dev"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))
