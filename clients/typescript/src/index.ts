export { type ConsumeOptions, Headrace, type HeadraceOptions, type Message, type SendOptions, type Sent, type Settled } from "./client.js";
export { HeadraceError, type Problem } from "./errors.js";
export type { Retries } from "./repeating.js";
export type { components, paths } from "./schema.js";
