import { jsonOf } from "./answers.js";
import { messagesOf, type PushedMessage } from "./events.js";
import { Bury, Retry, safely } from "./outcomes.js";
import { type Key, keyOf, SignatureError, verified } from "./signing.js";

const TEST = "headrace.test"; // the type of an event that checks whether a subscriber answers
/** No request of Headrace is larger. */
export const MOST_BYTES = 10 * 1024 * 1024;
const STATES = ["commit", "rollback", "unknown"];

/** Headrace asks what became of a prepared transaction. */
export interface Check {
  transaction_id: string;
  topic: string;
  message_id?: string;
  keys?: string[];
  checks?: number;
  prepared_at?: string;
}

export interface WebhookOptions {
  /** The host names that may call (all). */
  origins?: readonly string[];
  /** How old a signature may be (300). */
  toleranceSeconds?: number;
  /** Decides about transactions, where this is their `check_url`. */
  check?: (check: Check) => "commit" | "rollback" | "unknown" | Promise<"commit" | "rollback" | "unknown">;
  /** Gets what a handler or a check threw. Default: `console.warn`. */
  onError?: (error: unknown, message?: PushedMessage) => void;
}

/**
 * A subscriber: verifies, agrees to be called, hands messages to a handler, and says what became of them.
 *
 *     const webhook = new Webhook(process.env.WEBHOOK_SECRET, async (message) => mail(message.body));
 *     export default { fetch: webhook.fetch };
 *
 * A handler that resolves is success. One that rejects lets the message come again by its ladder; `Retry` asks for a longer wait, `Bury`
 * makes it a dead letter. `secrets` may be several: the old and the new one while they rotate, and the `check_secret` of a topic.
 */
export class Webhook<Body = unknown> {
  readonly #keys: Key[];

  constructor(
    secrets: string | undefined | readonly (string | undefined)[],
    private readonly handler?: (message: PushedMessage<Body>) => unknown,
    private readonly options: WebhookOptions = {},
  ) {
    const texts = Array.isArray(secrets) ? secrets : [secrets];
    this.#keys = texts.map((text) => keyOf(String(text ?? "")));
    if (this.#keys.length === 0) throw new TypeError("Give at least one secret.");
  }

  /** Answers a request: for Hono and edge runtimes. `headrace/node` has the form for Node. */
  readonly fetch = async (request: Request): Promise<Response> => {
    if (Number(request.headers.get("content-length")) > MOST_BYTES) return tooLarge();
    return this.answer(request.method, request.headers, new Uint8Array(await request.arrayBuffer()));
  };

  /** Answers a request whose body was read as bytes, not parsed. */
  async answer(method: string, headers: Headers, body: Uint8Array): Promise<Response> {
    if (method === "OPTIONS") return this.#handshake(headers.get("webhook-request-origin") ?? "");
    if (method !== "POST") return new Response(null, { status: 405, headers: { Allow: "POST, OPTIONS" } });
    if (body.length > MOST_BYTES) return tooLarge();
    let messages: PushedMessage[];
    try {
      await this.verify(headers, body);
      if (headers.get("ce-type") === TEST) return new Response(null, { status: 204 });
      const check = headers.has("ce-id") ? undefined : checkOf(body);
      if (check) return await this.#decide(check);
      messages = messagesOf(headers, body);
    } catch (error) {
      if (error instanceof SignatureError) return new Response(error.message, { status: 401 });
      return new Response(error instanceof TypeError ? error.message : "The request is malformed.", { status: 400 });
    }
    if (!this.handler) return new Response("There is no handler here.", { status: 404 });
    return answerFor(await Promise.all(messages.map((message) => this.#handle(message))));
  }

  /** The id of a request, by which a repeated one is known, once it is verified. Rejects with SignatureError. */
  async verify(headers: Headers, body: Uint8Array): Promise<string> {
    return verified(this.#keys, headers, body, this.options.toleranceSeconds ?? 300);
  }

  #handshake(origin: string): Response {
    const { origins = ["*"] } = this.options;
    const isAllowed = origins.some((allowed) => allowed === "*" || allowed.toLowerCase() === origin.toLowerCase());
    if (!isAllowed) return new Response("This origin may not call.", { status: 403 });
    return new Response(null, { status: 204, headers: { "WebHook-Allowed-Origin": origin || "*" } });
  }

  /** What its handler threw, if it did. */
  async #handle(message: PushedMessage): Promise<{ error?: unknown }> {
    try {
      await this.handler?.(message as PushedMessage<Body>);
      return {};
    } catch (error) {
      if (!(error instanceof Bury || error instanceof Retry)) this.#report(error, message);
      return { error };
    }
  }

  async #decide(check: Check): Promise<Response> {
    if (!this.options.check) return new Response("There is no check of transactions here.", { status: 404 });
    let state: string = "unknown";
    try {
      state = await this.options.check(check);
      if (!STATES.includes(state)) throw new TypeError(`A check answers ${STATES.join(", ")}, not ${state}.`);
    } catch (error) {
      this.#report(error);
      state = "unknown";
    }
    return Response.json({ state });
  }

  #report(error: unknown, message?: PushedMessage): void {
    const place = message ? `${message.topic}/${message.group} ${message.id}` : "a check of a transaction";
    const { onError = (): void => console.warn(`headrace: ${place}:`, error) } = this.options;
    safely(() => onError(error, message));
  }
}

export function tooLarge(): Response {
  return new Response("No request of Headrace is larger than 10 MB.", { status: 413 });
}

function checkOf(body: Uint8Array): Check | undefined {
  const check = (jsonOf(body) ?? {}) as Check;
  return typeof check.transaction_id === "string" && typeof check.topic === "string" ? check : undefined;
}

/**
 * One answer for all messages of a request. Where they ended differently it is 500: the service then sends them again in smaller requests,
 * until each has an answer of its own.
 */
function answerFor(ends: readonly { error?: unknown }[]): Response {
  const failures = ends.filter((end) => "error" in end).map(({ error }) => error);
  const [first] = failures;
  if (failures.length === 0) return new Response(null, { status: 204 });
  const isAll = failures.length === ends.length;
  if (isAll && failures.every((error) => error instanceof Bury)) return new Response((first as Bury).reason, { status: 489 });
  if (isAll && failures.every((error): error is Retry => error instanceof Retry)) {
    const waits = failures.flatMap((error) => error.delaySeconds ?? []);
    const headers = waits.length > 0 ? { "Retry-After": String(Math.max(...waits)) } : {};
    return new Response((first as Retry).reason, { status: 503, headers });
  }
  return new Response(first instanceof Error ? first.name : "Error", { status: 500 });
}
