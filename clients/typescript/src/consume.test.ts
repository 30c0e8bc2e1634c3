/** What a consumer asks for, and what it makes of its handler's end. No service is needed, and time passes only where a test says so. */
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import { Bury, type ConsumeOptions, Headrace, HeadraceError, type HeadraceOptions, type Message, Retry } from "./index.js";

const clientOf = (options: Partial<HeadraceOptions>): Headrace =>
  new Headrace({ url: "http://127.0.0.1:8700", token: "hr_test", ...options });

type Body = Record<string, unknown> & { receipts?: string[] };
type Answering = (body: Body) => object | Promise<object>;
const ok = ({ receipts = [] }: Body) => ({ results: receipts.map((receipt) => ({ receipt, ok: true })) });
const problem = (status: number, code: string) =>
  Response.json({ code, status, retryable: status >= 500, detail: "" }, { status });
const refused = (): never => {
  throw new TypeError("connection refused");
};

/** A service as far as a consumer calls it. A test puts messages in, and gives answers of its own by the call's name. */
class Service {
  readonly calls: [name: string, body: Body][] = [];
  messages: string[] = [];
  group: object | undefined = { mode: "queue", filter: "*", lease_seconds: null };
  answers: Record<string, Answering> = {};
  readonly #own: Record<string, Answering> = {
    "GET orders": () => ({ lease_seconds: 30 }),
    "GET mailer": () => this.group ?? problem(404, "GROUP_NOT_FOUND"),
    "PUT mailer": (body) => (this.group = { mode: "queue", filter: "*", lease_seconds: null, ...body }),
    "POST receive": ({ max }) => ({ messages: this.messages.splice(0, Number(max)).map((id) => ({ id, receipt: id, body: id })) }),
    "POST ack": ok,
    "POST nack": ok,
    "POST extend": ok,
  };

  readonly fetch = async (request: Request): Promise<Response> => {
    const path = new URL(request.url).pathname.split("/");
    const name = `${request.method} ${path.at(-2) === "consumers" ? "consumer" : path.at(-1)}`;
    const body = JSON.parse((await request.text()) || "{}") as Body;
    this.calls.push([name, body]);
    const answer = await (this.answers[name] ?? this.answers["*"] ?? this.#own[name] ?? (() => ({})))(body);
    return answer instanceof Response ? answer : Response.json(answer);
  };

  /** The bodies of the calls of this name. */
  of(name: string): Body[] {
    return this.calls.filter(([each]) => each === name).map(([, body]) => body);
  }
}

interface Run {
  end: Promise<void>;
  stop: () => void;
  events: [event: string, ids: string[]][];
  /** Lets time pass until this is so; without it, until the consumer has ended. */
  until: (isSo?: () => boolean, stepMs?: number) => Promise<void>;
}

/** A consumer of the service, in a time of its own. */
function run(t: TestContext, service: Service, handler: (message: Message<string>) => unknown, options: ConsumeOptions = {}): Run {
  let ms = 0;
  t.mock.timers.enable({ apis: ["setTimeout"] });
  t.mock.method(performance, "now", () => ms);
  t.mock.method(Date, "now", () => ms);
  const stop = new AbortController();
  const events: Run["events"] = [];
  let isOver = false;
  const hr = clientOf({ fetch: service.fetch, retries: { attempts: 1 } });
  const end = hr.consume<string>("orders", "mailer", handler, {
    signal: stop.signal,
    onError: (error, messages) => events.push([error instanceof HeadraceError ? error.code : String(error), messages.map(({ id }) => id)]),
    onRecover: () => events.push(["works", []]),
    ...options,
  });
  void end.catch(() => {}).finally(() => (isOver = true));
  const until = async (isSo = () => isOver, stepMs = 250): Promise<void> => {
    for (let steps = 0; steps < 5_000; steps++) {
      for (let turns = 0; turns < 4; turns++) await new Promise(setImmediate);
      if (isSo()) return;
      ms += stepMs;
      t.mock.timers.tick(stepMs);
    }
    assert.fail(`waited for too long; ${JSON.stringify(events)}`);
  };
  return { end, stop: () => stop.abort(), events, until };
}
const hours = (count: number) => count * 3_600_000;

