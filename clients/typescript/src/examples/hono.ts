import { Webhook } from "headrace";
import { Hono } from "hono";

const webhook = new Webhook<{ order: number }>(process.env["WEBHOOK_SECRET"], async ({ id, body }) => {
  console.log(id, body.order);
});

const app = new Hono();
app.on(["POST", "OPTIONS"], "/hooks", (c) => webhook.fetch(c.req.raw));
export default app;
