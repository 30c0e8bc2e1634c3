"""Being called: each adapter's example in docs/python.md runs in its framework, and answers signed requests."""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from wsgiref.validate import validator

import flask
import httpx
import pytest
from test_client_webhooks import NOW, SRC, batch_of, signed_headers, webhook

from headrace import Headrace, Message
from headrace.webhook.asgi import asgi_app
from headrace.webhook.flask import flask_view
from headrace.webhook.function import function
from headrace.webhook.wsgi import wsgi_app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "python.md").read_text()
Call = Callable[[str, Mapping[str, str], bytes], httpx.Response]


def of_wsgi(app: Any) -> Call:
    def call(method: str, headers: Mapping[str, str], body: bytes) -> httpx.Response:
        with httpx.Client(transport=httpx.WSGITransport(app)) as client:
            return client.request(method, "http://testserver/", headers=headers, content=body)

    return call


def of_asgi(app: Any, path: str = "/") -> Call:
    def call(method: str, headers: Mapping[str, str], body: bytes) -> httpx.Response:
        async def parts() -> Any:
            yield body[:3]
            yield body[3:]

        async def main() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
                url = f"http://testserver{path}"
                return await client.request(method, url, headers=headers, content=parts())

        return asyncio.run(main())

    return call


def code_of(title: str) -> str:
    """A section's example."""
    section = PAGE.split(f"### {title}\n", 1)[1].split("\n#", 1)[0]
    block = re.search(r"```python\n(.*?)```", section, re.S)
    assert block
    assert len([line for line in block[1].splitlines() if line.strip()]) <= 12
    return block[1]


def example(title: str) -> dict[str, Any]:
    """The names that a section's example defines."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code_of(title), title, "exec"), names)
    return names


def of_django(names: Mapping[str, Any], is_async: bool = False) -> Call:
    import django
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    urls: Any = ModuleType("example_urls")
    urls.urlpatterns = names["urlpatterns"]
    if not settings.configured:
        csrf = "django.middleware.csrf.CsrfViewMiddleware"
        settings.configure(ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"], SECRET_KEY="k", MIDDLEWARE=[csrf])
        django.setup()
    return of_asgi(get_asgi_application(), "/async") if is_async else of_wsgi(get_wsgi_application())


ADAPTERS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Call]]] = {
    "wsgi": ("WSGI", lambda names: of_wsgi(validator(names["app"]))),
    "fastapi": ("FastAPI", lambda names: of_asgi(names["app"], "/hooks/")),
    "flask": ("Flask", lambda names: of_wsgi(names["app"])),
    "django": ("Django", of_django),
    "async django": ("Django", partial(of_django, is_async=True)),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_each_adapters_example_takes_what_is_signed_and_only_that(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    title, calling = ADAPTERS[name]
    call = calling(example(title))
    body = b'{"order":188}'
    answer = call("POST", signed_headers(body, time.time()), body)
    assert (answer.status_code, answer.content) == (204, b"")
    assert capsys.readouterr().out == "orders order-188 {'order': 188}\n"
    answer = call("POST", signed_headers(body, time.time()), b'{"order":189}')
    assert (answer.status_code, answer.content) == (401, b"The signature is by no known secret.")
    assert capsys.readouterr().out == ""
    answer = call("OPTIONS", {"WebHook-Request-Origin": "queue.example.com"}, b"")
    assert (answer.status_code, answer.headers["webhook-allowed-origin"]) == (204, "queue.example.com")
    assert call("PUT", {}, b"").status_code == 405


def test_gunicorn_takes_bodies_that_come_in_chunks(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(code_of("WSGI"))
    body, options = b'{"order":188}', f"--bind 127.0.0.1:0 --pythonpath {SRC} hooks:app".split()
    command = [sys.executable, "-m", "gunicorn", *options]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr.readline, "") if process.stderr else ()
            url = next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+", line)))
            for content in (body, iter([body[:3], body[3:]])):
                answer = httpx.post(url, content=content, headers=signed_headers(body, time.time()))
                assert answer.status_code == 204
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"wsgi.input_terminated": True}, 204),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, 411),
        ({"CONTENT_LENGTH": "-1"}, 411),
        ({}, 401),
        ({"wsgi.input_terminated": True, "wsgi.input": io.BytesIO(bytes(11_000_000))}, 413),
    ],
)
def test_a_body_without_a_length_is_read_only_where_it_ends(environ: dict[str, Any], status: int) -> None:
    headers = signed_headers(b"1", NOW)
    variables = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    variables |= {"REQUEST_METHOD": "POST", "CONTENT_TYPE": headers["content-type"]}
    statuses: list[str] = []
    app = wsgi_app(webhook(lambda message: None))
    app({**variables, "wsgi.input": io.BytesIO(b"1"), **environ}, lambda line, _: statuses.append(line))
    assert statuses[0].startswith(f"{status} ")


def failed(handler: Callable[[Message], Any], bodies: Sequence[Any], context: Any = None) -> list[str]:
    """The ids, of "0", "1" …, that a function names as failed."""
    messages = [{"id": str(n), "body": body} for n, body in enumerate(bodies)]
    answer = function(handler)({"topic": "t", "group": "g", "messages": messages}, context)
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def test_an_async_handler_may_keep_a_client_with_connections(hr: Headrace) -> None:
    """They belong to a loop: with one for each message, or each thread, the next message failed."""
    client = httpx.AsyncClient(base_url=hr.transport.urls[0])

    async def handle(message: Message) -> None:
        (await client.get("/v1/health")).raise_for_status()

    async def close(message: Message) -> None:
        await client.aclose()

    app = flask.Flask("shop")
    app.add_url_rule("/", "hooks", flask_view(webhook(handle)), methods=["POST"])
    with ThreadPoolExecutor(3) as pool:
        answers = pool.map(lambda _: of_wsgi(app)("POST", signed_headers(b"1", NOW), b"1"), range(6))
        assert [answer.status_code for answer in answers] == [204] * 6
    assert failed(handle, [1, 2]) == []
    assert failed(close, [1]) == []


@pytest.mark.parametrize("way", ["WSGI", "ASGI", "Lambda"])
def test_async_handlers_take_the_messages_of_a_batch_side_by_side(way: str) -> None:
    begun, loops, all_begun = list[int](), set[Any](), threading.Event()

    async def handle(message: Message) -> None:
        loops.add(asyncio.get_running_loop())
        begun.append(message.body)
        if len(begun) == 3:
            all_begun.set()
        assert await asyncio.to_thread(all_begun.wait, 5)

    async def serve() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi_app(hook))) as client:
            answer = await client.post("http://testserver/", headers=headers, content=body)
        loops.add(asyncio.get_running_loop())
        return answer.status_code

    hook, (headers, body) = webhook(handle), batch_of(3)
    if way == "WSGI":
        assert of_wsgi(wsgi_app(hook))("POST", headers, body).status_code == 204
    elif way == "ASGI":
        assert asyncio.run(serve()) == 204
    else:
        assert failed(handle, [0, 1, 2]) == []
    assert begun == [0, 1, 2]
    assert len(loops) == 1, "an ASGI server's own"


_ENDS = """
import asyncio
from headrace.webhook.function import function

