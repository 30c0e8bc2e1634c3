/** What is made of answers that are late, half, or of something else. No service is needed. */
import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Headrace, type HeadraceOptions } from "./index.js";

const clientOf = (options: Partial<HeadraceOptions>): Headrace =>
  new Headrace({ url: "http://127.0.0.1:8700", token: "hr_test", retries: { attempts: 2, baseMs: 1 }, ...options });

/** The URL of a server of this test. */
async function serving(t: TestContext, answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const SILENCES: Record<string, RequestListener> = {
  "of which nothing comes": () => {},
  "of which only the beginning comes": (_, answer) => void answer.writeHead(200).write("{"),
};
for (const [silence, answer] of Object.entries(SILENCES)) {
  test(`an answer ${silence} is waited for no longer than a try may take, whatever is collected meanwhile`, { timeout: 10_000 }, async (t) => {
    setFlagsFromString("--expose-gc");
    const collecting = setInterval(runInNewContext("gc"), 20);
    t.after(() => clearInterval(collecting));
    const hr = clientOf({ url: await serving(t, answer), timeoutMs: 200 });
    await assert.rejects(hr.send("orders", 1), { code: "NO_ANSWER" });
  });
}
