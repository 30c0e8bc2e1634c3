/** An answer of Headrace that is all here. `json` is undefined where it has none. */
export interface Answer {
  response: Response;
  json: unknown;
}

type Parts = Record<string, unknown>;

/** Calls of which each message or receipt has an answer of its own. */
export const PARTED = /^POST .*\/v1\/topics\/[^/]+\/(messages\/batch|groups\/[^/]+\/(n?ack|extend))$/;
export const RECEIVES = /^POST .*\/v1\/topics\/[^/]+\/groups\/[^/]+\/receive$/;

/** What an answer of success has, whatever else; by it one of something in between is known. Of other calls: an object. */
const HAS: [call: RegExp, isOurs: (parts: Parts, sent: Uint8Array | null) => boolean][] = [
  [/^POST .*\/v1\/(topics\/[^/]+\/messages|publish\/[^/]+)$/, ({ id }) => typeof id === "string"],
  [PARTED, isOfEach],
  [RECEIVES, ({ messages }) => Array.isArray(messages)],
];
const PAGE = /^GET (?!.*\/v1\/).*\/docs$/;

/**
 * The answer to a `call`, which is method and path, with the body that was `sent`. TypeError for what is not Headrace's: half a body, or
 * a page of a proxy.
 */
export async function whole(response: Response, call: string, sent: Uint8Array | null): Promise<Answer> {
  const body = new Uint8Array(await response.arrayBuffer());
  const json = jsonOf(body);
  const isNothing = response.status === 204 && call.startsWith("DELETE ");
  if (response.ok && !isNothing && !PAGE.test(call) && !isOurs(json, call, sent)) {
    throw new TypeError(`what answered ${response.status} is not Headrace`);
  }
  return { response: new Response(body.byteLength > 0 ? body : null, response), json };
}

/** What a body of JSON says; undefined for one that is none. */
export function jsonOf(body: Uint8Array | null): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body ?? undefined));
  } catch {
    return undefined;
  }
}

/** May the same call succeed later? */
export function isRetryable({ response, json }: Answer): boolean {
  if (response.ok) return false;
  const word = (json as { retryable?: unknown } | null | undefined)?.retryable;
  return typeof word === "boolean" ? word : response.status >= 500 || response.status === 429;
}

function isOurs(json: unknown, call: string, sent: Uint8Array | null): boolean {
  return isObject(json) && HAS.every(([calls, isOurs]) => !calls.test(call) || isOurs(json, sent));
}

/** Is there a result for each message or receipt? One that is missing would be told nowhere. */
function isOfEach({ results }: Parts, sent: Uint8Array | null): boolean {
  const { messages, receipts } = jsonOf(sent) as { messages?: unknown[]; receipts?: unknown[] };
  return Array.isArray(results) && results.every(isObject) && results.length === (messages ?? receipts)?.length;
}

function isObject(json: unknown): json is Parts {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}
