const PART = 0x8000; // arguments of one call

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += PART) text += String.fromCharCode(...bytes.subarray(at, at + PART));
  return btoa(text);
}

/** The bytes of a text in base64. Throws for what is none. */
export function fromBase64(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

/** 128 random bits, as a text of 22 characters. */
export function randomId(): string {
  const text = toBase64(crypto.getRandomValues(new Uint8Array(16)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
