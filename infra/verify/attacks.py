"""The attacks: each is tried with tokens that are made for it, on topics that are made for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .http import Answer, Notes, Stage, Unreachable

_REVOKED_SECONDS = 40.0  # 30 are promised
_EVERYTHING = ["produce", "consume", "admin"]
_INSIDE = (
    *("https://169.254.169.254/latest/meta-data/", "https://10.0.0.1/", "https://[::ffff:169.254.169.254]/"),
    *(
        "https://2852039166/",
        "https://0xa9fea9fe/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[fd00:ec2::254]/",
    ),
    *("https://user@example.com/", "https://example.com:22/", "http://example.com/", "https://metadata/"),
)
_DAMAGED = {
    "deep JSON": b'{"body":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a key twice": b'{"body":1,"body":2}',
    "a huge exponent": b'{"body":1e-99999999999999999999}',
    "a huge number": b'{"body":' + b"9" * 50_000 + b"}",
    "NaN": b'{"body":NaN}',
    "a byte order mark": b'\xef\xbb\xbf{"body":1}',
}
_RESERVED = (
    "X-Forwarded-For",
    "X_Forwarded_For",
    "Transfer-Encoding",
    "webhook-id",
    "Host",
    "X-HTTP-Method-Override",
)


@dataclass
class Scene:
    """Two topics of this run, and who attacks them. `admin` may do everything; tokens made here are named `topic`."""

    stage: Stage
    admin: str
    topic: str
    other: str

    def call(
        self, method: str, path: str, body: Any = None, token: str | None = None, **options: Any
    ) -> Answer:
        return self.stage.call(method, path, body, self.admin if token is None else token, **options)

    def make_token(self, *scopes: str, **limits: Any) -> tuple[str, str]:
        """The text and the id of a new token of one day."""
        body = {"name": self.topic, "scopes": list(scopes), "expires_in_days": 1, **limits}
        answer = self.call("POST", "/v1/tokens", body)
        if answer.status != 201:
            raise Unreachable(
                f"The token makes no others ({answer.status}): it must be for everything, with no end."
            )
        return answer.json["token"], answer.json["id"]

    def set_up(self) -> None:
        for topic in (self.topic, self.other):
            answer = self.call("PUT", f"/v1/topics/{topic}", {"shards": 1, "retention_days": 1})
            if answer.status != 201:
                raise Unreachable(f"The token sets up no topics: {answer.status} {answer.body[:200]!r}")
            for group in ("mine", "other"):
                self.call("PUT", f"/v1/topics/{topic}/groups/{group}", {"from": "earliest"})
            self.call("POST", f"/v1/topics/{topic}/messages", {"body": "secret"})

    def tear_down(self) -> None:
        for topic in (self.topic, self.other):
            self.call("DELETE", f"/v1/topics/{topic}?confirm={topic}")
        query: str | None = "limit=200"
        while query:
            page = self.call("GET", f"/v1/tokens?{query}").json or {}
            for token in page.get("items", ()):
                if token["name"] == self.topic:
                    self.call("DELETE", f"/v1/tokens/{token['id']}")
            next_page = page.get("next_page_token")
            query = next_page and f"limit=200&page_token={next_page}"


def without_a_token(scene: Scene, notes: Notes) -> None:
    """Requests without a token, or with an invalid one, get no data."""
    for caller, token in (
        ("no token", ""),
        ("a made-up token", "hr_" + "0" * 12 + "_" + "a" * 59),
        ("rubbish", "x"),
    ):
        for method, path in (
            ("GET", "/v1/topics"),
            ("GET", "/v1/tokens"),
            ("POST", f"/v1/topics/{scene.topic}/messages"),
        ):
            notes.expect_status(f"{caller}: {method} {path}", scene.call(method, path, token=token), 401)
    twice = scene.call("GET", "/v1/topics", headers=[("Authorization", "Bearer x")])
    notes.expect_status("two Authorization headers", twice, 400, 401, 403)


def beyond_a_token(scene: Scene, notes: Notes) -> None:
    """No token reaches what it was not made for."""
    a, b = f"/v1/topics/{scene.topic}", f"/v1/topics/{scene.other}"
    producer, _ = scene.make_token("produce", topics=[scene.topic])
    consumer, _ = scene.make_token("consume", topics=[scene.topic], groups=["mine"])
    some, _ = scene.make_token(*_EVERYTHING, topics=[scene.topic])
    mine, _ = scene.make_token(*_EVERYTHING, groups=["mine"])
    operator, _ = scene.make_token("admin", groups=["mine"])
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    wide = {"name": scene.topic, "scopes": ["admin"]}
    for caller, token, method, path, body in (
        ("a producer", producer, "PUT", a, {}),
        ("a producer", producer, "POST", f"{a}/groups/mine/receive", {}),
        ("a producer", producer, "POST", f"{b}/messages", {"body": 1}),
        ("a producer", producer, "POST", "/v1/tokens", wide),
        ("a consumer", consumer, "POST", f"{a}/messages", {"body": 1}),
        ("a consumer of a group", consumer, "POST", f"{a}/groups/other/receive", {}),
        ("a consumer of a group", consumer, "GET", f"{a}/messages?group=other", None),
        ("a consumer of a group", consumer, "PUT", f"{a}/groups/other/consumers/x", {}),
        ("an admin of a topic", some, "GET", b, None),
        ("an admin of a topic", some, "POST", "/v1/tokens", wide),
        ("an admin of a topic", some, "GET", "/v1/audit", None),
        ("an admin of a topic", some, "POST", "/v1/signing-key/rotate", {}),
        ("an admin of a topic", some, "POST", f"{a}/replays", {**span, "into": scene.other}),
        ("an admin of a group", mine, "DELETE", f"{a}?confirm={scene.topic}", None),
        ("an admin of a group", mine, "POST", f"{a}/groups/other/pause", {}),
        ("an admin of a group", mine, "POST", f"{a}/replays", span),
        ("an operator of a group", operator, "PATCH", f"{a}/messages", {"cancel": True}),
    ):  # fmt: skip
        notes.expect_status(f"{caller}: {method} {path}", scene.call(method, path, body, token), 403)
    transaction = scene.call("POST", f"{b}/transactions", {"message": {"body": 1}}).json or {}
    foreign = scene.call("GET", f"/v1/transactions/{transaction.get('transaction_id')}", token=producer)
    unknown = scene.call("GET", "/v1/transactions/none", token=producer)
    ours, theirs = ((each.status, (each.json or {}).get("code")) for each in (foreign, unknown))
    is_same = ours == theirs and foreign.status == 404
    notes.expect("a foreign id is answered as an unknown one", is_same, str(foreign.status))


def forgeries(scene: Scene, notes: Notes) -> None:
    """Receipts and page tokens are signed."""
    group = f"/v1/topics/{scene.topic}/groups/mine"
    messages = (scene.call("POST", f"{group}/receive", {"wait_seconds": 5}).json or {}).get("messages") or [
        {}
    ]
    receipt = messages[0].get("receipt", "")
    forgery = receipt[:5] + ("A" if receipt[5:6] != "A" else "B") + receipt[6:]
    other_group = f"/v1/topics/{scene.topic}/groups/other"
    for name, path, text in (
        ("a changed receipt", group, forgery),
        ("another group's receipt", other_group, receipt),
    ):
        [result] = (scene.call("POST", f"{path}/ack", {"receipts": [text]}).json or {}).get("results") or [{}]
        notes.expect(name, result.get("error", {}).get("code") == "RECEIPT_INVALID", str(result))
    notes.expect_status("a made-up page token", scene.call("GET", "/v1/topics?page_token=AAAA"), 400)


def what_is_sent(scene: Scene, notes: Notes) -> None:
    """Addresses inside, damaged bodies and reserved headers are refused at the door."""
    path = f"/v1/topics/{scene.topic}"
    for url in _INSIDE:
        answer = scene.call("PUT", f"{path}/groups/mine/consumers/x", {"url": url})
        notes.expect_status(f"a subscriber at {url}", answer, 422)
    for name, raw in _DAMAGED.items():
        notes.expect_status(name, scene.call("POST", f"{path}/messages", raw), 400)
    for name in _RESERVED:
        answer = scene.call("POST", f"{path}/messages", {"body": 1, "headers": {name: "x"}})
        notes.expect_status(f"a message with the header {name}", answer, 422)


def what_is_answered(scene: Scene, notes: Notes) -> None:
    """Answers are not cached, and browsers do not guess their type."""
    expected_headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    expected_headers |= {"strict-transport-security": "max-age="} if scene.stage.is_tls else {}
    for path, token in (("/v1/topics", None), ("/v1/topics", ""), ("/console", "")):
        headers = scene.call("GET", path, token=token).headers
        for name, value in expected_headers.items():
            notes.expect(f"{name} on {path}", value in headers.get(name, ""), headers.get(name, "not there"))


def the_console(scene: Scene, notes: Notes) -> None:
    """Forms of other sites do nothing, links sign in once, cookies stay where they are."""
    url = (scene.call("POST", "/v1/sign-in-links", {}).json or {}).get("url", "")
    link = "/console/sign-in?" + url.partition("?")[2]
    answer_to_link = scene.call("GET", link, token="", headers=[("Sec-Fetch-Site", "cross-site")])
    is_signed_in = "set-cookie" in answer_to_link.headers
    notes.expect("a stranger's link signs nobody in", not is_signed_in, str(answer_to_link.status))
    first, second = scene.call("GET", link, token=""), scene.call("GET", link, token="")
    cookie = first.headers.get("set-cookie", "")
    attributes = {"HttpOnly", "SameSite=Strict", *(("Secure",) if scene.stage.is_tls else ())}
    has_all = attributes <= set(cookie.split("; "))
    notes.expect("the cookie's attributes", has_all, cookie.partition("=")[0] or "no cookie")
    notes.expect_status("a link that was used", second, 401)
    form = [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", cookie.partition(";")[0])]
    action = f"call=delete_topic&topic={scene.topic}&confirm={scene.topic}".encode()
    elsewhere = [*form, ("Origin", "https://evil.example")]
    for name, headers in (("a form without its mark", form), ("a form of another site", elsewhere)):
        notes.expect_status(name, scene.call("POST", "/console/do", action, token="", headers=headers), 403)


def how_often(scene: Scene, notes: Notes) -> None:
    """A token's `rate_limit` holds over all processes, and it makes no other token."""
    limited_token, _ = scene.make_token("produce", "admin", rate_limit=5)
    body = {"name": scene.topic, "scopes": ["produce"], "rate_limit": 5}
    another = scene.call("POST", "/v1/tokens", body, limited_token)
    notes.expect_status("a token with a limit makes another", another, 403)
    start = time.monotonic()
    statuses = [scene.call("GET", "/v1/ladders/jmq", token=limited_token).status for _ in range(60)]
    count, most = statuses.count(200), 5 * (time.monotonic() - start + 2)
    notes.expect("60 calls with a limit of 5 a second", count <= most, f"{count} came through")


