/** The core runs where there is nothing of Node, such as on edge runtimes. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

/** Loads the core in a context that has the web's globals alone, and no module but its own and openapi-fetch. */
const LOADER = `
import { readFileSync } from "node:fs";
import { createContext, SourceTextModule } from "node:vm";
const web = ["AbortController", "AbortSignal", "DOMException", "FormData", "Headers", "Request", "Response", "TextDecoder", "TextEncoder", "URL", "URLSearchParams"];
const names = [...web, "atob", "btoa", "clearTimeout", "console", "crypto", "performance", "setTimeout", "Uint8Array", "ArrayBuffer", "TypeError"];
const context = createContext(Object.fromEntries(names.map((name) => [name, globalThis[name]])));
const modules = new Map();
const load = (url) => {
  if (!modules.has(url)) modules.set(url, new SourceTextModule(readFileSync(new URL(url), "utf8"), { context, identifier: url }));
  return modules.get(url);
};
const link = (name, { identifier }) => {
  if (name === "openapi-fetch") return load(process.env.OPENAPI_FETCH);
  if (!name.startsWith("./")) throw new Error(identifier + " imports " + name);
  return load(new URL(name, identifier).href);
};
const core = new SourceTextModule(process.env.PROGRAM, { context, identifier: process.env.PLACE });
await core.link(link);
await core.evaluate();
`;

const PROGRAM = `
import { Headrace, Retry, Webhook } from "./index.js";
const answers = {
  messages: { id: "m" },
  receive: { messages: [{ id: "m", receipt: "r", body_base64: "AP8=" }] },
  nack: { results: [{ receipt: "r", ok: true }] },
};
const calls = [];
const fetch = async (request) => {
  const call = request.url.split("/").at(-2) === "consumers" ? "consumer" : request.url.split("/").at(-1);
  calls.push(call);
  return Response.json(answers[call] ?? { lease_seconds: 30, mode: "queue", filter: "*" });
};
const hr = Headrace.fromEnv({ url: "https://queue.example", token: "hr_x", fetch });
await hr.send("orders", Uint8Array.of(0, 255));
const stop = new AbortController();
await hr.consume("orders", "mailer", ({ body }) => { stop.abort(); throw new Retry(body[1]); }, { prefetch: 0, signal: stop.signal });
const webhook = new Webhook("whsec_" + btoa("s".repeat(24)));
const { status } = await webhook.fetch(new Request("https://shop.example", { method: "POST", body: "{}" }));
console.log(JSON.stringify([...calls, status]));
`;

test("the core imports nothing of Node, and needs no global of Node alone", () => {
  const env = { PROGRAM, PLACE: import.meta.url, OPENAPI_FETCH: import.meta.resolve("openapi-fetch") };
  const options = ["--experimental-vm-modules", "--no-warnings", "--input-type=module", "--eval", LOADER];
  const printed = execFileSync(process.execPath, options, { encoding: "utf8", env, timeout: 20_000 });
  assert.deepEqual(JSON.parse(printed), ["messages", "mailer", "consumer", "receive", "nack", "consumer", 401]);
});
