import type { components } from "./schema.js";

/** How messages are given back: to be tried again by their ladder, after `delay_seconds`, without a count (`untried`), or as dead letters. */
export type GiveBack = Omit<components["schemas"]["NackBody"], "receipts">;
export type Verdict = "ack" | GiveBack;

const LONGEST_DELAY_SECONDS = 30 * 86_400; // the service's limit
const REASON_CHARS = 512;

/** Throw it in a handler: the message is not tried again; it becomes a dead letter, with the reason. */
export class Bury extends Error {
  override readonly name = "Bury";

  constructor(readonly reason = "") {
    super(reason);
  }
}

/** Throw it in a handler: the message is tried again after `delaySeconds` (30 days at most), or as its ladder says. */
export class Retry extends Error {
  override readonly name = "Retry";
  readonly delaySeconds: number | undefined;

  constructor(delaySeconds?: number, readonly reason = "") {
    super(reason);
    if (delaySeconds !== undefined && !(delaySeconds >= 0)) throw new RangeError(`${delaySeconds}: a delay is a number of seconds, from 0 on.`);
    this.delaySeconds = delaySeconds && Math.min(LONGEST_DELAY_SECONDS, Math.ceil(delaySeconds));
  }
}

/** What becomes of a message whose handler threw this. */
export function verdictOf(error: unknown): GiveBack {
  const reason = reasonOf(error instanceof Bury || error instanceof Retry ? error.reason : error);
  const why = reason ? { reason } : {};
  if (error instanceof Bury) return { dead_letter: true, ...why };
  const delay = error instanceof Retry ? error.delaySeconds : undefined;
  return { ...(delay === undefined ? {} : { delay_seconds: delay }), ...why };
}

/** A reason as the service takes it, of anything that can be thrown: not cut within a character of two halves. */
function reasonOf(error: unknown): string {
  return new TextDecoder().decode(new TextEncoder().encode(textOf(error).slice(0, REASON_CHARS)));
}

function textOf(error: unknown): string {
  try {
    const isBare = typeof error === "object" && String(error).startsWith("[object ");
    return String(isBare ? JSON.stringify(error) : error);
  } catch {
    return "(an error without text)";
  }
}

/** Call what a user gave to be informed: its failure is not the consumer's. */
export function safely(call: () => void): void {
  try {
    call();
  } catch (failure) {
    console.error("headrace: a function that reports has failed:", failure);
  }
}
