"""What is in a package: a bill of materials (CycloneDX), read from the zips themselves."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

_DESCRIBED = re.compile(r".*\.dist-info/METADATA")
_VERSION = re.compile(r'__version__ = "([^"]+)"')
_SEPARATORS = re.compile(r"[-_.]+")
_NAMESPACE = uuid.UUID("d1c3dbb1-5a5f-4c27-9f07-4f3b3d3c2d55")  # any; the bill's number comes of what it says


def write(file: Path, app: Path, layer: Path) -> None:
    """Write the bill of a package's two zips. The same zips give the same bytes."""
    libraries = [_library(metadata) for metadata in [_chalice(), *_library_metadata(layer)]]
    libraries.sort(key=lambda library: str(library["bom-ref"]))
    bill = _bill(_version(app), [*libraries, *map(_file, (app, layer))])
    bill["serialNumber"] = uuid.uuid5(_NAMESPACE, json.dumps(bill)).urn
    file.write_text(json.dumps(bill, indent=1) + "\n")


def _version(app: Path) -> str:
    with zipfile.ZipFile(app) as archive:
        return str(_VERSION.findall(archive.read("chalicelib/__init__.py").decode())[0])


def _bill(version: str, components: Sequence[dict[str, Any]]) -> dict[str, Any]:
    bundle = f"headrace@{version}"
    parts = [component["bom-ref"] for component in components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": bundle,
                "name": "headrace",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": list(components),
        "dependencies": [{"ref": bundle, "dependsOn": parts}, *({"ref": part} for part in parts)],
    }


def _library_metadata(layer: Path) -> Iterator[Message]:
    with zipfile.ZipFile(layer) as archive:
        for name in archive.namelist():
            if _DESCRIBED.fullmatch(name):
                yield Parser().parsestr(archive.read(name).decode())


def _chalice() -> Message:
    """Chalice packs its own runtime into the app's zip, without a description."""
    return Parser().parsestr(str(distribution("chalice").read_text("METADATA")))


def _library(metadata: Message) -> dict[str, Any]:
    name = _SEPARATORS.sub("-", metadata["Name"]).lower()
    url = f"pkg:pypi/{name}@{metadata['Version']}"
    library = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": metadata["Version"],
        "purl": url,
    }
    if expression := metadata["License-Expression"]:
        library["licenses"] = [{"expression": expression}]
    elif licence := metadata["License"]:
        library["licenses"] = [{"license": {"name": licence.splitlines()[0]}}]
    return library


def _file(file: Path) -> dict[str, Any]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": file.name,
        "name": file.name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
