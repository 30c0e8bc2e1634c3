import type { IncomingMessage, ServerResponse } from "node:http";

import type { Webhook } from "./webhook.js";

/** A request listener, for `http.createServer` and for frameworks with Node's requests, such as Express: before what parses bodies. */
export function nodeListener<Body>(webhook: Webhook<Body>): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    if (request.readableDidRead) {
      response.writeHead(500).end("The body was read before: mount the webhook before what parses bodies.");
      return;
    }
    const parts: Uint8Array[] = [];
    try {
      for await (const part of request) parts.push(part as Uint8Array);
    } catch {
      response.destroy(); // the sender is gone
      return;
    }
    const headers = new Headers();
    for (const [name, value] of Object.entries(request.headers)) {
      if (!name.startsWith(":")) headers.append(name, String(value)); // HTTP/2 has the method and the path there
    }
    const answer = await webhook.answer(request.method ?? "", headers, Buffer.concat(parts));
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(await answer.text());
  };
}
