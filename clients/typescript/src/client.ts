import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";

import createClient, { type Client } from "openapi-fetch";

import { bodyOf } from "./bodies.js";
import { HeadraceError } from "./errors.js";
import { type Retries, repeating } from "./repeating.js";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Sent = Schemas["Produced"];
export type Message<Body = unknown> = Omit<Schemas["ReceivedMessage"], "body"> & { body: Body };
export type Settled = Schemas["ReceiptResult"];
/** How a message shall travel: keys, tag, ordering_key, delay_seconds … as in docs/settings.md. */
export type SendOptions = Omit<Schemas["MessageBody"], "body" | "body_base64">;

/** How messages are received: `wait_seconds` (20), `lease_seconds`, `consumer`; how many at a time; until when. */
export type ConsumeOptions = Omit<Schemas["ReceiveBody"], "max" | "receive_id"> & { concurrency?: number; signal?: AbortSignal };

const LONGEST_REST_MS = 1000;

export interface HeadraceOptions {
  url: string;
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

  constructor({ url, token, retries = {}, timeoutMs = 35_000, fetch = globalThis.fetch }: HeadraceOptions) {
    const { attempts = 5, baseMs = 200, capMs = 10_000, totalMs = 120_000 } = retries;
    this.api = createClient<paths>({
      baseUrl: placeOf(url),
      headers: { Authorization: `Bearer ${tokenOf(token)}` },
      bodySerializer: bodyOf,
      fetch: repeating(fetch, { attempts, baseMs, capMs, totalMs }, timeoutMs),
      redirect: "manual", // followed, a POST becomes a GET, whose answer would pass for a stored message
    });
    this.api.use({ onRequest: ({ params }) => refuseNoNames(params.path) });
  }

  /** The service that HEADRACE_URL and HEADRACE_TOKEN name. */
  static fromEnv(options: Partial<HeadraceOptions> = {}): Headrace {
    const { HEADRACE_URL: url = "", HEADRACE_TOKEN: token = "" } = process.env;
    const place = { url: options.url ?? url, token: options.token ?? token };
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

  /**
   * Claim messages, `max` (10) at most, waiting up to `wait_seconds` (0; at most 20) for the first. Each is ours for its lease. After a
   * lost answer it is sent again under its `receive_id`, and brings the same messages; one of your own finds those of your earlier call.
   */
  async receive<Body = unknown>(
    topic: string,
    group: string,
    options: Schemas["ReceiveBody"] = {},
  ): Promise<Message<Body>[]> {
    const { messages } = await answerOf(
      this.api.POST("/v1/topics/{topic}/groups/{group}/receive", {
        params: { path: { topic, group } },
        body: { ...options, receive_id: options.receive_id ?? randomId() },
        headers: options.receive_id ? {} : { "Headrace-Resend": "0" },
      }),
    );
    return messages as Message<Body>[];
  }

  /**
   * Handle messages, `concurrency` (1) at a time, until `signal` says stop; then what is at work is finished, also what the receive that
   * still waits brings (for `wait_seconds`: a process that must end sooner says less). A handler that
   * resolves acknowledges its message; one that rejects gives it back, to be tried again by the ladder. Leases are not
   * renewed: give `lease_seconds` that a handler stays within. With a short `wait_seconds` it rests, up to a second, while nothing
   * comes. Rejects where a call, or one message's settlement, fails for longer than `retries` allow, when what is at work is
   * finished.
   */
  async consume<Body = unknown>(
    topic: string,
    group: string,
    handler: (message: Message<Body>) => Promise<unknown>,
    { concurrency = 1, wait_seconds = 20, signal, ...options }: ConsumeOptions = {},
  ): Promise<void> {
    const settle = async (message: Message<Body>): Promise<Settled[]> => {
      try {
        await handler(message);
      } catch (error) {
        return this.nack(topic, group, [message], { reason: reasonOf(error) });
      }
      return this.ack(topic, group, message);
    };
    const handle = async (message: Message<Body>): Promise<void> => {
      for (const { error } of await settle(message)) if (error?.retryable) throw HeadraceError.of(error, error.status);
    };
    let restMs = 0;
    while (!signal?.aborted) {
      const start = performance.now();
      const messages = await this.receive<Body>(topic, group, { ...options, wait_seconds, max: concurrency });
      const ends = await Promise.allSettled(messages.map(handle));
      for (const end of ends) if (end.status === "rejected") throw end.reason;
      restMs = messages.length > 0 ? 0 : Math.min(LONGEST_REST_MS, restMs * 2 + 50);
      const restLeft = start + restMs - performance.now();
      if (restLeft > 0) await sleep(restLeft, undefined, { signal }).catch(() => {}); // cut short by the signal
    }
  }

  /** Record success; what came of each receipt. The whole is sent again while the outcome of one is open; if it stays so, it has a retryable error. */
  async ack(topic: string, group: string, ...messages: Message<unknown>[]): Promise<Settled[]> {
    if (messages.length === 0) return [];
    const body = { receipts: messages.map((message) => message.receipt) };
    const { results } = await answerOf(
      this.api.POST("/v1/topics/{topic}/groups/{group}/ack", { params: { path: { topic, group } }, body }),
    );
    return results;
  }

  /**
   * Give messages back: for another attempt by their ladder or after `delay_seconds` (0: at once), or as dead letters.
   * With `untried` no attempt is counted.
   */
  async nack(
    topic: string,
    group: string,
    messages: Message<unknown>[],
    how: Omit<Schemas["NackBody"], "receipts"> = {},
  ): Promise<Settled[]> {
    if (messages.length === 0) return [];
    const body = { receipts: messages.map((message) => message.receipt), ...how };
    const { results } = await answerOf(
      this.api.POST("/v1/topics/{topic}/groups/{group}/nack", { params: { path: { topic, group } }, body }),
    );
    return results;
  }
}

function randomId(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString("base64url");
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

/** A reason as the service takes it, whatever was thrown: not cut within a character of two halves. */
function reasonOf(error: unknown): string {
  return new TextDecoder().decode(new TextEncoder().encode(textOf(error).slice(0, 512)));
}

function textOf(error: unknown): string {
  try {
    return typeof error === "object" && !(error instanceof Error) ? inspect(error) : String(error);
  } catch {
    return "(an error without text)";
  }
}

/** A message as the interface wants it. */
function messageOf({ body, ...message }: { body: unknown } & SendOptions): Schemas["MessageBody"] {
  if (!(body instanceof Uint8Array)) return { body, ...message };
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  return { ...message, content_type: message.content_type ?? "application/octet-stream", body_base64: bytes.toString("base64") };
}

/** "", "." and ".." fall out of a URL, with what stands before them: the call would be about something else. */
function refuseNoNames(parts: Record<string, unknown> = {}): void {
  for (const [name, value] of Object.entries(parts)) {
    if (["", ".", ".."].includes(String(value))) throw new TypeError(`${name}: "${value}" is no name and no id.`);
  }
}

async function answerOf<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (data === undefined) throw HeadraceError.of(error, response.status);
  return data;
}
