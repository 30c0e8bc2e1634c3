"""The packages of both stages, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.package import package
from infra.stages import read

pytest.register_assert_rewrite("tests.infra.rehearsed_uses")  # its assertions say what failed


@pytest.fixture(scope="session", params=["dev", "prod"])
def template_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stage's template, with its zips beside it."""
    return package(read(request.param), tmp_path_factory.mktemp(request.param) / "build")
