import { types } from "node:util";

/**
 * A body as it is sent: in JSON, or as it is where its Content-Type says that it is something else, as for `publish`. TypeError for
 * what has no JSON form, where JavaScript would put null or {} in its place.
 */
export function bodyOf(body: unknown, headers?: Headers): unknown {
  const type = headers?.get("Content-Type") ?? "application/json";
  return /json/i.test(type) ? JSON.stringify(body, refuseWithoutForm) : body;
}

function refuseWithoutForm(this: Record<string, unknown>, name: string, value: unknown): unknown {
  const isNoNumber = typeof value === "number" && !Number.isFinite(value);
  const isBytes = ArrayBuffer.isView(this[name]) || types.isAnyArrayBuffer(value); // a Buffer has a form of its own
  if (isNoNumber || isBytes || types.isMap(value) || types.isSet(value) || types.isPromise(value)) {
    const kind = isNoNumber ? value : Object.prototype.toString.call(this[name]).slice(8, -1);
    throw new TypeError(`${name && `${name}: `}${kind} has no JSON form.${isBytes ? " Bytes are sent as a whole body, or as base64." : ""}`);
  }
  return value;
}
