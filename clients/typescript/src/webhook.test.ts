/** A subscriber on the web's own requests, in Hono and in Node's server. Signatures are made by node:crypto. No service is needed. */
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Hono } from "hono";

import { Bury, type PushedMessage, Retry, SignatureError, Webhook, type WebhookOptions } from "./index.js";
import { nodeListener } from "./node.js";

const secretOf = (letter: string): string => `whsec_${btoa(letter.repeat(24))}`;
const SECRET = secretOf("s");
const NOW = Math.floor(Date.now() / 1000);

/** The headers of a push, signed. */
function signed(body: string | Uint8Array, headers: Record<string, string> = {}, secret = SECRET, at: number | string = NOW): Record<string, string> {
  const hmac = createHmac("sha256", Buffer.from(secret.slice(6), "base64")).update(`m-1.${at}.`).update(body);
  return {
    "Content-Type": "application/json",
    "ce-id": "m-1",
    "ce-source": "/topics/orders",
    "ce-type": "headrace.message",
    "Headrace-Topic": "orders",
    "Headrace-Group": "shop",
    "webhook-id": "m-1",
    "webhook-timestamp": String(at),
    "webhook-signature": `v1,${hmac.digest("base64")}`,
    ...headers,
  };
}

const pushing = (webhook: Webhook<never>, body: string | Uint8Array<ArrayBuffer>, headers = signed(body), method = "POST"): Promise<Response> =>
  webhook.fetch(new Request("https://shop.example/hooks", { method, headers, ...(method === "POST" && { body }) }));

/** A webhook that keeps what it gets. */
function keeping(options: WebhookOptions = {}): { webhook: Webhook<never>; kept: PushedMessage[] } {
  const kept: PushedMessage[] = [];
  return { webhook: new Webhook<never>(SECRET, (message) => kept.push(message), options), kept };
}

test("a signed message reaches the handler with what it says", async () => {
  const { webhook, kept } = keeping();
  const headers = signed('{"order": 188}', {
    "ce-subject": "order-%E2%82%AC%22",
    "ce-time": "2026-11-21T08:08:44.951Z",
    "ce-shopid": "9",
    "Headrace-Shard": "5",
    "Headrace-Offset": "7",
    "Headrace-Attempt": "2",
    "Headrace-Tag": "100% %C3%A9",
    "Headrace-Tenant": "M%C3%BCller",
    "X-Shop": "north",
    "User-Agent": "headrace",
  });
  assert.equal((await pushing(webhook, '{"order": 188}', headers)).status, 204);
  assert.deepEqual(kept, [
    {
      id: "m-1",
      topic: "orders",
      group: "shop",
      body: { order: 188 },
      content_type: "application/json",
      keys: ['order-€"'],
      tag: "100% é",
      tenant: "Müller",
      headers: { "x-shop": "north" },
      shard: 5,
      offset: 7,
      attempt: 2,
      accepted_at: "2026-11-21T08:08:44.951Z",
      type: "headrace.message",
      source: "/topics/orders",
      attributes: { shopid: "9" },
    },
  ]);
});

const EVENT = { id: "b", source: "/topics/orders", type: "shop.order", specversion: "1.0", headraceattempt: "2", shopid: 9 };
const BODIES: [kind: string, fields: object, body: unknown][] = [
  ["JSON", { data: { order: 188 } }, { order: 188 }],
  ["null", { data: null }, null],
  ["nothing", {}, null],
  ["bytes", { data_base64: "aGk=", datacontenttype: "text/plain" }, new TextEncoder().encode("hi")],
  ["JSON that is none", { data_base64: "ew==", datacontenttype: "application/json" }, new TextEncoder().encode("{")],
];
for (const [kind, fields, body] of BODIES) {
  test(`structured and batch modes bring the same message with ${kind}`, async () => {
    const { webhook, kept } = keeping();
    for (const [media, document] of [["cloudevents", { ...EVENT, ...fields }], ["cloudevents-batch", [{ ...EVENT, ...fields }]]] as const) {
      const text = JSON.stringify(document);
      const { "ce-id": _, ...headers } = signed(text, { "Content-Type": `application/${media}+json; charset=utf-8` });
      assert.equal((await pushing(webhook, text, headers)).status, 204);
    }
    const [first, second] = kept;
    assert.deepEqual([first?.id, first?.body, first?.attempt, first?.attributes], ["b", body, 2, { shopid: "9" }]);
    assert.deepEqual(second, first);
  });
}

