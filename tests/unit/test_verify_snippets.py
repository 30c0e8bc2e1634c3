"""What the console shows for verifying signatures: it takes what is genuine and nothing else, in each language."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from chalicelib.console.pages.subscribers import verification_snippets
from chalicelib.delivery import webhooks

SECRET, OTHER = b"s" * 32, b"o" * 32
TEXT = webhooks.format_secret(SECRET)
BODY = '{"order":188,"name":"caf\u00e9"}'.encode()
GENUINE = [True, *[False] * 8]


@cache
def cases() -> list[tuple[Mapping[str, str], bytes]]:
    """Headers and bodies, of which the first is genuine. Made when the tests run: they are good for five minutes."""
    now_s = int(time.time())
    right = webhooks.sign([OTHER, SECRET], "m-1-2", now_s, BODY)  # as while a secret is rotated
    return [
        (right, BODY),
        (webhooks.sign([OTHER], "m-1-2", now_s, BODY), BODY),
        (right, BODY + b" "),
        ({**right, "webhook-id": "m-1-3"}, BODY),
        ({**right, "webhook-timestamp": str(now_s + 1)}, BODY),
        ({**right, "webhook-timestamp": "soon"}, BODY),
        ({**right, "webhook-signature": "v1,"}, BODY),
        (webhooks.sign([SECRET], "m-1-2", now_s - 3600, BODY), BODY),
        ({}, BODY),
    ]


def run(tool: str, *arguments: str, folder: Path) -> list[bool]:
    """What the program says of each case, a line each."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"There is no {tool} on this machine.")
    process = subprocess.run([path, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return [line == "true" for line in process.stdout.split()]


def test_python() -> None:
    names: dict[str, object] = {}
    exec(verification_snippets()["Python"], names)
    is_genuine = names["is_genuine"]
    assert callable(is_genuine)
    assert [is_genuine(TEXT, headers, body) for headers, body in cases()] == GENUINE


def test_javascript(tmp_path: Path) -> None:
    (tmp_path / "hooks.mjs").write_text(verification_snippets()["JavaScript"])
    calls = [f"isGenuine({json.dumps(TEXT)}, {json.dumps(h)}, Buffer.from({list(b)}))" for h, b in cases()]
    lines = "\n".join(f"console.log({call});" for call in calls)
    (tmp_path / "main.mjs").write_text(f'import {{ isGenuine }} from "./hooks.mjs";\n{lines}')
    assert run("node", "main.mjs", folder=tmp_path) == GENUINE


def test_java(tmp_path: Path) -> None:
    lines = []
    for headers, body in cases():
        pairs = ", ".join(json.dumps(each) for pair in headers.items() for each in pair)
        text = json.dumps(body.decode())
        call = (
            f"Hooks.isGenuine({json.dumps(TEXT)}, Map.of({pairs}), {text}.getBytes(StandardCharsets.UTF_8))"
        )
        lines.append(f"System.out.println({call});")
    imports, _, hooks = verification_snippets()["Java"].partition("class Hooks")
    main = f"class Main {{ public static void main(String[] a) throws Exception {{ {' '.join(lines)} }} }}"
    (tmp_path / "Main.java").write_text(f"{imports}\n{main}\nclass Hooks{hooks}")
    assert run("java", "-XX:TieredStopAtLevel=1", "Main.java", folder=tmp_path) == GENUINE


@pytest.mark.soak  # it compiles all of Go's HTTP first
def test_go(tmp_path: Path) -> None:
    lines = []
    for headers, body in cases():
        pairs = ", ".join(f"{json.dumps(n.title())}: {{{json.dumps(v)}}}" for n, v in headers.items())
        call = f"IsGenuine({json.dumps(TEXT)}, http.Header{{{pairs}}}, []byte({json.dumps(body.decode())}))"
        lines.append(f"fmt.Println({call})")
    code = (
        verification_snippets()["Go"]
        .replace("package hooks", "package main")
        .replace("import (", 'import (\n"fmt"')
    )
    (tmp_path / "main.go").write_text(code + "\nfunc main() {\n" + "\n".join(lines) + "\n}\n")
    assert run("go", "run", "main.go", folder=tmp_path) == GENUINE
