import createClient, { type Client } from "openapi-fetch";

import { bodyOf } from "./bodies.js";
import { fromBase64, randomId, toBase64 } from "./bytes.js";
import { type ConsumeOptions, Consumer, type Handler } from "./consumer.js";
import { answerOf, HeadraceError } from "./errors.js";
import type { GiveBack } from "./outcomes.js";
import { type Retries, repeating } from "./repeating.js";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Sent = Schemas["Produced"];
/** A message under a lease. Its body is what the JSON says, or a `Uint8Array` where it is not JSON. */
export type Message<Body = unknown> = Omit<Schemas["ReceivedMessage"], "body" | "body_base64"> & { body: Body };
export type Settled = Schemas["ReceiptResult"];
/** The messages of one receive; `because` says why there is none, `acked` what came of each receipt in `ack`. */
export type Received<Body = unknown> = Message<Body>[] & { because?: Schemas["Because"]; acked?: Settled[] };
/** How a message shall travel: keys, tag, ordering_key, delay_seconds … as in docs/settings.md. */
export type SendOptions = Omit<Schemas["MessageBody"], "body" | "body_base64">;
/** How messages are received. `ack`: messages, or their receipts, to acknowledge first, before any waiting. */
export type ReceiveOptions = Omit<Schemas["ReceiveBody"], "ack"> & { ack?: readonly (Message | string)[]; signal?: AbortSignal };

/** What a schedule of `storeSchedules` has: `topic`, its times, and the message, whose `body` may be bytes. */
export type ScheduleOptions = Omit<Schemas["ScheduleBody"], "app" | "message"> & { message?: { body?: unknown } & Omit<SendOptions, "delay_seconds" | "deliver_at"> };

export interface HeadraceOptions {
  url: string;
  /** The address for receives, if they have one of their own. */
  receiveUrl?: string;
  token: string;
  retries?: Partial<Retries>;
  /** How long one try may take, in milliseconds, beside the `wait_seconds` of a receive: longer than the service can (29 seconds). */
  timeoutMs?: number;
  /** Instead of the global one, as for a proxy. */
  fetch?: (request: Request) => Promise<Response>;
}

/**
 * A Headrace service.
 *
 *     const hr = Headrace.fromEnv(); // HEADRACE_URL, HEADRACE_TOKEN
 *     await hr.send("orders", { order: 188 }, { keys: ["order-188"] });
 *
 * Methods throw `HeadraceError`. `api` has every other call of the interface, typed, as openapi-fetch gives it:
 * `{ data, error }`, and it throws where nobody answers, or something else than Headrace; it names, repeats and waits in the same way.
 * After a lost answer it does not repeat what would be done twice, such as `redrive`, nor what shows a secret only once, such as
 * registering a `url` without a `secret` of your own (`rotate-secret` makes another).
 */
export class Headrace {
  readonly api: Client<paths>;
  readonly #tokenId: string;
  readonly #receiveUrl: string;

  constructor({ url, receiveUrl = "", token, retries = {}, timeoutMs = 35_000, fetch = globalThis.fetch }: HeadraceOptions) {
    this.#receiveUrl = placeOf(receiveUrl || url);
    const { attempts, baseMs = 200, capMs = 10_000, totalMs = 120_000 } = retries;
    this.api = createClient<paths>({
      baseUrl: placeOf(url),
      headers: { Authorization: `Bearer ${tokenOf(token)}` },
      bodySerializer: bodyOf,
      fetch: repeating(fetch, { attempts, baseMs, capMs, totalMs }, timeoutMs),
      redirect: "manual", // followed, a POST becomes a GET, whose answer would pass for a stored message
    });
    this.#tokenId = tokenOf(token).split("_")[1] ?? "";
    this.api.use({ onRequest: ({ params }) => refuseNoNames(params.path) });
  }

  /** The service that HEADRACE_URL and HEADRACE_TOKEN name, and HEADRACE_RECEIVE_URL, if there is an address for receives. */
  static fromEnv(options: Partial<HeadraceOptions> = {}): Headrace {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
    const { HEADRACE_URL: url = "", HEADRACE_RECEIVE_URL = "", HEADRACE_TOKEN: token = "" } = process?.env ?? {};
    const receiveUrl = options.receiveUrl ?? (options.url === undefined ? HEADRACE_RECEIVE_URL : "");
    const place = { url: options.url ?? url, receiveUrl, token: options.token ?? token };
    if (!place.url || !place.token) throw new Error("Set HEADRACE_URL and HEADRACE_TOKEN.");
    return new Headrace({ ...options, ...place });
  }