const BINARY: [type: string, sent: Uint8Array<ArrayBuffer>, body: unknown][] = [
  ["application/json", new TextEncoder().encode("null"), null],
  ["application/vnd.shop+json; charset=utf-8", new TextEncoder().encode("[1]"), [1]],
  ["application/json", new TextEncoder().encode("{"), new TextEncoder().encode("{")],
  ["application/json", Uint8Array.of(34, 255, 34), Uint8Array.of(34, 255, 34)],
  ["image/png", Uint8Array.of(0, 255), Uint8Array.of(0, 255)],
];
for (const [type, sent, body] of BINARY) {
  test(`a body ${sent} of ${type} is ${JSON.stringify(body)}`, async () => {
    const { webhook, kept } = keeping();
    assert.equal((await pushing(webhook, sent, signed(sent, { "Content-Type": type }))).status, 204);
    assert.deepEqual(kept[0]?.body, body);
  });
}

const other = secretOf("o");
const REFUSED: [kind: string, headers: Record<string, string>][] = [
  ["without a signature", { "Content-Type": "application/json", "ce-id": "m-1" }],
  ["signed by another secret", signed("{}", {}, other)],
  ["whose body was changed", signed("{ }")],
  ["that is older than the tolerance", signed("{}", {}, SECRET, NOW - 400)],
  ["from the future", signed("{}", {}, SECRET, NOW + 400)],
  ["whose time is no number", signed("{}", {}, SECRET, "soon")],
  ["whose time is endless", signed("{}", {}, SECRET, "9".repeat(400))],
];
for (const [kind, headers] of REFUSED) {
  test(`a request ${kind} is refused`, async () => {
    const { webhook, kept } = keeping();
    assert.equal((await pushing(webhook, "{}", headers)).status, 401);
    await assert.rejects(webhook.verify(new Headers(headers), new TextEncoder().encode("{}")), SignatureError);
    assert.deepEqual(kept, []);
  });
}

test("each of several secrets and signatures counts, and the tolerance may be another", async () => {
  const both = new Webhook([other, SECRET], () => {}, { toleranceSeconds: 500 });
  const headers = signed("{}", {}, SECRET, NOW - 400);
  headers["webhook-signature"] = `v1,bm8= ${headers["webhook-signature"]} v2,x`;
  assert.equal(await both.verify(new Headers(headers), new TextEncoder().encode("{}")), "m-1");
});

for (const secret of ["", "whsec_", "hunter2!", "whsec_aGVsbG8=", undefined, [], [""], [SECRET, undefined]]) {
  test(`a secret ${JSON.stringify(secret)} is refused at once: with it anyone could sign`, () => {
    assert.throws(() => new Webhook(secret), TypeError);
  });
}

test("the handshake is answered, where the origin may call", async () => {
  const asking = async (webhook: Webhook<never>, origin?: string): Promise<[number, string | null]> => {
    const answer = await pushing(webhook, "", origin ? { "WebHook-Request-Origin": origin } : {}, "OPTIONS");
    return [answer.status, answer.headers.get("WebHook-Allowed-Origin")];
  };
  assert.deepEqual(await asking(keeping().webhook, "queue.example"), [204, "queue.example"]);
  assert.deepEqual(await asking(keeping().webhook), [204, "*"]);
  const { webhook } = keeping({ origins: ["Queue.example"] });
  assert.deepEqual(await asking(webhook, "queue.example"), [204, "queue.example"]);
  assert.deepEqual(await asking(webhook, "evil.example"), [403, null]);
  assert.equal((await pushing(webhook, "", {}, "GET")).status, 405);
});

test("a test event is answered, and no handler sees it; what is no event is malformed", async () => {
  const { webhook, kept } = keeping();
  assert.equal((await pushing(webhook, "{}", signed("{}", { "ce-type": "headrace.test" }))).status, 204);
  const { "ce-id": _, ...headers } = signed("{}");
  assert.equal((await pushing(webhook, "{}", headers)).status, 400);
  for (const media of ["cloudevents", "cloudevents-batch"]) {
    for (const body of ["null", "[[]]", "{", '{"data": 1}', '[{"id": "b", "data_base64": "?"}]']) {
      const { "ce-id": _, ...headers } = signed(body, { "Content-Type": `application/${media}+json` });
      assert.equal((await pushing(webhook, body, headers)).status, 400, `${media} ${body}`);
    }
  }
  assert.deepEqual(kept, []);
  assert.equal((await pushing(new Webhook(SECRET), "{}")).status, 404);
});

