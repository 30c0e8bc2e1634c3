import { Bury, Headrace, Retry } from "headrace";

const hr = Headrace.fromEnv(); // HEADRACE_URL, HEADRACE_TOKEN; HEADRACE_RECEIVE_URL, if receives have an address of their own
await hr.send("orders", { order: 188 }, { keys: ["order-188"] });

const stop = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => stop.abort());

await hr.consume<{ order: number }>(
  "orders",
  "mailer",
  async ({ id, body }) => {
    if (body.order < 1) throw new Bury("no such order"); // a dead letter
    if (body.order > 999) throw new Retry(600); // again in ten minutes
    console.log(id, body.order); // any other error: again, by the retry ladder
  },
  { concurrency: 8, signal: stop.signal },
);