  /** Send one message; it is durable, and stored once, when this resolves. `body` is anything with a JSON form, or bytes. */
  async send(topic: string, body: unknown, options: SendOptions = {}): Promise<Sent> {
    return answerOf(
      this.api.POST("/v1/topics/{topic}/messages", { params: { path: { topic } }, body: messageOf({ body, ...options }) }),
    );
  }

  /** Send up to 1,000 messages; for each, in order, where it was stored or why not. The whole is sent again while one may still be
   * stored. Rejects where all are refused, or a lost answer leaves unknown what was stored. */
  async sendMany(topic: string, messages: ({ body: unknown } & SendOptions)[]): Promise<(Sent | HeadraceError)[]> {
    if (messages.length === 0) return [];
    const { results } = await answerOf(
      this.api.POST("/v1/topics/{topic}/messages/batch", {
        params: { path: { topic } },
        body: { messages: messages.map(messageOf) },
      }),
    );
    return results.map((each) =>
      each.error ? HeadraceError.of(each.error, each.error.status) : (each as unknown as Sent),
    );
  }

  /** Store a message under a name of yours, or replace the one that waits under it, content and time. The name is free once every group
   * has ended the message. `api` has the list of jobs. */
  async putJob(topic: string, job: string, body: unknown, options: Omit<SendOptions, "dedup_id" | "dedup_until"> = {}): Promise<Sent> {
    const params = { path: { topic, job } };
    return answerOf(this.api.PUT("/v1/topics/{topic}/jobs/{job}", { params, body: messageOf({ body, ...options }) }));
  }

  /** The last message that was stored under this name, as long as it is kept. */
  async getJob(topic: string, job: string): Promise<Schemas["MessageView"]> {
    return answerOf(this.api.GET("/v1/topics/{topic}/jobs/{job}", { params: { path: { topic, job } } }));
  }

  /** Cancel the job of this name that no group has claimed, which frees the name. */
  async deleteJob(topic: string, job: string): Promise<void> {
    const params = { path: { topic, job } };
    const { error, response } = await this.api.DELETE("/v1/topics/{topic}/jobs/{job}", { params });
    if (!response.ok) throw HeadraceError.of(error, response.status);
  }

  /**
   * Claim messages, `max` (10) at most, waiting up to `wait_seconds` (0; at most 20) for the first. Each is ours for its lease. After a
   * lost answer it is sent again under its `receive_id`, and brings the same messages; one of your own finds those of your earlier call.
   * With `max: 0` it only acknowledges. If `signal` aborts, it rejects at once, and gives back, untried, what still comes.
   */
  async receive<Body = unknown>(
    topic: string,
    group: string,
    { signal, ...options }: ReceiveOptions = {},
  ): Promise<Received<Body>> {
    signal?.throwIfAborted();
    const work = this.#receive<Body>(topic, group, options);
    if (!signal) return work;
    let stop = (): void => {};
    const stopped = new Promise<never>((_, reject) => {
      stop = (): void => {
        reject(signal.reason);
        work.then((late) => this.nack(topic, group, late, { untried: true })).catch(() => {}); // else they come again when the lease ends
      };
    });
    signal.addEventListener("abort", stop);
    return Promise.race([work, stopped]).finally(() => signal.removeEventListener("abort", stop));
  }

