import type { IncomingMessage, ServerResponse } from "node:http";

import { MOST_BYTES, tooLarge, type Webhook } from "./webhook.js";

/** A request listener, for `http.createServer` and for frameworks with Node's requests, such as Express: before what parses bodies. */
export function nodeListener<Body>(webhook: Webhook<Body>): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const answer = await answerTo(webhook, request).catch(() => undefined);
    if (!answer) response.destroy(); // the sender is gone
    else response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(await answer.text());
  };
}

async function answerTo<Body>(webhook: Webhook<Body>, request: IncomingMessage): Promise<Response> {
  if (request.readableDidRead) return new Response("The body was read before: mount the webhook before what parses bodies.", { status: 500 });
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of request as AsyncIterable<Uint8Array>) {
    size += part.length;
    if (size > MOST_BYTES) return tooLarge();
    parts.push(part);
  }
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (!name.startsWith(":")) headers.append(name, String(value)); // HTTP/2 has the method and the path there
  }
  return webhook.answer(request.method ?? "", headers, Buffer.concat(parts));
}
