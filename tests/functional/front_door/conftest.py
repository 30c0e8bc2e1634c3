"""What is decided before anything is stored: bodies, names, limits, tokens' rights, and that the documents say so."""

from __future__ import annotations

import pytest

from tests.conftest import SOAK
from tests.support.background import Background

if not SOAK:

    @pytest.fixture(scope="session")
    def services(services_in_memory: Background) -> Background:
        """In memory: none of it is a store's. The soak asks DynamoDB, too."""
        return services_in_memory