const OUTAGES: [kind: string, begins: "first" | "later", fail: Answering, code: string][] = [
  ["refused connections", "first", refused, "NO_ANSWER"],
  ["refused connections", "later", refused, "NO_ANSWER"],
  ["503", "first", () => problem(503, "UNAVAILABLE"), "UNAVAILABLE"],
  ["a proxy's page", "later", () => new Response("<html>Bad gateway</html>", { status: 502 }), "UNEXPECTED"],
];
for (const [kind, begins, fail, code] of OUTAGES) {
  test(`a consumer waits out an hour of ${kind} that comes ${begins}`, async (t) => {
    const service = new Service();
    service.messages = ["a"];
    const outage = (): void => void (service.answers["*"] = fail);
    if (begins === "first") outage();
    const handled: string[] = [];
    const consumer = run(t, service, ({ body }) => handled.push(body));
    if (begins === "later") {
      await consumer.until(() => service.of("POST ack").length === 1);
      outage();
    }
    const before = service.calls.length;
    const start = performance.now();
    await consumer.until(() => performance.now() > start + hours(1), 5000);
    const calls = service.calls.length - before;
    assert.ok(calls > 100 && calls < 1200, `${calls} calls in an hour: its pauses grow to some seconds`);
    service.answers = {};
    service.messages.push("b");
    await consumer.until(() => service.of("POST ack").some(({ receipts }) => receipts?.includes("b")) && consumer.events.length > 1);
    consumer.stop();
    await consumer.until();
    await consumer.end;
    assert.deepEqual(handled, ["a", "b"]);
    assert.deepEqual(consumer.events, [[code, []], ["works", []]]);
  });
}

test("a lease is renewed for as long as its handler runs, and a consumer that receives nothing meanwhile stays online", async (t) => {
  const service = new Service();
  service.messages = ["long"];
  let finish = (): void => {};
  const consumer = run(t, service, () => new Promise<void>((resolve) => (finish = resolve)), { prefetch: 0 });
  await consumer.until(() => performance.now() > 100_000);
  finish();
  await consumer.until(() => service.of("POST ack").length === 1);
  const [first, ...others] = service.of("POST extend");
  assert.deepEqual(first, { receipts: ["long"], lease_seconds: 30 });
  assert.equal(others.length, 5);
  assert.ok(service.of("POST heartbeat").length >= 5);
  consumer.stop();
  await consumer.until();
});

test("a message whose lease was lost is not settled, and its handler keeps its place", async (t) => {
  const service = new Service();
  service.messages = ["lost", "next"];
  service.answers["POST extend"] = ({ receipts = [] }) => ({
    results: receipts.map((receipt) => (receipt === "lost" ? { receipt, error: { code: "RECEIPT_STALE", retryable: false } } : { receipt, ok: true })),
  });
  let finish = (): void => {};
  const began: string[] = [];
  const consumer = run(t, service, ({ body }) => {
    began.push(body);
    return body === "lost" && new Promise<void>((resolve) => (finish = resolve));
  }, { prefetch: 1 });
  await consumer.until(() => service.of("POST extend").length === 2);
  assert.deepEqual(began, ["lost"]);
  finish();
  await consumer.until(() => service.of("POST ack").length === 1);
  consumer.stop();
  await consumer.until();
  assert.deepEqual([service.of("POST ack"), service.of("POST nack")], [[{ receipts: ["next"] }], []]);
});

test("a message whose lease has ended while it waited is not handled", async (t) => {
  const service = new Service();
  service.messages = ["long", "waits"];
  let finish = (): void => {};
  const began: string[] = [];
  const consumer = run(t, service, ({ body }) => {
    began.push(body);
    return new Promise<void>((resolve) => (finish = resolve));
  }, { prefetch: 1 });
  await consumer.until(() => began.length === 1);
  service.answers["*"] = refused;
  await consumer.until(() => performance.now() > 60_000);
  finish();
  service.answers = {};
  await consumer.until(() => consumer.events.some(([event]) => event === "works"));
  consumer.stop();
  await consumer.until();
  assert.deepEqual(began, ["long"], "another consumer may have it");
});

