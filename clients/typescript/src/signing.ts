import { fromBase64, toBase64 } from "./bytes.js";

export type Key = Uint8Array<ArrayBuffer>;

const [LEAST_BYTES, MOST_BYTES] = [24, 64];

/** A request is not signed by one of the secrets, or not just now. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/** The bytes of a secret. TypeError for a text that the service makes and takes for none, such as an empty one. */
export function keyOf(secret: string): Key {
  const [, base64] = /^(?:whsec_)?([A-Za-z0-9+/]+={0,2})$/.exec(secret) ?? [];
  const key = base64 && base64.length % 4 === 0 ? fromBase64(base64) : new Uint8Array();
  if (key.length >= LEAST_BYTES && key.length <= MOST_BYTES) return key;
  throw new TypeError(
    `A secret is whsec_ and ${LEAST_BYTES} to ${MOST_BYTES} bytes in base64, as the answer to the consumer's registration shows it.`,
  );
}

/**
 * The `webhook-id` of a request that one of the keys signed by Standard Webhooks, at most `toleranceSeconds` ago. `body` is the body as it
 * came. Rejects with SignatureError.
 */
export async function verified(keys: readonly Key[], headers: Headers, body: Uint8Array, toleranceSeconds: number): Promise<string> {
  const [id, at, signatures] = ["id", "timestamp", "signature"].map((part) => headers.get(`webhook-${part}`));
  if (!id || !at || !signatures || !/^\d+$/.test(at)) throw new SignatureError("The request has no signature.");
  if (!(Math.abs(Date.now() / 1000 - Number(at)) <= toleranceSeconds)) {
    throw new SignatureError("The signature is too old, or from the future.");
  }
  const head = new TextEncoder().encode(`${id}.${at}.`);
  const content = new Uint8Array(head.length + body.length);
  content.set(head);
  content.set(body, head.length);
  for (const key of keys) {
    const own = await signature(key, content);
    if (signatures.split(" ").some((candidate) => isEqual(own, candidate))) return id;
  }
  throw new SignatureError("The signature is by no known secret.");
}

async function signature(key: Key, content: Uint8Array<ArrayBuffer>): Promise<string> {
  const hmac = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return `v1,${toBase64(new Uint8Array(await crypto.subtle.sign("HMAC", hmac, content)))}`;
}

/** In a time that does not say where they differ. */
function isEqual(own: string, candidate: string): boolean {
  let difference = own.length ^ candidate.length;
  for (let at = 0; at < own.length; at++) difference |= own.charCodeAt(at) ^ candidate.charCodeAt(at);
  return difference === 0;
}
