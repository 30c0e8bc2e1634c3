/** What a consumer asks for, and what it makes of its handler's end. No service is needed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import { Headrace, type HeadraceOptions } from "./index.js";

const clientOf = (options: Partial<HeadraceOptions>): Headrace =>
  new Headrace({ url: "http://127.0.0.1:8700", token: "hr_test", ...options });

test("an option that is undefined is none", async () => {
  const stop = new AbortController();
  let asked: { receive_id?: string } = {};
  const answering = async (request: Request): Promise<Response> => {
    asked = (await request.json()) as typeof asked;
    stop.abort();
    return Response.json({ messages: [] });
  };
  const options = { wait_seconds: undefined, concurrency: undefined, signal: stop.signal } as object;
  await clientOf({ fetch: answering }).consume("orders", "mailer", async () => {}, options);
  assert.deepEqual(asked, { wait_seconds: 20, max: 1, receive_id: asked.receive_id });
  let tries = 0;
  const failing = async (): Promise<Response> => {
    tries++;
    throw new TypeError("the connection was cut");
  };
  const retries = { attempts: undefined, baseMs: 1, capMs: 1, totalMs: 1000 } as object;
  await assert.rejects(clientOf({ fetch: failing, retries }).receive("orders", "mailer"));
  assert.equal(tries, 5);
});

test("a receive whose answer is lost is sent again under its id, and says so; the next one has another id", async () => {
  const asked: [id: unknown, resend: string | null][] = [];
  const losing = async (request: Request): Promise<Response> => {
    asked.push([((await request.json()) as { receive_id?: string }).receive_id, request.headers.get("Headrace-Resend")]);
    if (asked.length === 1) throw new TypeError("the connection was cut");
    return Response.json({ messages: [], because: "empty" });
  };
  const hr = clientOf({ fetch: losing, retries: { baseMs: 1 } });
  await hr.receive("orders", "mailer");
  await hr.receive("orders", "mailer");
  await hr.receive("orders", "mailer", { receive_id: "mine" });
  const ids = asked.map(([id]) => id);
  assert.deepEqual(asked.map(([, resend]) => resend), ["0", "1", "0", null]);
  assert.ok(ids[0] === ids[1] && ids[1] !== ids[2] && String(ids[0]).length === 22 && ids[3] === "mine", `${ids}`);
});

test("a consumer rests longer and longer between receives that bring nothing at once", async () => {
  const stop = new AbortController();
  let receives = 0;
  const empty = async (): Promise<Response> => {
    if (++receives === 4) stop.abort();
    return Response.json({ messages: [] });
  };
  const start = performance.now();
  await clientOf({ fetch: empty }).consume("orders", "mailer", async () => {}, { wait_seconds: 0, signal: stop.signal });
  const ms = performance.now() - start;
  assert.ok(ms > 50 + 150 + 350 - 10, `${ms} ms`); // a timer may be early by one
});

const WORDLESS: Record<string, unknown> = {
  "an error whose message is no text": Object.assign(new Error(), { message: Object.create(null) }),
  "an error that throws when it is told": Object.assign(new Error(), {
    toString: () => {
      throw new Error("no text");
    },
  }),
  "an object that throws when it is looked at": {
    [inspect.custom]: () => {
      throw new Error("no look");
    },
  },
};
for (const [kind, reason] of Object.entries(WORDLESS)) {
  test(`a handler that rejects with ${kind} gives its message back, and the consumer goes on`, async () => {
    const stop = new AbortController();
    const returned: unknown[] = [];
    const answering = async (request: Request): Promise<Response> => {
      if (request.url.endsWith("/receive")) return Response.json({ messages: [{ id: "m", receipt: "r", body: 1 }] });
      stop.abort();
      returned.push(new URL(request.url).pathname.split("/").pop(), await request.json());
      return Response.json({ results: [{ receipt: "r", ok: true }] });
    };
    const handle = (): Promise<void> => Promise.reject(reason);
    await clientOf({ fetch: answering }).consume("orders", "mailer", handle, { signal: stop.signal });
    assert.deepEqual(returned, ["nack", { receipts: ["r"], reason: "(an error without text)" }]);
  });
}

test("a consumer settles again what may still be settled, and does not handle it again", async () => {
  const stop = new AbortController();
  const calls: string[] = [];
  const answering = async (request: Request): Promise<Response> => {
    const call = String(request.url.split("/").pop());
    calls.push(call);
    if (call === "receive") return Response.json({ messages: [{ id: "m", receipt: "r", body: 1 }] });
    stop.abort();
    const error = { code: "UNAVAILABLE", detail: "The store is busy.", status: 503, retryable: true };
    return Response.json({ results: [calls.length < 4 ? { receipt: "r", error } : { receipt: "r", ok: true }] });
  };
  const handle = async (): Promise<void> => void calls.push("handle");
  await clientOf({ fetch: answering, retries: { baseMs: 1 } }).consume("orders", "mailer", handle, { signal: stop.signal });
  assert.deepEqual(calls, ["receive", "handle", "ack", "ack"]);
});

test("a consumer tells what may still be settled after all tries, when what is at work is finished", async () => {
  for (const [call, handle] of [
    ["ack", async (): Promise<void> => {}],
    ["nack", (): Promise<void> => Promise.reject(new Error("no stock"))],
  ] as const) {
    const stop = new AbortController();
    const settled: string[] = [];
    const answering = async (request: Request): Promise<Response> => {
      if (request.url.endsWith("/receive")) return Response.json({ messages: ["r", "s"].map((receipt) => ({ id: "m", receipt, body: 1 })) });
      stop.abort();
      const { receipts } = (await request.json()) as { receipts: string[] };
      settled.push(`${request.url.split("/").pop()} ${receipts}`);
      const error = { code: "UNAVAILABLE", detail: "The store is busy.", status: 503, retryable: true };
      return Response.json({ results: receipts.map((receipt) => (receipt === "r" ? { receipt, error } : { receipt, ok: true })) });
    };
    const hr = clientOf({ fetch: answering, retries: { attempts: 2, baseMs: 1 } });
    const end = hr.consume("orders", "mailer", handle, { concurrency: 2, signal: stop.signal });
    await assert.rejects(end, { name: "HeadraceError", code: "UNAVAILABLE", status: 503, retryable: true });
    assert.deepEqual(settled.sort(), [`${call} r`, `${call} r`, `${call} s`]);
  }
});

test("nothing is settled, and nothing sent, where there is nothing: no call is made", async () => {
  const hr = clientOf({ fetch: () => assert.fail("a call was made") });
  assert.deepEqual(await hr.ack("orders", "mailer", ...[]), []);
  assert.deepEqual(await hr.nack("orders", "mailer", []), []);
  assert.deepEqual(await hr.sendMany("orders", []), []);
});
