/** Against a service: HEADRACE_URL and HEADRACE_TOKEN name it. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { before, test } from "node:test";

import { Bury, Headrace, HeadraceError, type PushedMessage, Webhook } from "./index.js";
import { nodeListener } from "./node.js";
import { askedWaitMs } from "./repeating.js";

const hr = Headrace.fromEnv();
const topic = `ts-${crypto.randomUUID()}`;

before(async () => {
  const { error } = await hr.api.PUT("/v1/topics/{topic}", { params: { path: { topic } }, body: { shards: 1 } });
  assert.equal(error, undefined);
  await hr.api.PUT("/v1/topics/{topic}/groups/{group}", {
    params: { path: { topic, group: "mailer" } },
    body: { from: "earliest" },
  });
});

test("a message is sent, received, acknowledged, and seen as done", async () => {
  const sent = await hr.send(topic, { order: 188 }, { keys: ["order-188"], tag: "paid" });
  const [message] = await hr.receive<{ order: number }>(topic, "mailer", { wait_seconds: 5 });
  assert.ok(message);
  assert.deepEqual([message.id, message.body.order, message.tag, message.attempt], [sent.id, 188, "paid", 1]);
  const [settled] = await hr.ack(topic, "mailer", [message]);
  assert.equal(settled?.ok, true);
  const { data } = await hr.api.GET("/v1/topics/{topic}/messages/{id}", { params: { path: { topic, id: sent.id } } });
  assert.equal(data?.deliveries["mailer"]?.status, "SUCCESS");
});

test("an application stores its schedules, and deletes those that it has no more", async () => {
  const names = async (): Promise<string[]> => (await hr.api.GET("/v1/schedules")).data?.items.map(({ name }) => name) ?? [];
  const other = { params: { path: { schedule: "of-another" } }, body: { topic, message: { body: 1 }, every_seconds: 3600 } };
  await hr.api.PUT("/v1/schedules/{schedule}", other);
  const daily = { topic, cron: "0 9 * * mon-fri", timezone: "Europe/Berlin", message: { body: { kind: "daily" }, tag: "t" } };
  await hr.storeSchedules("shop", { daily, hourly: { topic, every_seconds: 3600 } });
  assert.deepEqual(await names(), ["daily", "hourly", "of-another"]);
  await hr.storeSchedules("shop", { daily });
  assert.deepEqual(await names(), ["daily", "of-another"]);
  const { data } = await hr.api.GET("/v1/schedules/{schedule}", { params: { path: { schedule: "daily" } } });
  assert.deepEqual([data?.message, data?.next.length], [{ body: { kind: "daily" }, tag: "t" }, 10]);
  await hr.storeSchedules("shop", {});
});

test("a job is put, seen and deleted by its name", async () => {
  const job = "order/188";
  const first = await hr.putJob(topic, job, 1, { delay_seconds: 600 });
  assert.equal((await hr.putJob(topic, job, 2, { delay_seconds: 600 })).id, first.id);
  const { body, job: name } = await hr.getJob(topic, job);
  assert.deepEqual([body, name], [2, job]);
  await hr.deleteJob(topic, job);
  await assert.rejects(hr.deleteJob(topic, job), { code: "JOB_NOT_FOUND" });
});

test("bytes and texts are stored as they are", async () => {
  const bytes = Uint8Array.of(0, 255, 254);
  const { id } = await hr.send(topic, bytes, { content_type: "image/png" });
  const { data } = await hr.api.GET("/v1/topics/{topic}/messages/{id}", { params: { path: { topic, id } } });
  assert.deepEqual([data?.body_base64, data?.content_type], [Buffer.from(bytes).toString("base64"), "image/png"]);
  const headers = { "Content-Type": "text/plain" };
  const published = await hr.api.POST("/v1/publish/{topic}", { params: { path: { topic } }, headers, body: "<order/>" });
  const path = { topic, id: published.data?.id ?? "" };
  const stored = await hr.api.GET("/v1/topics/{topic}/messages/{id}", { params: { path } });
  assert.equal(stored.data?.body_base64, Buffer.from("<order/>").toString("base64"));
  await hr.nack(topic, "mailer", await hr.receive(topic, "mailer"), { dead_letter: true, reason: "a test" });
});

test("a URL may end as that of the interface", async () => {
  const { HEADRACE_URL: url = "", HEADRACE_TOKEN: token = "" } = process.env;
  for (const end of ["/", "/v1", "/v1/"]) {
    const { data } = await new Headrace({ url: url + end, token }).api.GET("/v1/health");
    assert.equal(data?.status, "ok");
  }
});

test("a place that is undefined is that of the environment", async () => {
  const { data } = await Headrace.fromEnv({ url: undefined, token: undefined } as object).api.GET("/v1/health");
  assert.equal(data?.status, "ok");
});

test("a refusal is an error with its code", async () => {
  await assert.rejects(hr.send("no-such-topic", 1), (error) => {
    assert.ok(error instanceof HeadraceError);
    assert.deepEqual([error.code, error.status, error.retryable], ["TOPIC_NOT_FOUND", 404, false]);
    return true;
  });
  const { error } = await hr.api.GET("/v1/topics/{topic}", { params: { path: { topic: "no-such-topic" } } });
  assert.equal(error?.code, "TOPIC_NOT_FOUND");
});

test("no id makes the path of something else", async () => {
  for (const id of ["", ".", ".."]) {
    const params = { path: { topic, group: "mailer", id } };
    await assert.rejects(
      hr.api.DELETE("/v1/topics/{topic}/groups/{group}/dead-letters/{id}", { params }),
      /no name and no id/,
    );
  }
  const { data } = await hr.api.GET("/v1/topics/{topic}/groups/{group}", { params: { path: { topic, group: "mailer" } } });
  assert.equal(data?.group, "mailer");
});

test("each of a batch has its own answer", async () => {
  const [good, bad] = await hr.sendMany(topic, [{ body: 1 }, { body: 2, shard: 9 }]);
  assert.ok(good && !(good instanceof HeadraceError));
  assert.ok(bad instanceof HeadraceError && bad.code === "NO_SUCH_SHARD");
  await hr.nack(topic, "mailer", await hr.receive(topic, "mailer"), { dead_letter: true, reason: "a test" });
});

test("a consumer acknowledges what is handled and gives back what is not", async () => {
  const group = "worker";
  const params = { path: { topic, group } };
  const body = { from: "latest", retry: { ladder: [1] } };
  assert.equal((await hr.api.PUT("/v1/topics/{topic}/groups/{group}", { params, body })).error, undefined);
  await hr.sendMany(topic, [{ body: "good" }, { body: "shaky" }]);
  const stop = new AbortController();
  const attempts: [string, number][] = [];
  const handle = async ({ body, attempt }: { body: string; attempt: number }): Promise<void> => {
    attempts.push([body, attempt]);
    if (attempts.length === 3) stop.abort();
    if (body === "shaky" && attempt === 1) throw new Error("not yet");
  };
  await hr.consume<string>(topic, group, handle, { concurrency: 2, wait_seconds: 1, signal: stop.signal, onError: () => {} });
  assert.deepEqual(attempts.sort(), [["good", 1], ["shaky", 1], ["shaky", 2]]);
  const { data } = await hr.api.GET("/v1/topics/{topic}/groups/{group}", { params });
  assert.equal(data?.backlog, 0);
});

const WORKER = `
import { Headrace } from ${JSON.stringify(new URL("./index.js", import.meta.url).href)};
const [topic] = process.argv.slice(1);
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const handle = async ({ body }) => {
  console.log(body);
  await new Promise((resolve) => stop.signal.addEventListener("abort", resolve));
};
await Headrace.fromEnv().consume(topic, "stopped", handle, { prefetch: 5, wait_seconds: 1, signal: stop.signal });
`;

test("a process that gets SIGTERM finishes what has begun, gives back untried what has not, and leaves its group", async () => {
  const path = { topic, group: "stopped" };
  await hr.api.PUT("/v1/topics/{topic}/groups/{group}", { params: { path }, body: { from: "latest" } });
  await hr.sendMany(topic, [{ body: "first" }, { body: "second" }]);
  const worker = spawn(process.execPath, ["--input-type=module", "--eval", WORKER, topic], { stdio: ["ignore", "pipe", "inherit"] });
  const [begun] = (await once(worker.stdout, "data")) as [Buffer];
  worker.kill("SIGTERM");
  assert.deepEqual(await once(worker, "exit"), [0, null]);
  const [left, ...others] = await hr.receive(topic, "stopped", { wait_seconds: 5 });
  assert.deepEqual([`${begun}`.trim(), left?.body, left?.attempt, others].flat().sort(), [1, "first", "second"].sort());
  const { data } = await hr.api.GET("/v1/topics/{topic}/groups/{group}/consumers", { params: { path } });
  assert.deepEqual(data?.items, []);
  await hr.ack(topic, "stopped", [left!]);
});

test("what a service pushes, in each of its forms, reaches a webhook on Node, whose answer settles it", async (t) => {
  const got: PushedMessage[] = [];
  const secret = `whsec_${btoa(crypto.randomUUID().slice(0, 24))}`;
  const webhook = new Webhook(secret, (message) => {
    got.push(message);
    if (message.body === "bad") throw new Bury("no such customer");
  });
  const server = createServer(nodeListener(webhook));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`;
  const groups = ["binary", "structured", "batch"] as const;
  for (const payload of groups) {
    const path = { topic, group: payload, consumer: "hook" };
    await hr.api.PUT("/v1/topics/{topic}/groups/{group}", { params: { path }, body: { from: "latest", payload } });
    const registered = hr.api.PUT("/v1/topics/{topic}/groups/{group}/consumers/{consumer}", { params: { path }, body: { url, secret } });
    assert.equal((await registered).error, undefined);
  }
  const options = { keys: ["order-é"], tag: "paid" };
  const sent = await hr.sendMany(topic, [{ body: { order: 188 }, ...options }, { body: Uint8Array.of(0, 255), ...options }, { body: "bad" }]);
  const [json = "", bytes = "", bad = ""] = sent.map((each) => (each instanceof HeadraceError ? assert.fail(each.message) : each.id));
  const status = async (id: string): Promise<unknown[]> => {
    const { data } = await hr.api.GET("/v1/topics/{topic}/messages/{id}", { params: { path: { topic, id } } });
    return groups.map((group) => data?.deliveries[group]?.status);
  };
  for (const [id, end] of [[json, "SUCCESS"], [bytes, "SUCCESS"], [bad, "DEAD"]] as const) {
    while ((await status(id)).some((each) => each !== end)) await new Promise((resolve) => setTimeout(resolve, 50));
  }
  for (const group of groups) {
    const mine = got.filter((message) => message.group === group);
    const bodies = [json, bytes].map((id) => mine.find((message) => message.id === id));
    assert.deepEqual(bodies.map((message) => new Uint8Array((message?.body as Uint8Array) ?? 0)[1]), [undefined, 255], group);
    const [first] = bodies;
    assert.deepEqual([first?.body, first?.keys, first?.tag, first?.topic, first?.attempt], [{ order: 188 }, ["order-é"], "paid", topic, 1], group);
  }
});

test("in a broadcast each consumer gets each message; in a serial group the messages of a key stay in order", async () => {
  const stop = new AbortController();
  const got: string[] = [];
  const begin = (group: string, mode: "broadcast" | "serial", name: string) => {
    const handle = async ({ body }: { body: string }): Promise<void> => {
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10));
      got.push(`${name} ${body}`);
      if (got.length === 9) stop.abort();
    };
    return hr.consume<string>(topic, group, handle, { mode, from: "latest", tags: ["modes"], concurrency: 4, wait_seconds: 1, signal: stop.signal });
  };
  const ends = [begin("displays", "broadcast", "north"), begin("displays", "broadcast", "south"), begin("ledger", "serial", "ledger")];
  const members = async (group: string): Promise<number> =>
    (await hr.api.GET("/v1/topics/{topic}/groups/{group}/consumers", { params: { path: { topic, group } } })).data?.items.length ?? 0;
  while ((await members("displays")) < 2 || (await members("ledger")) < 1) await new Promise((resolve) => setTimeout(resolve, 20));
  await hr.sendMany(topic, [
    { body: "unwanted", tag: "other" },
    ...["1", "2", "3"].map((body) => ({ body, tag: "modes", ordering_key: "k" })),
  ]);
  await Promise.all(ends);
  for (const name of ["north", "south"]) {
    assert.deepEqual(got.filter((each) => each.startsWith(name)).sort(), ["1", "2", "3"].map((body) => `${name} ${body}`));
  }
  assert.deepEqual(got.filter((each) => each.startsWith("ledger")), ["ledger 1", "ledger 2", "ledger 3"]);
});

const here = new URL("./", import.meta.url);
const example = (name: string, env: NodeJS.ProcessEnv = {}) =>
  spawn(process.execPath, [new URL(`examples/${name}.js`, here).pathname], { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });

test("the README shows the examples, and the one that consumes works", async () => {
  const readme = readFileSync(new URL("../README.md", here), "utf8");
  for (const name of ["consume", "hono", "node"]) {
    assert.ok(readme.includes(`\`\`\`ts\n${readFileSync(new URL(`../src/examples/${name}.ts`, here), "utf8")}\`\`\`\n`), name);
  }
  await hr.api.PUT("/v1/topics/{topic}", { params: { path: { topic: "orders" } }, body: {} });
  const consumer = example("consume");
  const [line] = (await once(consumer.stdout, "data")) as [Buffer];
  assert.match(`${line}`, /^\S+ 188$/m);
  consumer.kill("SIGKILL"); // sooner than its receive ends
});

test("the examples that are pushed to agree to be called", async () => {
  process.env["WEBHOOK_SECRET"] = `whsec_${btoa("s".repeat(24))}`;
  const handshake = { method: "OPTIONS", headers: { "WebHook-Request-Origin": "queue.example" } };
  const { default: app } = await import("./examples/hono.js");
  assert.equal((await app.request("/hooks", handshake)).headers.get("webhook-allowed-origin"), "queue.example");
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address() as AddressInfo;
  free.close();
  const server = example("node", { PORT: String(port) });
  let answer: Response | undefined;
  while (!answer) answer = await fetch(`http://127.0.0.1:${port}`, handshake).catch(() => undefined);
  assert.equal(answer.headers.get("webhook-allowed-origin"), "queue.example");
  server.kill();
});

const REASONS = {
  "may be cut within a character": new Error("x".repeat(504) + "\u{1f600}"), // with "Error: " before it, its first half is the 512th
  "may have no text": Object.create(null),
};
for (const [kind, reason] of Object.entries(REASONS)) {
  test(`a reason ${kind}, and the consumer goes on`, async () => {
    const group = `wordy-${kind.length}`;
    const params = { path: { topic, group } };
    const body = { from: "latest", retry: { ladder: [600] } };
    assert.equal((await hr.api.PUT("/v1/topics/{topic}/groups/{group}", { params, body })).error, undefined);
    const { id } = await hr.send(topic, "x");
    const stop = new AbortController();
    const handle = async (): Promise<void> => {
      stop.abort();
      throw reason;
    };
    await hr.consume(topic, group, handle, { wait_seconds: 1, signal: stop.signal, onError: () => {} });
    const { data } = await hr.api.GET("/v1/topics/{topic}/messages/{id}", { params: { path: { topic, id } } });
    assert.equal(data?.deliveries[group]?.status, "RETRYING");
  });
}

test("a consumer that ends with an error has finished what is at work", async () => {
  const group = "refused";
  const params = { path: { topic, group } };
  const body = { from: "latest" };
  assert.equal((await hr.api.PUT("/v1/topics/{topic}/groups/{group}", { params, body })).error, undefined);
  await hr.sendMany(topic, [{ body: "quick" }, { body: "slow" }]);
  let isRefused = () => {};
  const refusal = new Promise<void>((resolve) => (isRefused = resolve));
  const refuseToSettle = async (request: Request): Promise<Response> => {
    if (!request.url.endsWith("ack")) return fetch(request);
    setImmediate(isRefused);
    return Response.json({ code: "SCOPE_MISSING", status: 403 }, { status: 403 });
  };
  const finished: string[] = [];
  const handle = async ({ body }: { body: string }): Promise<void> => {
    if (body === "slow") await refusal;
    for (let i = 0; i < 9; i++) await new Promise(setImmediate);
    finished.push(body);
  };
  const consumer = Headrace.fromEnv({ fetch: refuseToSettle });
  await assert.rejects(consumer.consume(topic, group, handle, { concurrency: 2, onError: () => {} }), /SCOPE_MISSING/);
  assert.deepEqual(finished, ["quick", "slow"]);
});

const losingAll = async (request: Request): Promise<Response> => {
  await fetch(request);
  throw new TypeError("the connection was cut");
};

test("a transaction whose answer was lost is not prepared twice", async () => {
  const params = { path: { topic } };
  const unlucky = Headrace.fromEnv({ fetch: losingAll, retries: { attempts: 3, baseMs: 1 } });
  const body = { message: { body: "half" } };
  await assert.rejects(unlucky.api.POST("/v1/topics/{topic}/transactions", { params, body }));
  const { data } = await hr.api.GET("/v1/topics/{topic}/transactions", { params });
  assert.equal(data?.items.length, 1);
});

test("what would do more the second time is not sent again", async () => {
  const params = { path: { topic } };
  const { deliver_at } = await hr.send(topic, "postponed", { delay_seconds: 7200, dedup_id: "postponed" });
  const unlucky = Headrace.fromEnv({ fetch: losingAll, retries: { attempts: 3, baseMs: 1 } });
  const body = { postpone_seconds: 60 };
  await assert.rejects(unlucky.api.PATCH("/v1/topics/{topic}/messages", { params, body }));
  const query = { dedup_id: "postponed" };
  const { data } = await hr.api.GET("/v1/topics/{topic}/messages", { params: { ...params, query } });
  assert.equal(Date.parse(data?.items[0]?.deliver_at ?? ""), Date.parse(deliver_at ?? "") + 60_000);
});

test("what waits is sent again by every call, and stored once", async () => {
  const params = { path: { topic } };
  const waiting = async (): Promise<number> =>
    (await hr.api.GET("/v1/topics/{topic}", { params })).data?.stats.delayed ?? 0;
  const before = await waiting();
  const unlucky = Headrace.fromEnv({ fetch: losingAll, retries: { attempts: 3, baseMs: 1 } });
  await assert.rejects(unlucky.send(topic, "late", { delay_seconds: 3600 }));
  const late = { body: "late", delay_seconds: 3600 };
  await assert.rejects(unlucky.api.POST("/v1/topics/{topic}/messages", { params, body: late }));
  const batch = { messages: [late] };
  await assert.rejects(unlucky.api.POST("/v1/topics/{topic}/messages/batch", { params, body: batch }));
  const header = { "headrace-delay-seconds": 3600 };
  await assert.rejects(unlucky.api.POST("/v1/publish/{topic}", { params: { ...params, header }, body: "late" }));
  assert.equal(await waiting(), before + 4);
});

test("a delay is the service's to count, and none is none", async () => {
  assert.equal((await hr.send(topic, "now", { delay_seconds: 0 })).status, "NEW");
  await assert.rejects(
    hr.send(topic, "when", { delay_seconds: 60, deliver_at: "2030-01-01T00:00:00.000Z" }),
    (error) => error instanceof HeadraceError && error.status < 500,
  );
});

const LOSSES: Record<string, () => Response> = {
  "a lost answer": () => {
    throw new TypeError("the connection was cut");
  },
  "half an answer": () =>
    new Response(new ReadableStream({ start: (stream) => stream.error(new TypeError("cut")) }), { status: 201 }),
};
for (const [loss, lose] of Object.entries(LOSSES)) {
  test(`what is sent again after ${loss} is stored once`, async () => {
    let isLost = false;
    const losing = async (request: Request): Promise<Response> => {
      const answer = await fetch(request);
      isLost = !isLost;
      return isLost ? lose() : answer;
    };
    const unlucky = Headrace.fromEnv({ fetch: losing, retries: { baseMs: 1 } });
    assert.equal((await unlucky.send(topic, "once")).duplicate, true);
    assert.equal((await unlucky.send(topic, "later", { delay_seconds: 3600 })).duplicate, true);
  });
}

test("a redirection is an error: followed, it would turn what sends into what reads", async (t) => {
  const proxy = createServer(({ method }, answer) => {
    if (method === "GET") answer.end('{"items": []}');
    else answer.writeHead(301, { Location: "/v1/topics/orders/messages" }).end();
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    proxy.close();
    proxy.closeAllConnections();
  });
  const { port } = proxy.address() as AddressInfo;
  const redirected = Headrace.fromEnv({ url: `http://127.0.0.1:${port}` });
  await assert.rejects(redirected.send(topic, 1), (error) => error instanceof HeadraceError && error.status === 301);
});

test("a call ends when its signal says so, and is not sent again", async () => {
  const stop = new AbortController();
  let calls = 0;
  const hanging = ({ signal }: Request): Promise<Response> => {
    calls++;
    setImmediate(() => stop.abort(new Error("the user left")));
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const slow = Headrace.fromEnv({ fetch: hanging, retries: { baseMs: 1 }, timeoutMs: 200 });
  await assert.rejects(slow.api.GET("/v1/health", { signal: stop.signal }), /the user left/);
  assert.equal(calls, 1);
});

test("a pause ends when the call's signal says so", async () => {
  const stop = new AbortController();
  const busy = async (): Promise<Response> => {
    setImmediate(() => stop.abort(new Error("the user left")));
    return new Response(null, { status: 503, headers: { "Retry-After": "1" } });
  };
  const { api } = Headrace.fromEnv({ fetch: busy, retries: { attempts: 2 } });
  await assert.rejects(api.GET("/v1/health", { signal: stop.signal }), /the user left/);
});

test("a Retry-After is a number of seconds or a date", async () => {
  const now = Date.UTC(2026, 10, 22, 9);
  const asked: [text: string | null, ms: number][] = [
    ["7", 7_000],
    ["9".repeat(5_000), Infinity],
    ["Sun, 22 Nov 2026 09:00:30 GMT", 30_000],
    ["Sunday, 22-Nov-26 09:01:00 GMT", 60_000],
    ["Sun Nov  2 09:00:00 2026", 0],
    ["Sun Nov 22 10:00:00 2026", 3_600_000],
    ["Sun, 22 Nov 2026 08:59:59 GMT", 0],
  ];
  const nonsense = [null, "", "soon", "-5", "7.5", "1e3", "Infinity", "2027-11-22T09:00:30Z", "Sun, 99 Nov 2026 09:00:00 GMT"];
  for (const [text, ms] of [...asked, ...nonsense.map((text) => [text, 0] as const)]) {
    assert.equal(askedWaitMs(text, now), ms, String(text));
  }
  let tries = 0;
  const busy = async (): Promise<Response> => {
    tries++;
    return new Response(null, { status: 503, headers: { "Retry-After": new Date(Date.now() + 3_600_000).toUTCString() } });
  };
  const patient = Headrace.fromEnv({ fetch: busy, retries: { baseMs: 1 } });
  await assert.rejects(patient.send(topic, 1), (error) => error instanceof HeadraceError && error.status === 503);
  assert.equal(tries, 1, "an hour is more than the retries may take in all");
});

test("a clock that is set back between two tries refuses nothing", async (t) => {
  const before = Date.now();
  let tries = 0;
  const settingBack = async (request: Request): Promise<Response> => {
    const answer = await fetch(request);
    if (tries++) return answer;
    t.mock.method(Date, "now", () => before - 10_000);
    throw new TypeError("the connection was cut");
  };
  const unlucky = Headrace.fromEnv({ fetch: settingBack, retries: { baseMs: 1 } });
  assert.equal((await unlucky.send(topic, "set back")).duplicate, true);
});

test("what of a batch is perhaps not stored is sent again with the rest, and all is stored once", async () => {
  const params = { path: { topic } };
  const accepted = async (): Promise<number> =>
    (await hr.api.GET("/v1/topics/{topic}", { params })).data?.stats.accepted ?? 0;
  const before = await accepted();
  let tries = 0;
  const unsure = async (request: Request): Promise<Response> => {
    const answer = await fetch(request);
    if (tries++) return answer;
    const { results } = (await answer.json()) as { results: object[] };
    return Response.json({ results: [results[0], { index: 1, error: { code: "UNAVAILABLE", status: 503, retryable: true } }] });
  };
  const unlucky = Headrace.fromEnv({ fetch: unsure, retries: { baseMs: 1 } });
  const results = await unlucky.sendMany(topic, [{ body: "sure" }, { body: "unsure" }]);
  assert.deepEqual([tries, results.filter((each) => each instanceof HeadraceError)], [2, []]);
  assert.equal(await accepted(), before + 2);
});

test("where nobody answers, the error says so, and why", async () => {
  const nowhere = Headrace.fromEnv({ url: "http://127.0.0.1:9", retries: { attempts: 2, baseMs: 1 } });
  await assert.rejects(nowhere.send(topic, 1), (error) => {
    assert.ok(error instanceof HeadraceError);
    assert.equal(error.code, "NO_ANSWER");
    assert.match(error.detail, /bad port/);
    return true;
  });
});

const STRANGE: [status: number, body: string, code: string, retryable: boolean][] = [
  [200, "<html>You are signed out</html>", "NO_ANSWER", true],
  [400, "null", "UNEXPECTED", false],
  [429, '{"message": "Too Many Requests"}', "UNEXPECTED", true],
  [502, "<html>Bad gateway</html>", "UNEXPECTED", true],
];
for (const [status, body, code, retryable] of STRANGE) {
  test(`an answer ${status} of something in between is an error`, async () => {
    const fetch = async () => new Response(body, { status });
    const between = Headrace.fromEnv({ fetch, retries: { attempts: 2, baseMs: 1 } });
    await assert.rejects(between.send(topic, 1), (error) => {
      assert.ok(error instanceof HeadraceError, String(error));
      assert.deepEqual([error.code, error.retryable], [code, retryable]);
      return true;
    });
  });
}