test("a consumer receives many messages with few calls", async (t) => {
  const service = new Service();
  service.messages = Array.from({ length: 40 }, (_, index) => String(index));
  const consumer = run(t, service, () => new Promise((resolve) => setTimeout(resolve, 500)), { prefetch: 10 });
  await consumer.until(() => service.messages.length === 0);
  assert.ok(service.of("POST receive").every(({ max }) => Number(max) > 5), service.of("POST receive").map(({ max }) => max).join());
  consumer.stop();
  await consumer.until();
});

test("a consumer that stops finishes what has begun, and gives back untried what has not, also what it still receives", async (t) => {
  const service = new Service();
  service.messages = ["begun", "waits"];
  let finish = (): void => {};
  const began: string[] = [];
  const consumer = run(t, service, ({ body }) => {
    began.push(body);
    return new Promise<void>((resolve) => (finish = resolve));
  }, { prefetch: 3 });
  let arrive = (): void => {};
  await consumer.until(() => began.length === 1);
  const before = service.of("POST receive").length;
  service.answers["POST receive"] = () =>
    new Promise((resolve) => (arrive = () => resolve({ messages: [{ id: "late", receipt: "late", body: "late" }] })));
  await consumer.until(() => service.of("POST receive").length > before);
  consumer.stop();
  await consumer.until(() => service.of("POST nack").length === 1);
  arrive();
  await consumer.until(() => service.of("POST nack").length === 2);
  finish();
  await consumer.until();
  assert.deepEqual(began, ["begun"]);
  assert.deepEqual(service.of("POST nack"), ["waits", "late"].map((receipt) => ({ receipts: [receipt], untried: true })));
  assert.deepEqual(service.calls.slice(-2).map(([name]) => name), ["POST ack", "DELETE consumer"]);
});

test("a consumer that stops ends within its limit, and gives back what its handler still has", async (t) => {
  const service = new Service();
  service.messages = ["stuck"];
  const consumer = run(t, service, () => new Promise(() => {}), { drainSeconds: 5 });
  await consumer.until(() => service.of("POST receive").length > 0);
  const start = performance.now();
  consumer.stop();
  await consumer.until();
  await consumer.end;
  assert.ok(performance.now() - start <= 5000);
  assert.deepEqual(service.of("POST nack"), [{ receipts: ["stuck"], delay_seconds: 0, reason: "The consumer ended before its handler." }]);
  assert.deepEqual(consumer.events.map(([, ids]) => ids), [["stuck"]]);
  assert.equal(service.calls.at(-1)?.[0], "DELETE consumer");
});

test("a consumer that stops ends within its limit, though the service does not answer", async (t) => {
  const service = new Service();
  service.messages = ["waits", "stuck"];
  let isBegun = false;
  const consumer = run(t, service, () => new Promise(() => (isBegun = true)), { drainSeconds: 5, prefetch: 1 });
  await consumer.until(() => isBegun);
  service.answers["*"] = refused;
  const start = performance.now();
  consumer.stop();
  await consumer.until();
  await consumer.end;
  assert.ok(performance.now() - start <= 5250);
  assert.deepEqual(consumer.events.at(-1)?.[1], ["waits", "stuck"], "they come again when their leases end");
});

test("a group or topic that is deleted is created again, and begins where the consumer was", async (t) => {
  const service = new Service();
  service.group = undefined;
  const consumer = run(t, service, () => {}, { tags: ["paid"], mode: "serial" });
  await consumer.until(() => performance.now() > hours(0.1), 5000);
  const created = { from: "earliest", mode: "serial", filter: "paid" };
  assert.deepEqual(service.of("PUT mailer"), [created]);
  service.group = undefined;
  service.answers["POST receive"] = () => (service.group ? { messages: [] } : problem(404, "GROUP_NOT_FOUND"));
  await consumer.until(() => service.of("PUT mailer").length === 2);
  const { from } = service.of("PUT mailer")[1] ?? {};
  assert.equal(Math.round((Date.now() - Date.parse(String(from))) / 60_000), 10, "with a margin for clocks; not at its beginning");
  service.answers["*"] = () => problem(404, "TOPIC_NOT_FOUND");
  service.answers["POST receive"] = service.answers["*"];
  const start = performance.now();
  await consumer.until(() => performance.now() > start + hours(0.1), 5000);
  service.answers = {};
  service.messages = ["new"];
  await consumer.until(() => service.of("POST ack").length === 1);
  assert.deepEqual(consumer.events.map(([event]) => event), ["GROUP_NOT_FOUND", "works", "TOPIC_NOT_FOUND", "works"]);
  consumer.stop();
  await consumer.until();
});

