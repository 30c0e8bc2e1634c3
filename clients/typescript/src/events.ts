import { jsonOf } from "./answers.js";
import { fromBase64 } from "./bytes.js";

const STRUCTURED = "application/cloudevents+json";
const BATCH = "application/cloudevents-batch+json";
const NOT_THE_PRODUCERS = /^(ce-|webhook-|headrace-|content-|host$|user-agent$|accept|connection$)/;

/** A message as it was pushed, with the other attributes of its CloudEvent. The answer to its request settles it. */
export interface PushedMessage<Body = unknown> {
  id: string;
  topic: string;
  group: string;
  /** What the JSON says, or a `Uint8Array` where the body is not JSON. */
  body: Body;
  content_type: string;
  keys: string[];
  tag: string | null;
  tenant: string | null;
  headers: Record<string, string>;
  shard: number | null;
  offset: number | null;
  attempt: number;
  accepted_at: string | null;
  type: string;
  source: string;
  attributes: Record<string, string>;
}

/** The messages of a request: CloudEvents 1.0, binary, structured or batch. TypeError for what is none. */
export function messagesOf(headers: Headers, body: Uint8Array): PushedMessage[] {
  const type = headers.get("content-type") ?? "application/octet-stream";
  const media = mediaOf(type);
  if (media === BATCH) return listOf(jsonOf(body)).map((event) => ofJson(event, headers));
  if (media === STRUCTURED) return [ofJson(jsonOf(body), headers)];
  const attributes: Record<string, string> = {};
  for (const [name, value] of headers) {
    if (name.startsWith("ce-")) attributes[name.slice(3)] = decoded(value, /(?:%[0-9A-Fa-f]{2})+/g);
  }
  const json = isJson(media) ? jsonOf(body) : undefined;
  return [message(attributes, headers, json === undefined ? body : json, type)];
}

function ofJson(event: unknown, headers: Headers): PushedMessage {
  if (typeof event !== "object" || event === null || Array.isArray(event)) throw new TypeError("The request is no CloudEvent.");
  const { data = null, data_base64: base64, datacontenttype = "application/json", ...rest } = event as Record<string, unknown>;
  const attributes = Object.entries(rest).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  const body = base64 === undefined ? data : fromBase64(String(base64));
  return message(Object.fromEntries(attributes) as Record<string, string>, headers, body, String(datacontenttype));
}

function message(attributes: Record<string, string>, headers: Headers, body: unknown, contentType: string): PushedMessage {
  const { id, source = "", type = "", time, subject, specversion: _, ...others } = attributes;
  if (!id) throw new TypeError("The request is no CloudEvent.");
  /** In a batch it is the event's, else the request's. */
  const place = (name: string): string | null => attributes[`headrace${name}`] ?? headers.get(`headrace-${name}`);
  const [shard, offset, attempt, tag, tenant] = ["shard", "offset", "attempt", "tag", "tenant"].map(place);
  const text = (value: string | null | undefined): string | null => (value ? decoded(value, /(?:%[89A-F][0-9A-F])+/g) : null);
  return {
    id,
    topic: headers.get("headrace-topic") ?? source.slice(source.lastIndexOf("/") + 1),
    group: headers.get("headrace-group") ?? "",
    body,
    content_type: contentType,
    keys: subject ? [subject] : [],
    tag: text(tag),
    tenant: text(tenant),
    headers: Object.fromEntries([...headers].filter(([name]) => !NOT_THE_PRODUCERS.test(name))),
    shard: shard ? Number(shard) : null,
    offset: offset ? Number(offset) : null,
    attempt: Number(attempt ?? 1),
    accepted_at: time ?? null,
    type,
    source,
    attributes: Object.fromEntries(Object.entries(others).filter(([name]) => !/^headrace(shard|offset|attempt|tag|tenant)$/.test(name))),
  };
}

/** A header's value without its percent-encoded parts; what is no UTF-8 stays as it is. */
function decoded(value: string, parts: RegExp): string {
  return value.replace(parts, (part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function listOf(json: unknown): unknown[] {
  if (Array.isArray(json)) return json;
  throw new TypeError("The request is no batch of CloudEvents.");
}

function mediaOf(type: string): string {
  return (type.split(";")[0] ?? "").trim().toLowerCase();
}

function isJson(media: string): boolean {
  return media === "application/json" || media.endsWith("+json");
}
