import { type Answer, isRetryable, jsonOf, PARTED, RECEIVES, whole } from "./answers.js";
import { HeadraceError, isProblem } from "./errors.js";
import type { components } from "./schema.js";
import { elapsedMs, type Moment, now, pause, timerMs } from "./time.js";

type ReceiveBody = components["schemas"]["ReceiveBody"];
type ConsumerBody = components["schemas"]["ConsumerBody"];
type Result = components["schemas"]["BatchView" | "ReceiptResults"]["results"][number];

/**
 * When a call is attempted again: within `totalMs`, which ends the last attempt, too. Unless `attempts` is given, a send goes on for so
 * long; other calls, whose callers can wait and ask again, are tried 5 times.
 */
export interface Retries {
  /** The first included. */
  attempts?: number | undefined;
  /** A random part of this, doubled each time, up to `capMs`; never less than the service's `Retry-After`. */
  baseMs: number;
  capMs: number;
  totalMs: number;
}

const ATTEMPTS = 5;
const PRODUCES = /^POST .*\/v1\/(topics\/[^/]+\/messages(\/batch)?|publish\/[^/]+)$/;
const REGISTERS = /^PUT .*\/v1\/topics\/[^/]+\/groups\/[^/]+\/consumers\/[^/]+$/;
const NOT_REPEATABLE =
  /^(POST .*\/v1\/(tokens(\/[^/]+\/rotate)?|signing-key\/rotate|sign-in-links|schedules\/[^/]+\/run|topics\/[^/]+\/(replays|transactions)|topics\/.*\/(rotate-secret|redrive|test))|PATCH .*\/v1\/topics\/[^/]+\/messages)$/;
const LEAST_MS = 100; // for the last try
const HTTP_DATE = /^[A-Z][a-z]+,? [\w -]+ \d\d:\d\d:\d\d (GMT|\d{4})$/;

type Fetch = (request: Request) => Promise<Response>;

/**
 * A `fetch` that calls again where that is safe and may help. Sends bear a name of their own, by which the service knows
 * one that comes again after a lost answer: it is stored once.
 */
export function repeating(fetch: Fetch, retries: Retries, timeoutMs: number): Fetch {
  const sender = crypto.randomUUID();
  let sends = 0;

  return async (first: Request): Promise<Response> => {
    const { signal } = first;
    const call = `${first.method} ${new URL(first.url).pathname}`;
    const named = PRODUCES.test(call);
    if (named && !first.headers.has("Headrace-Request")) {
      first.headers.set("Headrace-Request", `${sender}-${sends++}`);
    }
    const body = first.body && new Uint8Array(await first.arrayBuffer()); // a clone breaks once another of them is collected
    const repeatable = !NOT_REPEATABLE.test(call) && !(REGISTERS.test(call) && makesSecret(body));
    const receives = RECEIVES.test(call);
    const pollMs = receives ? 1000 * ((jsonOf(body) as ReceiveBody | undefined)?.wait_seconds ?? 0) : 0;
    const most = retries.attempts ?? (named ? Infinity : ATTEMPTS);
    const start = now();
    let perhapsStored = false;
    let results: Result[] | undefined; // so far
    for (let attempt = 1; ; attempt++) {
      const msLeft = Math.max(LEAST_MS, retries.totalMs - (performance.now() - start.steadyMs));
      const end = new AbortController();
      const request = new Request(first, { body, signal: end.signal });
      if ((named || receives) && perhapsStored) {
        request.headers.set("Headrace-Resend", resendSeconds(start));
      }
      const ask = async (): Promise<Answer> => whole(await fetch(request), call, body);
      const answer = await within(Math.min(timeoutMs, msLeft) + pollMs, signal, end, ask).catch((error: unknown) => {
        signal.throwIfAborted();
        return noAnswer(first.url, error);
      });
      const isLost = answer instanceof HeadraceError;
      const outcomes = !isLost && answer.response.ok && PARTED.test(call) ? (answer.json as { results: Result[] }).results : undefined;
      if (outcomes) results = withDone(results, outcomes);
      const partly = outcomes && results?.some((each) => each.error?.retryable); // those may be done, now or the next time
      const again = isLost || partly || isRetryable(answer);
      const unknown = isLost || partly || answer.response.status >= 500;
      const waitMs = pauseMs(retries, attempt, answer, Date.now());
      const late = performance.now() - start.steadyMs + waitMs > retries.totalMs;
      if (!again || attempt >= most || late || (unknown && !repeatable)) {
        const stands = !named || (!isLost && answer.response.status < 500); // a send that was lost may be stored
        if (results && attempt > 1 && stands) return Response.json({ results });
        if (isLost) throw answer;
        const { response, json } = answer;
        if (!response.ok && !isProblem(json)) throw HeadraceError.of(json, response.status); // without a body, `error` would be empty
        return response;
      }
      perhapsStored ||= unknown;
      await pause(waitMs, signal);
      signal.throwIfAborted();
    }
  };
}

