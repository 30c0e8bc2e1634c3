/**
 * A body as it is sent: in JSON, or as it is where its Content-Type says that it is something else, as for `publish`. TypeError for
 * what has no JSON form, where JavaScript would put null or {} in its place, and for functions and symbols, which it would leave out.
 */
export function bodyOf(body: unknown, headers?: Headers): unknown {
  const type = headers?.get("Content-Type") ?? "application/json";
  return /json/i.test(type) ? JSON.stringify(body, refuseWithoutForm) : body;
}

const FORMLESS = ["Map", "Set", "Promise", "Error"]; // also with fields of their own
const PLAIN = ["Object", "Array", "String", "Number", "Boolean"];

/** Is it of the platform, with nothing that JSON could see, such as headers? An instance without fields has a plain object's tag. */
function isSealed(value: unknown): boolean {
  return typeof value === "object" && value !== null && !PLAIN.includes(tagOf(value)) && Object.keys(value).length === 0;
}

const tagOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1);

function refuseWithoutForm(this: Record<string, unknown>, name: string, value: unknown): unknown {
  const given = this[name]; // `value` is what its toJSON made of it: of a date that is none, null
  const isNoNumber = tagOf(value) === "Number" && !Number.isFinite(Number(value));
  const isNoDate = value === null && tagOf(given) === "Date";
  const isBytes = ArrayBuffer.isView(given) || tagOf(value).endsWith("ArrayBuffer"); // a Buffer has a form of its own
  const isLeftOut = ["function", "symbol"].includes(typeof value) || (value === undefined && Array.isArray(this));
  if (isNoNumber || isNoDate || isBytes || isLeftOut || FORMLESS.includes(tagOf(value)) || isSealed(value)) {
    const kind = isNoNumber ? value : isNoDate ? String(given) : tagOf(given);
    throw new TypeError(`${name && `${name}: `}${kind} has no JSON form.${isBytes ? " Bytes are sent as a whole body, or as base64." : ""}`);
  }
  return value;
}
