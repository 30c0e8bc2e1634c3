"""The templates of both stages, and a package, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.package import describe, package
from infra.stages import read

pytest.register_assert_rewrite("tests.infra.rehearsed_uses")  # its assertions say what failed


@pytest.fixture(scope="session", params=["dev", "prod"])
def template_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stage's template as it is deployed, with function URLs."""
    return describe(read(request.param, {"url": True}), tmp_path_factory.mktemp(request.param) / "build")


@pytest.fixture(scope="session")
def package_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is deployed, template and zips. Stages differ in their templates only."""
    return package(read("prod"), tmp_path_factory.mktemp("package") / "build").parent
