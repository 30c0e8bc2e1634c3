/** Which service a client is for, and what it sends there. No service is needed. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { Headrace, type HeadraceOptions } from "./index.js";

const TOKEN = "hr_test";
const sending = async (options: Partial<HeadraceOptions>, call: (hr: Headrace) => Promise<unknown>): Promise<Request> => {
  let sent: Request | undefined;
  const fetch = async (request: Request): Promise<Response> => {
    sent = request;
    return Response.json({ id: "m", results: [] });
  };
  await call(new Headrace({ url: "http://127.0.0.1:8700", token: TOKEN, ...options, fetch }));
  return sent ?? assert.fail("nothing was sent");
};

for (const url of [
  "localhost:8700",
  "127.0.0.1:8700",
  "",
  "http://127.0.0.1:99999",
  "http://127.0.0.1:port",
  "http://[::1",
  "https://head race/",
  "https://me:secret@127.0.0.1",
  "https://127.0.0.1/?stage=dev",
  "https://127.0.0.1/#top",
]) {
  test(`a URL ${url} is refused at once`, () => {
    assert.throws(() => new Headrace({ url, token: TOKEN }), /as in https:(?!.*secret)/);
  });
}

for (const [url, called] of [
  ["http://v1", "http://v1/v1/health"],
  [" https://example.com/queue/v1/ ", "https://example.com/queue/v1/health"],
] as const) {
  test(`a service at ${url} is called at ${called}`, async () => {
    const { url: sent } = await sending({ url }, (hr) => hr.api.GET("/v1/health"));
    assert.equal(sent, called);
  });
}

for (const token of ["", undefined as unknown as string, "Bearer hr_x", "hr_secret\nx", "hr_secr\u00e9t", "secret"]) {
  test(`a token ${JSON.stringify(token)} is refused at once, and not told`, () => {
    assert.throws(() => new Headrace({ url: "http://127.0.0.1:8700", token }), /^TypeError: Give a token(?!.*secr)/s);
  });
}

test("a token may have space around it, as a file gives it", async () => {
  const { headers } = await sending({ token: " hr_test\n" }, (hr) => hr.api.GET("/v1/health"));
  assert.equal(headers.get("Authorization"), "Bearer hr_test");
});
