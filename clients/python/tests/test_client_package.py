"""The package itself: one source for both twins, quick to import, whole in its wheel, spans where they are wanted."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headrace import Headrace, Message

CLIENT = Path(__file__).parents[1]
PACKAGE = CLIENT / "src" / "headrace"


def test_the_twin_for_threads_is_made_of_the_one_for_asyncio(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_sync", CLIENT / "tools" / "make_sync.py")
    assert spec is not None
    assert spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.make(tmp_path)
    fresh = {file.name: file.read_text() for file in tmp_path.glob("*.py")}
    texts = {file.name: file.read_text() for file in (PACKAGE / "_sync").glob("*.py")}
    assert fresh == texts, "run `.venv/bin/python clients/python/tools/make_sync.py`"


def test_an_import_loads_neither_asyncio_nor_a_library_of_http() -> None:
    code = (
        "import sys, headrace; names = {'asyncio', 'httpx', 'urllib3', 'sqlite3', 'concurrent.futures'}; "
        "print(names & set(sys.modules)); headrace.Headrace('http://127.0.0.1:9', 'hr_x'); "
        "print(names & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert process.stdout == "set()\n{'urllib3'}\n"


def test_the_wheel_is_the_client_and_nothing_of_the_server(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=CLIENT, check=True, capture_output=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        names = set(archive.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        assert archive.read(f"{info}/licenses/LICENSE") == (CLIENT.parents[1] / "LICENSE").read_bytes()
        assert any(name.endswith("/LICENSE") for name in source.getnames())
        page = archive.read(f"{info}/METADATA").decode()
    assert "headrace/py.typed" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"headrace"}
    sources = {f"headrace/{file.relative_to(PACKAGE)}" for file in PACKAGE.rglob("*.py")}
    assert sources <= names
    assert re.findall(r"\]\((?!https://)[^)]*\)", page) == [], (
        "a package index has no files of the repository"
    )


def test_a_send_and_what_is_handled_are_spans_of_one_trace(
    hr: Headrace, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    hr.put_group(topic, "g", begin="earliest")
    with provider.get_tracer("shop").start_as_current_span("checkout"):
        sent = hr.send(topic, 1)

    @hr.consumer(topic, group="g", wait=1)
    def handle(message: Message) -> None:
        hr.stop()
        raise ValueError("once")

    hr.run(for_seconds=30)
    spans_by_name: dict[str, ReadableSpan] = {span.name: span for span in spans.get_finished_spans()}
    checkout, send, process = (
        spans_by_name["checkout"],
        spans_by_name[f"send {topic}"],
        spans_by_name[f"process {topic}"],
    )
    assert send.parent is not None
    assert send.parent.span_id == checkout.context.span_id
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert process.attributes is not None
    assert (process.attributes["messaging.message.id"], process.attributes["headrace.attempt"]) == (
        sent.id,
        1,
    )
    assert not process.status.is_ok