test("as many messages wait as a second's work, and none for longer than ten seconds", async (t) => {
  const service = new Service();
  service.messages = ["quick", ...Array.from({ length: 600 }, (_, index) => String(index))];
  const consumer = run(t, service, ({ body }) => body !== "quick" && new Promise(() => {}), { drainSeconds: 1 });
  await consumer.until(() => service.of("POST nack").length > 0);
  assert.deepEqual(service.of("POST receive").slice(0, 2).map(({ max }) => max), [1, 501]);
  assert.equal(service.of("POST nack")[0]?.receipts?.length, 500);
  assert.equal(service.of("POST nack")[0]?.["untried"], true);
  consumer.stop();
  await consumer.until();
});

test("a consumer does not begin where its topic is missing, or its group has another mode or filter", async (t) => {
  const service = new Service();
  const ending = async (options: ConsumeOptions): Promise<void> => run(t, service, () => {}, options).end;
  service.group = { mode: "serial", filter: "paid || refunded", lease_seconds: null };
  await assert.rejects(ending({ mode: "queue" }), /is serial, not queue/);
  t.mock.reset();
  await assert.rejects(ending({ tags: ["paid"] }), /"paid \|\| refunded".*wants "paid".*hr\.api\.PUT\(.*filter: "paid"/s);
  t.mock.reset();
  service.answers = { "GET mailer": () => problem(404, "GROUP_NOT_FOUND"), "PUT mailer": () => problem(403, "SCOPE_MISSING") };
  await assert.rejects(ending({}), /GROUP_NOT_FOUND/, "it may not be created with this token");
  t.mock.reset();
  service.answers = { "POST receive": () => problem(403, "SCOPE_MISSING") };
  await assert.rejects(ending({ tags: ["refunded", "paid"] }), /SCOPE_MISSING/);
  t.mock.reset();
  service.answers["GET mailer"] = () => problem(404, "TOPIC_NOT_FOUND");
  await assert.rejects(ending({}), /TOPIC_NOT_FOUND/);
});

test("a name that the client made ends with its process; a name that was given is taken over by a later process", async (t) => {
  const service = new Service();
  const anonymous = run(t, service, () => {});
  await anonymous.until(() => service.of("POST receive").length === 1);
  const [registration] = service.of("PUT consumer");
  const [receive] = service.of("POST receive");
  assert.equal(registration?.["expires_after_seconds"], 3600);
  assert.equal(registration?.["instance"], receive?.["instance"]);
  assert.match(String(receive?.["consumer"]), /^[A-Za-z0-9][A-Za-z0-9.-]{5,127}$/);
  anonymous.stop();
  await anonymous.until();
  assert.equal(service.of("DELETE consumer").length, 1);
  t.mock.reset();
  const named = run(t, service, () => {}, { consumer: "shelf-1" });
  await named.until(() => service.of("PUT consumer").length === 2);
  assert.deepEqual(Object.keys(service.of("PUT consumer")[1] ?? {}), ["instance"]);
  service.answers["POST receive"] = () => problem(409, "CONSUMER_TAKEN_OVER");
  await named.until();
  await assert.rejects(named.end, { code: "CONSUMER_TAKEN_OVER" });
  assert.equal(service.of("DELETE consumer").length, 1, "it is the other process's now");
});

test("a consumer with a name keeps its place in a broadcast; one that was removed registers again", async (t) => {
  const service = new Service();
  service.group = { mode: "broadcast", filter: "*", lease_seconds: 60 };
  const consumer = run(t, service, () => {}, { consumer: "shelf-1" });
  await consumer.until(() => service.of("POST receive").length === 1);
  service.answers["POST receive"] = () => problem(404, "CONSUMER_NOT_FOUND");
  await consumer.until(() => service.of("PUT consumer").length === 2);
  service.answers = {};
  await consumer.until(() => consumer.events.length === 2);
  consumer.stop();
  await consumer.until();
  assert.deepEqual(service.of("DELETE consumer"), []);
});

test("what a handler throws says what becomes of its message", async (t) => {
  const service = new Service();
  const ends: Record<string, unknown> = {
    done: undefined,
    error: new RangeError("no stock"),
    bury: new Bury("no such customer"),
    retry: new Retry(600.5, "busy"),
    ladder: new Retry(),
  };
  service.messages = Object.keys(ends);
  const consumer = run(t, service, ({ body }) => {
    if (ends[body]) throw ends[body];
  }, { concurrency: 9 });
  await consumer.until(() => service.of("POST nack").length === 4);
  consumer.stop();
  await consumer.until();
  assert.deepEqual(service.of("POST ack"), [{ receipts: ["done"] }]);
  assert.deepEqual(service.of("POST nack"), [
    { receipts: ["error"], reason: "RangeError: no stock" },
    { receipts: ["bury"], dead_letter: true, reason: "no such customer" },
    { receipts: ["retry"], delay_seconds: 601, reason: "busy" },
    { receipts: ["ladder"] },
  ]);
  assert.deepEqual(consumer.events, [["RangeError: no stock", ["error"]]], "decisions are no errors");
  assert.throws(() => new Retry(NaN), RangeError);
});

const WORDLESS: Record<string, unknown> = {
  "an error whose message is no text": Object.assign(new Error(), { message: Object.create(null) }),
  "an error that throws when it is read": Object.assign(new Error(), {
    toString: () => {
      throw new Error("no text");
    },
  }),
  "an object that throws when it is written": {
    toJSON: () => {
      throw new Error("no form");
    },
  },
};
for (const [kind, reason] of Object.entries(WORDLESS)) {
  test(`a handler that rejects with ${kind} gives its message back, and the consumer goes on`, async (t) => {
    t.mock.method(console, "error", () => {});
    const service = new Service();
    service.messages = ["m"];
    const onError = (): never => {
      throw new Error("a log that fails stops no consumer");
    };
    const consumer = run(t, service, () => Promise.reject(reason), { onError });
    await consumer.until(() => service.of("POST nack").length === 1);
    consumer.stop();
    await consumer.until();
    assert.deepEqual(service.of("POST nack"), [{ receipts: ["m"], reason: "(an error without text)" }]);
  });
}

for (const call of ["POST ack", "POST nack"]) {
  test(`${call} is tried again for as long as the lease lasts, and the message is not handled again`, async (t) => {
    const warned = t.mock.method(process, "emitWarning", () => {});
    const service = new Service();
    service.messages = ["b", ...Array.from({ length: 12 }, (_, index) => `a${index}`)];
    let handled = 0;
    const handle = (): void => {
      handled++;
      if (call === "POST nack") throw new Error("no stock");
    };
    const busy = ({ receipts = [] }: Body) => ({
      results: receipts.map((receipt) =>
        receipt.startsWith("a") ? { receipt, error: { code: "UNAVAILABLE", status: 503, retryable: true } } : { receipt, ok: true },
      ),
    });
    service.answers[call] = busy;
    const consumer = run(t, service, handle, { concurrency: 13 });
    await consumer.until(() => service.of(call).length === 4);
    service.answers = {};
    await consumer.until(() => service.of(call).length === 5);
    service.answers[call] = busy;
    service.messages = ["a"];
    await consumer.until(() => consumer.events.some(([event, ids]) => event === "UNAVAILABLE" && ids.includes("a")));
    consumer.stop();
    await consumer.until();
    assert.deepEqual([handled, warned.mock.callCount()], [14, 0], "many waits are no leak");
    assert.equal(service.of(call).filter(({ receipts }) => receipts?.includes("b")).length, 1);
  });
}

test("acks of handlers that end together go in one call", async (t) => {
  const service = new Service();
  service.messages = Array.from({ length: 20 }, (_, index) => String(index));
  const consumer = run(t, service, () => {}, { concurrency: 20 });
  await consumer.until(() => service.of("POST ack").flatMap(({ receipts }) => receipts).length === 20);
  assert.ok(service.of("POST ack").length <= 2, `${service.of("POST ack").length} calls`);
  consumer.stop();
  await consumer.until();
});

test("a consumer rests between receives that bring nothing at once, and options that are undefined are none", async (t) => {
  const service = new Service();
  const options = { wait_seconds: undefined, concurrency: undefined, consumer: undefined, tags: undefined } as object;
  const consumer = run(t, service, () => {}, options);
  await consumer.until(() => performance.now() > 60_000);
  const receives = service.of("POST receive");
  assert.ok(receives.length < 80, `${receives.length}`);
  assert.deepEqual(["wait_seconds", "max", "lease_seconds"].map((name) => receives[0]?.[name]), [10, 1, 30]);
  consumer.stop();
  await consumer.until();
  for (const concurrency of [0, -1, NaN, 1.5]) {
    await assert.rejects(clientOf({}).consume("orders", "mailer", () => {}, { concurrency }), RangeError);
  }
});

test("a receive whose answer is lost is sent again under its id, and says so; the next one has another id", async () => {
  const asked: [id: unknown, resend: string | null][] = [];
  const losing = async (request: Request): Promise<Response> => {
    asked.push([((await request.json()) as { receive_id?: string }).receive_id, request.headers.get("Headrace-Resend")]);
    if (asked.length === 1) throw new TypeError("the connection was cut");
    return Response.json({ messages: [], because: "empty" });
  };
  const hr = clientOf({ fetch: losing, retries: { baseMs: 1 } });
  assert.equal((await hr.receive("orders", "mailer")).because, "empty");
  await hr.receive("orders", "mailer");
  await hr.receive("orders", "mailer", { receive_id: "mine" });
  const ids = asked.map(([id]) => id);
  assert.deepEqual(asked.map(([, resend]) => resend), ["0", "1", "0", null]);
  assert.ok(ids[0] === ids[1] && ids[1] !== ids[2] && String(ids[0]).length === 22 && ids[3] === "mine", `${ids}`);
});

test("a receive acknowledges in the same call, and says what came of it", async () => {
  const service = new Service();
  service.answers["POST receive"] = ({ ack }) => ({
    messages: [{ id: "m", receipt: "r", body_base64: "AP8=" }],
    acked: (ack as string[]).map((receipt) => ({ receipt, ok: true })),
  });
  const [message, ...others] = await clientOf({ fetch: service.fetch }).receive("orders", "mailer", { ack: ["q"], max: 1 });
  const { acked } = await clientOf({ fetch: service.fetch }).receive("orders", "mailer", { ack: [message!], max: 0 });
  assert.deepEqual([message?.body, others, acked], [Uint8Array.of(0, 255), [], [{ receipt: "r", ok: true }]]);
});

test("a receive that is aborted rejects at once, and gives back what still comes", async () => {
  const service = new Service();
  let arrive = (): void => {};
  const asked = new Promise<void>((resolve) => {
    service.answers["POST receive"] = () => {
      resolve();
      return new Promise((resolve) => (arrive = () => resolve({ messages: [{ id: "m", receipt: "late", body: 1 }] })));
    };
  });
  const returned = new Promise<Body>((resolve) => (service.answers["POST nack"] = (body) => (resolve(body), ok(body))));
  const stop = new AbortController();
  const work = clientOf({ fetch: service.fetch }).receive("orders", "mailer", { wait_seconds: 20, signal: stop.signal });
  await asked;
  stop.abort(new Error("the user left"));
  await assert.rejects(work, /the user left/);
  arrive();
  assert.deepEqual(await returned, { receipts: ["late"], untried: true });
});

test("nothing is settled, and nothing sent, where there is nothing: no call is made", async () => {
  const hr = clientOf({ fetch: () => assert.fail("a call was made") });
  assert.deepEqual(await hr.ack("orders", "mailer", []), []);
  assert.deepEqual(await hr.nack("orders", "mailer", []), []);
  assert.deepEqual(await hr.sendMany("orders", []), []);
  await hr.consume("orders", "mailer", () => assert.fail("it was stopped"), { signal: AbortSignal.abort() });
});