/** How long ago a call was sent first, as the service wants to know it: rounded up, a day at most. */
function resendSeconds(start: Moment): string {
  return String(Math.min(86_400, Math.max(1, Math.ceil(elapsedMs(start) / 1000))));
}

/** Does a registration with this body make a secret? Only its first answer shows it. */
function makesSecret(body: Uint8Array | null): boolean {
  const { url, secret } = (jsonOf(body) ?? {}) as ConsumerBody;
  return Boolean(url) && !secret;
}

/**
 * What comes of `work`, or the reason of `end`: that `ms` are over, or that of `signal`. By hand, since neither AbortSignal.timeout
 * nor AbortSignal.any ends a `fetch` once the garbage collector has run.
 */
async function within<T>(ms: number, signal: AbortSignal, end: AbortController, work: () => Promise<T>): Promise<T> {
  signal.throwIfAborted();
  let fail = (_reason: unknown): void => {}; // not a listener of `end`, which would keep each request for good
  const stop = (): void => fail(signal.reason);
  const late = (): void => fail(new DOMException(`nothing whole came within ${Math.round(ms)} ms`, "TimeoutError"));
  const timer = setTimeout(late, timerMs(ms));
  signal.addEventListener("abort", stop);
  try {
    return await new Promise<T>((resolve, reject) => {
      fail = (reason) => {
        end.abort(reason);
        reject(reason);
      };
      work().then(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

function noAnswer(url: string, error: unknown): HeadraceError {
  const cause = (error as { cause?: { code?: unknown } } | undefined)?.cause; // fetch's own error says only that it failed
  const why = cause ? `${error}: ${cause.code ?? cause}` : String(error);
  return new HeadraceError("NO_ANSWER", `No answer from ${new URL(url).origin} (${why}). Is the service up?`, 0, true);
}

/** What came of each part of a call after a further try of the whole: what one try has done is done. */
function withDone(before: Result[] | undefined, after: Result[]): Result[] {
  return after.map((each, index) => {
    const earlier = before?.[index];
    return earlier && !earlier.error ? earlier : each;
  });
}

function pauseMs(retries: Retries, attempt: number, answer: Answer | HeadraceError, nowMs: number): number {
  const step = Math.min(retries.capMs, retries.baseMs * 2 ** (attempt - 1));
  const asked = answer instanceof HeadraceError ? 0 : askedWaitMs(answer.response.headers.get("Retry-After"), nowMs);
  return Math.max(step * (0.5 + Math.random() / 2), asked);
}

/** What a `Retry-After` asks for (RFC 9110): a number of seconds, or a date. 0 for one that is past, for none, and for nonsense. */
export function askedWaitMs(retryAfter: string | null, nowMs: number): number {
  const text = retryAfter?.trim() ?? "";
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  if (!HTTP_DATE.test(text)) return 0; // Date.parse reads much else
  return Math.max(0, Date.parse(text.replace(/(?<! GMT)$/, " GMT")) - nowMs || 0);
}
