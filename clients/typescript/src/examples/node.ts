import { createServer } from "node:http";

import { Webhook } from "headrace";
import { nodeListener } from "headrace/node";

const webhook = new Webhook<{ order: number }>(process.env["WEBHOOK_SECRET"], async ({ id, body }) => {
  console.log(id, body.order);
});
createServer(nodeListener(webhook)).listen(Number(process.env["PORT"] ?? 9000));
