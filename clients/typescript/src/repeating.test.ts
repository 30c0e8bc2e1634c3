/** What is made of answers that are late, half, or of something else. No service is needed. */
import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Headrace, HeadraceError, type HeadraceOptions, type Message } from "./index.js";

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

const clientOf = (options: Partial<HeadraceOptions>): Headrace =>
  new Headrace({ url: "http://127.0.0.1:8700", token: "hr_test", retries: { attempts: 2, baseMs: 1 }, ...options });

/** The URL of a server of this test. */
async function serving(t: TestContext, answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const SILENCES: Record<string, RequestListener> = {
  "of which nothing comes": () => {},
  "of which only the beginning comes": (_, answer) => void answer.writeHead(200).write("{"),
};
for (const [silence, answer] of Object.entries(SILENCES)) {
  test(`an answer ${silence} is waited for no longer than a try may take, whatever is collected meanwhile`, { timeout: 10_000 }, async (t) => {
    const collecting = setInterval(collect, 20);
    t.after(() => clearInterval(collecting));
    const hr = clientOf({ url: await serving(t, answer), timeoutMs: 200 });
    await assert.rejects(hr.send("orders", 1), { code: "NO_ANSWER" });
  });
}

const FOREIGN: [status: number, body: string | null][] = [
  [200, ""],
  [200, "[]"],
  [200, "{{ page }}"],
  [200, '{"status": "ok"}'],
  [200, '{"results": {}, "messages": null, "id": 7}'],
  [201, '{"id": "cut'],
  [204, null],
];
const CALLS: Record<string, (hr: Headrace) => Promise<unknown>> = {
  send: (hr) => hr.send("orders", 1),
  sendMany: (hr) => hr.sendMany("orders", [{ body: 1 }]),
  publish: (hr) => hr.api.POST("/v1/publish/{topic}", { params: { path: { topic: "docs" } }, body: "x" }),
  receive: (hr) => hr.receive("orders", "mailer"),
  ack: (hr) => hr.ack("orders", "mailer", [{ receipt: "r" } as Message]),
  nack: (hr) => hr.nack("orders", "mailer", [{ receipt: "r" } as Message]),
};
for (const [status, body] of FOREIGN) {
  for (const [name, call] of Object.entries(CALLS)) {
    test(`an answer ${status} ${body} to ${name} is none, and the call is made again`, async () => {
      let tries = 0;
      const fetch = async (): Promise<Response> => {
        tries++;
        return new Response(body, { status });
      };
      await assert.rejects(call(clientOf({ fetch })), { code: "NO_ANSWER", retryable: true });
      assert.equal(tries, 2);
    });
  }
}

test("a page is the answer of /docs alone, and no answer that of a deletion alone", async () => {
  const params = { path: { topic: "docs" } };
  const page = clientOf({ fetch: async () => new Response("<html>") });
  assert.equal((await page.api.GET("/docs", { parseAs: "text" })).data, "<html>");
  await assert.rejects(page.api.GET("/v1/topics/{topic}", { params }), { code: "NO_ANSWER" });
  const nothing = clientOf({ fetch: async () => new Response(null, { status: 204 }) });
  const query = { confirm: "docs" };
  assert.equal((await nothing.api.DELETE("/v1/topics/{topic}", { params: { ...params, query } })).response.status, 204);
  await assert.rejects(nothing.api.GET("/v1/topics/{topic}", { params }), { code: "NO_ANSWER" });
});

const PROBLEMS: [status: number, body: string, code: string, retryable: boolean][] = [
  [503, '{"code": 503, "message": "no healthy upstream"}', "UNEXPECTED", true],
  [403, '{"code": ["x"], "detail": "denied"}', "UNEXPECTED", false],
  [429, '{"code": "TOO_FAST", "status": "busy", "errors": null}', "TOO_FAST", true],
];
for (const [status, body, code, retryable] of PROBLEMS) {
  test(`a refusal ${status} ${body} has the code ${code}`, async () => {
    const hr = clientOf({ fetch: async () => new Response(body, { status }) });
    await assert.rejects(hr.send("orders", 1), { code, status, retryable, issues: [] });
  });
}

const ELSEWHERE: [status: number, body: string | null][] = [
  [503, null],
  [503, "<html>Bad gateway</html>"],
  [302, null],
  [403, ""],
  [403, '{"message": "Forbidden"}'],
];
for (const [status, body] of ELSEWHERE) {
  for (const headers of [{}, { "Content-Length": String(body?.length ?? 0) }]) {
    test(`a refusal ${status} ${body} of something in between passes for no success, ${JSON.stringify(headers)}`, async () => {
      const { api } = clientOf({ fetch: async () => new Response(body, { status, headers }) });
      const params = { path: { topic: "orders" }, query: { confirm: "orders" } };
      const problem = { code: "UNEXPECTED", status, retryable: status >= 500 };
      await assert.rejects(api.DELETE("/v1/topics/{topic}", { params }), problem);
      await assert.rejects(api.PUT("/v1/topics/{topic}", { params: { path: params.path }, body: { shards: 1 } }), problem);
    });
  }
}

/** A `fetch` that answers with these, one after the other. */
function answeringWith(...answers: Response[]): () => Promise<Response> {
  return async () => answers.shift() ?? assert.fail("one call too many");
}
const stored = (index: number) => ({ index, id: `m${index}`, status: "NEW" });
const refused = (index: number, code: string, retryable: boolean) => ({ index, error: { code, status: 503, retryable } });
const HALF = { results: [stored(0), refused(1, "UNAVAILABLE", true)] };

test("what the first try of a batch has stored stands, though the second is refused as a whole", async () => {
  const refusal = Response.json({ code: "TOPIC_NOT_FOUND", status: 404, retryable: false }, { status: 404 });
  const hr = clientOf({ fetch: answeringWith(Response.json(HALF), refusal) });
  const [first, second] = await hr.sendMany("orders", [{ body: 1 }, { body: 2 }]);
  assert.deepEqual(first, stored(0));
  assert.ok(second instanceof HeadraceError && second.code === "UNAVAILABLE");
});

test("what one try of a batch has stored stands, though a later one could not look for it", async () => {
  const others = { results: [refused(0, "UNAVAILABLE", true), stored(1)] };
  const hr = clientOf({ fetch: answeringWith(Response.json(HALF), Response.json(others)) });
  assert.deepEqual(await hr.sendMany("orders", [{ body: 1 }, { body: 2 }]), [stored(0), stored(1)]);
});

test("where nobody answers the second try of a batch, the whole may be stored", async () => {
  const lost = new Response("bad gateway", { status: 502 });
  const hr = clientOf({ fetch: answeringWith(Response.json(HALF), lost) });
  await assert.rejects(hr.sendMany("orders", [{ body: 1 }, { body: 2 }]), { status: 502, retryable: true });
});

const settled = (receipt: string) => ({ receipt, ok: true });
const open = (receipt: string, code = "UNAVAILABLE", retryable = true) => ({ receipt, error: { code, retryable } });
const claimed = ["r0", "r1"].map((receipt) => ({ receipt }) as Message);
const LOSSES: Record<string, () => Response> = {
  "is cut": () => assert.fail("cut"),
  "ends at a gateway": () => new Response("bad gateway", { status: 502 }),
};
const settling = {
  ack: (hr: Headrace) => hr.ack("orders", "mailer", claimed),
  nack: (hr: Headrace) => hr.nack("orders", "mailer", claimed),
  extend: async ({ api }: Headrace) => {
    const params = { path: { topic: "orders", group: "mailer" } };
    const body = { receipts: claimed.map(({ receipt }) => receipt), lease_seconds: 30 };
    return (await api.POST("/v1/topics/{topic}/groups/{group}/extend", { params, body })).data?.results;
  },
};

for (const [call, settle] of Object.entries(settling)) {
  test(`a receipt to which ${call} has no answer yet is asked about again, and what came of the others stands`, async () => {
    const first = { results: [settled("r0"), open("r1")] };
    const second = { results: [open("r0", "RECEIPT_STALE", false), settled("r1")] };
    const hr = clientOf({ fetch: answeringWith(Response.json(first), Response.json(second)) });
    assert.deepEqual(await settle(hr), [settled("r0"), settled("r1")]);
  });

  for (const [kind, last] of Object.entries(LOSSES)) {
    test(`what ${call} has done stands, though the next try ${kind}`, async () => {
      const answers = [Response.json({ results: [settled("r0"), open("r1")] })];
      const hr = clientOf({ fetch: async () => answers.shift() ?? last() });
      assert.deepEqual(await settle(hr), [settled("r0"), open("r1")]);
    });
  }
}

test("a receipt whose lease ends meanwhile is stale, and not asked about any more", async () => {
  const stale = open("r0", "RECEIPT_STALE", false);
  const answers = [open("r0"), stale].map((each) => Response.json({ results: [each] }));
  const hr = clientOf({ fetch: answeringWith(...answers), retries: { attempts: 3, baseMs: 1 } });
  assert.deepEqual(await hr.ack("orders", "mailer", claimed.slice(0, 1)), [stale]);
});

for (const results of [[], [null], ["stored"], [[]], [{}, {}]]) {
  test(`results ${JSON.stringify(results)} of one message or receipt are none, and the call is made again`, async () => {
    const answers = [{ results }, { results: [stored(0)] }, { results }, { results: [settled("r0")] }];
    const hr = clientOf({ fetch: answeringWith(...answers.map((answer) => Response.json(answer))) });
    assert.deepEqual(await hr.sendMany("orders", [{ body: 1 }]), [stored(0)]);
    assert.deepEqual(await hr.ack("orders", "mailer", claimed.slice(0, 1)), [settled("r0")]);
  });
}

for (const topic of ["test", "redrive", "rotate-secret", "tokens"]) {
  test(`what is published to the topic ${topic} is sent again after a lost answer`, async () => {
    let tries = 0;
    const fetch = async (): Promise<Response> => {
      if (!tries++) throw new TypeError("the connection was cut");
      return Response.json(stored(0));
    };
    const { data } = await clientOf({ fetch }).api.POST("/v1/publish/{topic}", { params: { path: { topic } }, body: "x" });
    assert.deepEqual([data, tries], [stored(0), 2]);
  });
}

const REGISTRATIONS: [body: { url?: string; secret?: string; function?: string }, tries: number][] = [
  [{ url: "https://example.com/hooks" }, 1], // the second answer would have no secret
  [{ url: "https://example.com/hooks", secret: "whsec_own" }, 2],
  [{ function: "shop" }, 2],
  [{}, 2],
];
for (const [body, most] of REGISTRATIONS) {
  test(`a registration with ${JSON.stringify(body)} is tried ${most} times where nobody answers`, async () => {
    let tries = 0;
    const fetch = async (): Promise<Response> => {
      tries++;
      throw new TypeError("the connection was cut");
    };
    const params = { path: { topic: "orders", group: "shop", consumer: "hook" } };
    const { api } = clientOf({ fetch });
    const call = api.PUT("/v1/topics/{topic}/groups/{group}/consumers/{consumer}", { params, body });
    await assert.rejects(call, { code: "NO_ANSWER" });
    assert.equal(tries, most);
  });
}

test("how long ago a send was sent first is told whatever the clock does, and within what the service takes", async (t) => {
  let ms = 0;
  t.mock.method(performance, "now", () => ms);
  let clock = Date.UTC(2026, 10, 22);
  t.mock.method(Date, "now", () => clock);
  const resent: (string | null)[] = [];
  const cut = async ({ headers }: Request): Promise<Response> => {
    resent.push(headers.get("Headrace-Resend"));
    ms += 30_000;
    clock += [-3_600_000, 0, 90 * 86_400_000][resent.length - 1] ?? 0;
    throw new TypeError("the connection was cut");
  };
  const hr = clientOf({ fetch: cut, retries: { attempts: 4, baseMs: 1 } });
  await assert.rejects(hr.send("orders", 1), { code: "NO_ANSWER" });
  assert.deepEqual(resent, [null, "30", "60", "86400"]);
});

test("a send is tried for two minutes, and another call five times", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let ms = 0;
  t.mock.method(performance, "now", () => ms);
  for (const [call, from, to] of [["send", 100_000, 121_000], ["receive", 1_000, 4_000]] as const) {
    const start = ms;
    let tries = 0;
    let isOver = false;
    const fetch = async (): Promise<Response> => {
      tries++;
      throw new TypeError("connection refused");
    };
    const hr = new Headrace({ url: "http://127.0.0.1:8700", token: "hr_test", fetch });
    const end = assert.rejects(CALLS[call]!(hr), { code: "NO_ANSWER" }).then(() => (isOver = true));
    while (!isOver) {
      for (let turns = 0; turns < 4; turns++) await new Promise(setImmediate);
      ms += 250;
      t.mock.timers.tick(250);
    }
    await end;
    assert.ok(ms - start > from && ms - start < to, `${call}: ${ms - start} ms`);
    assert.ok(call === "send" ? tries > 12 : tries === 5, `${call}: ${tries} tries`);
  }
});

