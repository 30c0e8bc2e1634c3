"""Makes `src/schema.ts`, the types of every call, of the interface as this checkout has it. Needs `npm ci` here.

python clients/typescript/generate.py
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCHEMA = HERE / "src" / "schema.ts"
_HEAD = "// Made by generate.py of the OpenAPI document {}. Not to be edited.\n"


def document() -> str:
    """The interface without its examples, which no type depends on."""
    sys.path.insert(0, str(HERE.parents[1]))
    import app  # noqa: F401  its import registers the calls
    from chalicelib.api import openapi

    return json.dumps(_without_examples(openapi.document()), indent=1, sort_keys=True)


def _without_examples(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_examples(each) for each in value]
    if isinstance(value, dict):
        return {
            name: _without_examples(each)
            for name, each in value.items()
            if name not in ("example", "examples")
        }
    return value


def head(text: str) -> str:
    """The first line of a schema that is made of this document."""
    return _HEAD.format(hashlib.sha256(text.encode()).hexdigest()[:16])


def main() -> None:
    if shutil.which("npm") is None or not (HERE / "node_modules").exists():
        sys.exit(
            "The types are made by a package of npm: install npm, then run `npm ci` in clients/typescript."
        )
    (HERE / "build").mkdir(exist_ok=True)
    text = document()
    (HERE / "build" / "openapi.json").write_text(text)
    subprocess.run(["npm", "run", "--silent", "generate"], cwd=HERE, check=True)
    SCHEMA.write_text(head(text) + (HERE / "build" / "schema.ts").read_text())
    print(f"{SCHEMA.relative_to(HERE.parents[1])} is made.")


if __name__ == "__main__":
    main()