async def beside():
    try: await asyncio.sleep(60)
    finally: print("cancelled")

async def handle(message):
    tasks.append(asyncio.ensure_future(beside()))
    await asyncio.to_thread(print, "handled")

tasks = []
function(handle)({"topic": "t", "group": "g", "messages": [{"id": "a", "body": 1}]})
"""


def test_the_loop_of_handlers_ends_with_the_process() -> None:
    command = [sys.executable, "-W", "error", "-c", _ENDS]
    process = subprocess.run(command, env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True)
    assert (process.returncode, process.stdout, process.stderr) == (0, "handled\ncancelled\n", "")


def test_the_lambda_example_names_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    handle = example("Lambda")["lambda_handler"]
    good = {"id": "a", "body": {"n": 1}, "keys": ["k"], "attempt": 1, "shard": 0, "offset": 4, "headers": {}}
    assert handle({"topic": "t", "group": "g", "messages": [good]}, None) == {"batchItemFailures": []}
    assert capsys.readouterr().out == "t k {'n': 1}\n"

    batch = {"topic": "t", "group": "g", "messages": [good, {"id": "b", "body_base64": "YmFk"}]}
    answer = function(lambda message: message.body["n"])(batch, None)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "b"}]}


@pytest.mark.parametrize(
    ("is_async", "bodies", "ids"), [(False, [4, 1, 4, 1], ["3"]), (True, [0, 60, 0], ["1"])]
)
def test_a_function_answers_before_its_time_is_up(is_async: bool, bodies: list[int], ids: list[str]) -> None:
    """Else the messages that are done come again, too."""
    seconds_left = [0.6 if is_async else 10.0]
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: int(seconds_left[0] * 1000))

    def handle(message: Message) -> None:
        seconds_left[0] -= message.body

    async def handle_later(message: Message) -> None:
        await asyncio.sleep(message.body)

    assert failed(handle_later if is_async else handle, bodies, context) == ids


def test_what_comes_twice_is_handled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    messages: list[Message] = []
    for names in (example("Each message once"), example("Each message once")):  # as two processes
        names["webhook"].handler(messages.append)
        for _ in range(2):
            headers = signed_headers(b"1", time.time())
            assert names["webhook"].answer("POST", headers, b"1").status == 204
        names["once"].close()
    assert len(messages) == 1


_PROGRAM = """
from wsgiref.simple_server import make_server
from starlette.applications import Starlette

from headrace import Headrace, Message
from headrace.models import RetryFields
from headrace.webhook import Webhook
from headrace.webhook.asgi import asgi_app
from headrace.webhook.wsgi import wsgi_app

hr, policy = Headrace.from_env(), RetryFields(ladder="exponential", factor=2)
hr.put_topic("orders", shards=8, retry={"ladder": [60, 600], "max_attempts": 5})
hr.put_group("orders", "mailer", begin="earliest", retry=policy, max_in_flight=4)
hr.send("orders", 1, retry={"ladder": "jmq"})
webhook = Webhook("whsec_", tolerance=60)
@webhook.handler
async def mail(message: Message) -> None: ...
Starlette().mount("/hooks", asgi_app(webhook))  # as FastAPI, whose types take longer to read
make_server("", 0, wsgi_app(webhook))
hr.put_topic("orders", shard=8)
hr.put_topic("orders", retry={"laddder": "jmq"})
hr.put_group("orders", "mailer", mode="fifo")
hr.send("orders", 1, retry={"steps_from": "end"})
"""


def test_a_users_program_has_types(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    cache = str(ROOT / ".mypy_cache" / "users")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "program.py"]
    process = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(SRC)}, capture_output=True, text=True
    )
    wrong = [int(line.split(":")[1]) for line in process.stdout.splitlines() if ": error:" in line]
    last = len(_PROGRAM.splitlines())
    assert wrong == [last - 3, last - 2, last - 1, last], process.stdout + process.stderr
