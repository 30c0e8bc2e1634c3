"""What `.chalice/config.json` says of a stage: Chalice's own settings, and those under `infra`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from . import names
from .glue import JOBS_FOLDER
from .template import Stack, StackError

CONFIG = Path(".chalice/config.json")
_NAMES = {"api_handler": names.API}
_KNOWN_ELSEWHERE = ("stage", "functions", "tracing", "glue")
_SETTINGS = tuple(each.name for each in fields(Stack) if each.name not in _KNOWN_ELSEWHERE)


def read(stage: str, variables: Mapping[str, Any] | None = None, folder: Path = Path()) -> Stack:
    """The stack of a stage. `variables` goes before what the file says; the prefix is `headrace-<stage>` where neither
    says another. Raises StackError, with what to change."""
    config = _config(folder / CONFIG)
    stages = config.get("stages", {})
    if stage not in stages:
        raise StackError(
            f"There is no stage {stage!r}. {CONFIG} has: {', '.join(stages)}. Choose one, or add yours there."
        )
    settings = {"prefix": f"headrace-{stage}", **stages[stage].get("infra", {}), **(variables or {})}
    unknown = settings.keys() - set(_SETTINGS)
    if unknown:
        raise StackError(
            f"{CONFIG}, stage {stage}, infra: {', '.join(sorted(unknown))} is not known; "
            f"there are {', '.join(_SETTINGS)}."
        )
    function_names = (_NAMES.get(name, name) for name in config["lambda_functions"])
    return Stack(
        stage=stage,
        functions=tuple(each for each in function_names if settings.get("url") or each not in names.URLS),
        tracing=bool(stages[stage].get("xray", config.get("xray", False))),
        glue=_digest(folder / JOBS_FOLDER),
        **settings,
    )


def _digest(jobs: Path) -> str:
    """A digest that changes with the archive's jobs; empty where there are none."""
    sources = sorted(jobs.rglob("*.py"))
    digest = hashlib.sha256()
    for source in sources:
        digest.update(str(source.relative_to(jobs)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:12] if sources else ""


def _config(file: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise StackError(f"{file} is not there: run this in the folder of the repository.") from None
    except json.JSONDecodeError as error:
        raise StackError(f"{file} is no JSON: {error}.") from None
    return config