def revocation(scene: Scene, notes: Notes) -> None:
    """A revoked token ends within half a minute, and what was refused is in the audit trail."""
    token, id = scene.make_token("produce")
    scene.call("GET", "/v1/ladders/jmq", token=token)
    notes.expect_status("a scope that is missing", scene.call("GET", "/v1/tokens", token=token), 403)
    scene.call("DELETE", f"/v1/tokens/{id}")
    start = time.monotonic()
    while (status := scene.call("GET", "/v1/ladders/jmq", token=token).status) != 401:
        if time.monotonic() - start > _REVOKED_SECONDS:
            break
        time.sleep(1)
    notes.expect(f"a revoked token (after {time.monotonic() - start:.0f} s)", status == 401, str(status))
    trail = (scene.call("GET", f"/v1/audit?token={id}").json or {}).get("items", [])
    results = {entry["result"] for entry in trail}
    notes.expect("what was refused is in the audit trail", "SCOPE_MISSING" in results, ", ".join(results))


def the_second_api(stage: Stage, token: str, notes: Notes) -> None:
    """Who does not sign with SigV4 gets nothing from the API of `iam`."""
    notes.expect_status("SigV4: an unsigned call", stage.call("GET", "/v1/topics"), 403)
    notes.expect_status("SigV4: a token", stage.call("GET", "/v1/topics", token=token), 400, 403)
    headers = [("X-Amzn-Iam-Arn", "arn:aws:iam::1:root"), ("X-User-Arn", "arn:aws:iam::1:root")]
    notes.expect_status("SigV4: a name in a header", stage.call("GET", "/v1/tokens", headers=headers), 403)
    notes.expect_status("SigV4: the console", stage.call("GET", "/console"), 403, 404)


ATTACKS: tuple[Callable[[Scene, Notes], None], ...] = (
    *(without_a_token, beyond_a_token, forgeries, what_is_sent, what_is_answered, the_console, how_often),
    revocation,
)
