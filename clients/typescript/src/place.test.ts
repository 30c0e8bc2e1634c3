/** Which service a client is for, and what it sends there. No service is needed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

import { Headrace, type HeadraceOptions } from "./index.js";

const TOKEN = "hr_test";
const sending = async (options: Partial<HeadraceOptions>, call: (hr: Headrace) => Promise<unknown>): Promise<Request> => {
  let sent: Request | undefined;
  const fetch = async (request: Request): Promise<Response> => {
    sent = request;
    return Response.json({ id: "m", results: [{ id: "m" }] });
  };
  await call(new Headrace({ url: "http://127.0.0.1:8700", token: TOKEN, ...options, fetch }));
  return sent ?? assert.fail("nothing was sent");
};

for (const url of [
  "localhost:8700",
  "127.0.0.1:8700",
  "",
  "http://127.0.0.1:99999",
  "http://127.0.0.1:port",
  "http://[::1",
  "https://head race/",
  "https://me:secret@127.0.0.1",
  "https://127.0.0.1/?stage=dev",
  "https://127.0.0.1/#top",
]) {
  test(`a URL ${url} is refused at once`, () => {
    assert.throws(() => new Headrace({ url, token: TOKEN }), /as in https:(?!.*secret)/);
  });
}

for (const [url, called] of [
  ["http://v1", "http://v1/v1/health"],
  [" https://example.com/queue/v1/ ", "https://example.com/queue/v1/health"],
] as const) {
  test(`a service at ${url} is called at ${called}`, async () => {
    const { url: sent } = await sending({ url }, (hr) => hr.api.GET("/v1/health"));
    assert.equal(sent, called);
  });
}

test("receives alone go to their own address", async () => {
  const receiveUrl = "https://receive.example.com/v1";
  const received = await sending({ receiveUrl }, (hr) => hr.receive("orders", "mailer").catch(() => {}));
  assert.equal(received.url, "https://receive.example.com/v1/topics/orders/groups/mailer/receive");
  const sent = await sending({ receiveUrl }, (hr) => hr.send("orders", 1));
  assert.equal(new URL(sent.url).host, "127.0.0.1:8700");
});

for (const token of ["", undefined as unknown as string, "Bearer hr_x", "hr_secret\nx", "hr_secr\u00e9t", "secret"]) {
  test(`a token ${JSON.stringify(token)} is refused at once, and not told`, () => {
    assert.throws(() => new Headrace({ url: "http://127.0.0.1:8700", token }), /^TypeError: Give a token(?!.*secr)/s);
  });
}

test("a token may have space around it, as a file gives it", async () => {
  const { headers } = await sending({ token: " hr_test\n" }, (hr) => hr.api.GET("/v1/health"));
  assert.equal(headers.get("Authorization"), "Bearer hr_test");
});

const LOSSY: Record<string, unknown> = {
  "NaN": NaN,
  "infinity within": { prices: [1, -Infinity] },
  "a map": new Map([["order", 188]]),
  "a set within": { orders: new Set([188]) },
  "a promise": Promise.resolve(188),
  "bytes within": { picture: Buffer.from("png") },
  "a buffer": new ArrayBuffer(8),
  "a big number": 188n,
  "an error": { order: 188, error: new RangeError("card declined") },
  "a date that is none": { at: new Date("31.12.2026") },
  "an error of the platform": { order: 188, error: AbortSignal.abort().reason },
  "a pattern": /order/,
  "what a form sends": new URLSearchParams({ order: "188" }),
  "headers within": { headers: new Headers({ order: "188" }) },
  "a file's content": new Blob(["order"]),
  "a weak reference": new WeakRef({}),
  "what a map iterates": new Map([["order", 188]]).values(),
  "NaN in an object": { price: new Number(NaN) },
  "a symbol in an object": { kind: Object(Symbol("order")) },
  "a weak map": new WeakMap(),
  "a weak set": [new WeakSet()],
  "a function": () => 188,
  "a method": { order: 188, total() {} },
  "a symbol within": { kind: Symbol("order") },
  "nothing in a list": [188, undefined],
  "a hole in a list": Array(2),
};
for (const [kind, body] of Object.entries(LOSSY)) {
  test(`${kind} has no JSON form, and nothing else is sent in its place`, async () => {
    const hr = new Headrace({ url: "http://127.0.0.1:8700", token: TOKEN, fetch: () => assert.fail("it was sent") });
    await assert.rejects(hr.send("orders", body), TypeError);
    await assert.rejects(hr.sendMany("orders", [{ body }]), TypeError);
  });
}

test("what has a JSON form is sent in it", async () => {
  const told = Object.assign(new Error("declined"), { toJSON: () => ({ code: 51 }) });
  const body = { at: new Date(0), missing: undefined, list: [null, -0, "\u00e9"], toJSON: undefined, told };
  const sent = await sending({}, (hr) => hr.send("orders", body));
  assert.deepEqual(await sent.json(), { body: { at: "1970-01-01T00:00:00.000Z", list: [null, 0, "\u00e9"], told: { code: 51 } } });
});

test("an object is sent with its fields, and as {} where it has none", async () => {
  class Order {
    declare note?: string;
    readonly [Symbol.toStringTag] = "Order";
    constructor(readonly id: number) {}
  }
  class Ping {}
  const bare = Object.assign(Object.create(null), { id: 188 });
  const body = [new Order(188), new Ping(), bare, Object.create(null), {}, [], runInNewContext("({})"), new Number(1), new String("")];
  const sent = await sending({}, (hr) => hr.send("orders", body));
  assert.deepEqual(await sent.json(), { body: [{ id: 188 }, {}, { id: 188 }, {}, {}, [], {}, 1, ""] });
});

test("bytes are sent as bytes", async () => {
  const bytes = new Uint8Array([0, 255, 254, 253]).subarray(1);
  const sent = await sending({}, (hr) => hr.send("orders", bytes));
  assert.deepEqual(await sent.json(), { body_base64: "//79", content_type: "application/octet-stream" });
  const batch = await sending({}, (hr) => hr.sendMany("orders", [{ body: Buffer.from(bytes), content_type: "image/png" }]));
  assert.deepEqual(await batch.json(), { messages: [{ body_base64: "//79", content_type: "image/png" }] });
});

for (const [type, body] of [["text/plain", "<order/>"], ["image/png", new Uint8Array([0, 255])]] as const) {
  test(`a body that is ${type} is published as it is`, async () => {
    const call = { params: { path: { topic: "orders" } }, headers: { "Content-Type": type }, body };
    const sent = await sending({}, (hr) => hr.api.POST("/v1/publish/{topic}", call));
    assert.equal(sent.headers.get("Content-Type"), type);
    assert.deepEqual(Buffer.from(await sent.arrayBuffer()), Buffer.from(body as string));
  });
}