test("a call whose signal has ended before it begins is not sent", async () => {
  const hr = clientOf({ fetch: () => assert.fail("it was sent") });
  const signal = AbortSignal.abort(new Error("the user left"));
  await assert.rejects(hr.api.GET("/v1/health", { signal }), /the user left/);
});

test("a fetch that throws at once gives no answer, as one that rejects", async () => {
  const hr = clientOf({
    fetch: () => {
      throw new TypeError("no proxy");
    },
  });
  await assert.rejects(hr.send("orders", 1), { code: "NO_ANSWER", detail: /no proxy/ });
});

test("a receive may take as long as it waits for messages beside the time of a try", async (t) => {
  const url = await serving(t, (_, answer) => void setTimeout(() => answer.end('{"messages": []}'), 300));
  const hr = clientOf({ url, timeoutMs: 100, retries: { attempts: 1, totalMs: 100 } });
  assert.deepEqual(await hr.receive("orders", "mailer", { wait_seconds: 20 }), []);
  await assert.rejects(hr.receive("orders", "mailer"), { code: "NO_ANSWER" });
  const patient = clientOf({ url, timeoutMs: Infinity, retries: { totalMs: Infinity } });
  assert.deepEqual(await patient.receive("orders", "mailer"), []);
});

test("a call ends when the time of all its tries is over, also within one", { timeout: 10_000 }, async (t) => {
  const url = await serving(t, () => {});
  const hr = clientOf({ url, retries: { totalMs: 200 } });
  await assert.rejects(hr.send("orders", 1), { code: "NO_ANSWER" });
});

test("requests are forgotten when their calls are through", { timeout: 10_000 }, async () => {
  let forgotten = 0;
  const registry = new FinalizationRegistry(() => forgotten++);
  const answering = async (request: Request): Promise<Response> => {
    registry.register(request, 1);
    return Response.json(stored(0));
  };
  const hr = clientOf({ fetch: answering });
  for (let i = 0; i < 10; i++) await hr.send("orders", i);
  while (forgotten < 5) {
    collect();
    await new Promise(setImmediate);
  }
});
