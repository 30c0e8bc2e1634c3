export { Headrace, type HeadraceOptions, type Message, type Received, type ReceiveOptions, type ScheduleOptions, type SendOptions, type Sent, type Settled } from "./client.js";
export type { ConsumeOptions, Handler } from "./consumer.js";
export { HeadraceError, type Problem } from "./errors.js";
export type { PushedMessage } from "./events.js";
export { Bury, type GiveBack, Retry } from "./outcomes.js";
export type { Retries } from "./repeating.js";
export { SignatureError } from "./signing.js";
export { type Check, Webhook, type WebhookOptions } from "./webhook.js";
export type { components, paths } from "./schema.js";