  async #receive<Body>(topic: string, group: string, { ack = [], ...options }: ReceiveOptions): Promise<Received<Body>> {
    const receipts = ack.map((each) => (typeof each === "string" ? each : each.receipt));
    const { messages, ...rest } = await answerOf(
      this.api.POST("/v1/topics/{topic}/groups/{group}/receive", {
        baseUrl: this.#receiveUrl,
        params: { path: { topic, group } },
        body: { ...options, receive_id: options.receive_id ?? randomId(), ...(receipts.length > 0 && { ack: receipts }) },
        headers: options.receive_id ? {} : { "Headrace-Resend": "0" },
      }),
    );
    return Object.assign(messages.map(messageFrom) as Message<Body>[], rest);
  }

  /**
   * Handle the messages of a group until `signal` aborts. A handler that resolves acknowledges its message; one that rejects gives it
   * back, to be tried again by its ladder; `Retry` and `Bury` say more. Leases are renewed while handlers run. Outages, restarts and a
   * topic or group that is deleted and created again are waited out. Rejects where waiting does not help: for a topic that does not
   * exist, a token that may not consume, a group with another mode or filter, or CONSUMER_TAKEN_OVER by a later process.
   */
  async consume<Body = unknown>(topic: string, group: string, handler: Handler<Body>, options: ConsumeOptions = {}): Promise<void> {
    await new Consumer<Body>(this, topic, group, handler, options).run();
  }

  /**
   * Store the schedules of an application, by name, and delete those that it had before and has no more: of the same `app` and token
   * alone. For its start, or a step of its deployment.
   */
  async storeSchedules(app: string, schedules: Record<string, ScheduleOptions>): Promise<void> {
    for (const [schedule, { message = {}, ...options }] of Object.entries(schedules)) {
      const body = { ...options, app, message: messageOf({ body: null, ...message }) };
      await answerOf(this.api.PUT("/v1/schedules/{schedule}", { params: { path: { schedule } }, body }));
    }
    for (let page = {}; ; ) {
      const query = { limit: 200, ...page };
      const { items, next_page_token } = await answerOf(this.api.GET("/v1/schedules", { params: { query } }));
      const old = items.filter((each) => each.app === app && each.made_by === this.#tokenId && !(each.name in schedules));
      for (const { name } of old) await this.api.DELETE("/v1/schedules/{schedule}", { params: { path: { schedule: name } } });
      if (!next_page_token) return;
      page = { page_token: next_page_token };
    }
  }

  /** Record success; what came of each receipt. The whole is sent again while the outcome of one is open; if it stays so, it has a retryable error. */
  async ack(topic: string, group: string, messages: readonly Message[]): Promise<Settled[]> {
    return this.#settle("ack", topic, group, messages);
  }

  /**
   * Give messages back: for another attempt by their ladder or after `delay_seconds` (0: at once), or as dead letters.
   * With `untried` no attempt is counted.
   */
  async nack(topic: string, group: string, messages: readonly Message[], how: GiveBack = {}): Promise<Settled[]> {
    return this.#settle("nack", topic, group, messages, how);
  }

  /** Give leases more time: `leaseSeconds` from now. */
  async extend(topic: string, group: string, messages: readonly Message[], leaseSeconds: number): Promise<Settled[]> {
    return this.#settle("extend", topic, group, messages, { lease_seconds: leaseSeconds });
  }

  async #settle(call: "ack" | "nack" | "extend", topic: string, group: string, messages: readonly Message[], how = {}): Promise<Settled[]> {
    if (messages.length === 0) return [];
    const body = { receipts: messages.map(({ receipt }) => receipt), ...how } as Schemas["AckBody"] & Schemas["NackBody"] & Schemas["ExtendBody"];
    const params = { path: { topic, group } };
    return (await answerOf(this.api.POST(`/v1/topics/{topic}/groups/{group}/${call}`, { params, body }))).results;
  }
}

/** Where a service is; paths say /v1 themselves. TypeError for what is no such place, or has what no call can keep. */
function placeOf(url: string): string {
  const place = URL.canParse(url) ? new URL(url) : undefined;
  if (!place || !/^https?:$/.test(place.protocol) || place.username || place.password || place.search || place.hash) {
    throw new TypeError("Give the service's URL (HEADRACE_URL), as in https://…, without a password, `?` or `#`.");
  }
  return place.origin + place.pathname.replace(/\/+(v1\/*)?$/, "");
}

/** TypeError for what is no token, here and without its text: that of a header that cannot be sent would tell it. */
function tokenOf(text: string): string {
  const token = String(text).trim();
  if (/^hr_[\w-]+$/.test(token)) return token;
  throw new TypeError("Give a token (HEADRACE_TOKEN), hr_… as it was printed by `make run` or `make token`, without `Bearer`.");
}

/** A message as the interface wants it. */
function messageOf({ body, ...message }: { body: unknown } & SendOptions): Schemas["MessageBody"] {
  if (!(body instanceof Uint8Array)) return { body, ...message };
  return { ...message, content_type: message.content_type ?? "application/octet-stream", body_base64: toBase64(body) };
}

function messageFrom({ body_base64: base64, body, ...message }: Schemas["ReceivedMessage"]): Message {
  return { ...message, body: base64 === undefined ? body : fromBase64(base64) };
}

/** "", "." and ".." fall out of a URL, with what stands before them: the call would be about something else. */
function refuseNoNames(parts: Record<string, unknown> = {}): void {
  for (const [name, value] of Object.entries(parts)) {
    if (["", ".", ".."].includes(String(value))) throw new TypeError(`${name}: "${value}" is no name and no id.`);
  }
}