const ENDS: [ends: (Error | undefined)[], status: number, after: string | null][] = [
  [[undefined, undefined], 204, null],
  [[new RangeError("card 4711")], 500, null],
  [[new Bury("no such customer")], 489, null],
  [[new Retry(600)], 503, "600"],
  [[new Retry()], 503, null],
  [[undefined, new Bury("no such customer")], 500, null],
  [[new Bury("no such customer"), new RangeError("card 4711")], 500, null],
  [[new Bury("no such customer"), new Bury("nor this")], 489, null],
  [[new Retry(600), new Retry(), new Retry(1200)], 503, "1200"],
  [[new Retry(600), undefined], 500, null],
];
for (const [ends, status, after] of ENDS) {
  test(`handlers that end with ${ends.map(String)} answer ${status}`, async () => {
    const events = ends.map((_, index) => ({ ...EVENT, id: `m-${index}`, data: index }));
    const body = JSON.stringify(events);
    const { "ce-id": _, ...headers } = signed(body, { "Content-Type": "application/cloudevents-batch+json" });
    const reported: unknown[] = [];
    const handle = ({ body }: { body: number }): void => {
      if (ends[body]) throw ends[body];
    };
    const webhook = new Webhook<never>(SECRET, handle, { onError: (error) => reported.push(error) });
    const answer = await pushing(webhook, body, headers);
    assert.deepEqual([answer.status, answer.headers.get("Retry-After")], [status, after]);
    assert.doesNotMatch(await answer.text(), /4711/);
    assert.deepEqual(reported, ends.filter((end) => end instanceof RangeError));
  });
}

test("a check of a transaction is answered with what its function says, and unknown where that fails", async () => {
  const body = JSON.stringify({ transaction_id: "t", topic: "payments", checks: 2 });
  const { "ce-id": _, ...headers } = signed(body);
  const asking = async (check?: WebhookOptions["check"]): Promise<unknown> => {
    const webhook = new Webhook<never>(SECRET, undefined, { onError: () => {}, ...(check && { check }) });
    const answer = await pushing(webhook, body, headers);
    return answer.ok ? answer.json() : answer.status;
  };
  assert.deepEqual(await asking(async ({ transaction_id }) => (transaction_id === "t" ? "commit" : "rollback")), { state: "commit" });
  assert.deepEqual(await asking(() => Promise.reject(new Error("no database"))), { state: "unknown" });
  assert.deepEqual(await asking((() => "yes") as never), { state: "unknown" });
  assert.equal(await asking(), 404);
});

test("a request that is too large is refused", async () => {
  const { webhook, kept } = keeping();
  assert.equal((await pushing(webhook, "{}", { ...signed("{}"), "Content-Length": "10485761" })).status, 413);
  assert.equal((await pushing(webhook, new Uint8Array(10_485_761), signed("{}"))).status, 413);
  assert.deepEqual(kept, []);
});

test("in Hono a webhook is a route", async () => {
  const { webhook, kept } = keeping();
  const app = new Hono();
  app.on(["POST", "OPTIONS"], "/hooks", (c) => webhook.fetch(c.req.raw));
  const push = await app.request("/hooks", { method: "POST", headers: signed('"hi"'), body: '"hi"' });
  const handshake = await app.request("/hooks", { method: "OPTIONS", headers: { "WebHook-Request-Origin": "queue.example" } });
  assert.deepEqual([push.status, handshake.headers.get("webhook-allowed-origin"), kept[0]?.body], [204, "queue.example", "hi"]);
});

test("on Node a webhook is a listener of its server", async (t) => {
  const { webhook, kept } = keeping();
  const listener = nodeListener(webhook);
  const server = createServer((request, response) => {
    if (request.url === "/parsed") request.on("end", () => void listener(request, response)).resume();
    else void listener(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const parts = new ReadableStream<Uint8Array>({
    start(stream) {
      for (const part of ['{"order"', ": 188}"]) stream.enqueue(new TextEncoder().encode(part)); // chunked
      stream.close();
    },
  });
  const chunked = { method: "POST", headers: signed('{"order": 188}'), body: parts, duplex: "half" } as RequestInit;
  assert.equal((await fetch(url, chunked)).status, 204);
  assert.deepEqual(kept[0]?.body, { order: 188 });
  const handshake = await fetch(url, { method: "OPTIONS", headers: { "WebHook-Request-Origin": "queue.example" } });
  assert.deepEqual([handshake.status, handshake.headers.get("webhook-allowed-origin")], [204, "queue.example"]);
  assert.equal((await fetch(url, { method: "POST", headers: signed("{}", {}, other), body: "{}" })).status, 401);
  const parsed = await fetch(`${url}/parsed`, { method: "POST", headers: signed("{}"), body: "{}" });
  assert.deepEqual([parsed.status, /before what parses/.test(await parsed.text())], [500, true]);
  await new Promise<void>((resolve) => {
    const cut = request(url, { method: "POST", headers: { ...signed("{}"), "Content-Length": "9" } }, () => assert.fail("answered"));
    cut.on("error", () => resolve());
    cut.write("{", () => cut.destroy());
    cut.on("close", resolve);
  });
  assert.equal((await fetch(url)).status, 405, "it still serves");
});
