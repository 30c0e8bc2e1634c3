import type { Message } from "./client.js";
import { elapsedMs, type Moment } from "./time.js";

const MOST = 1000; // in hand, and so in one call
const WORK_MS = 1000; // messages that wait for a handler are about so much work
const MOST_WAITING = 500;
const LONGEST_WAIT_MS = 10_000;
const SHARE_OF_LATEST = 0.1; // in the mean time of handlers

/** A message in hand: when it was received, when its lease was renewed, and what is done with it. */
export interface Holding<Body> {
  readonly message: Message<Body>;
  readonly taken: Moment;
  renewed: Moment;
  state: "waiting" | "running" | "settling";
  /** Another consumer has it; its handler still runs. */
  isLost?: true;
}

/**
 * The messages that a consumer has in its hands, and how many more it wants. `prefetch` messages may wait for a handler; undefined: about
 * a second's work of the handlers, which none waits for longer than ten seconds.
 */
export class Holdings<Body> {
  leaseMs = Infinity;
  readonly #held = new Map<string, Holding<Body>>(); // by receipt
  #meanMs: number | undefined; // of a handler

  constructor(
    private readonly concurrency: number,
    private readonly prefetch: number | undefined,
  ) {}

  take(message: Message<Body>, at: Moment): void {
    this.#held.set(message.receipt, { message, taken: at, renewed: at, state: "waiting" });
  }

  /** It is settled, or its handler need not begin. */
  drop({ message }: Holding<Body>): void {
    this.#held.delete(message.receipt);
  }

  /** Its lease is over. */
  lose(holding: Holding<Body>): void {
    if (holding.state === "running") holding.isLost = true; // its handler keeps its place
    else this.drop(holding);
  }

  get size(): number {
    return this.#held.size;
  }

  of(state: Holding<Body>["state"]): Holding<Body>[] {
    return [...this.#held.values()].filter((each) => each.state === state);
  }

  /** The next to handle, if there is a place and one whose lease lasts: another consumer may have the others. */
  next(): Holding<Body> | undefined {
    if (this.of("running").length >= this.concurrency) return undefined;
    for (const holding of this.of("waiting")) {
      if (elapsedMs(holding.renewed) <= this.leaseMs) return holding;
      this.drop(holding);
    }
    return undefined;
  }

  /** A handler has taken so long. */
  learn(ms: number): void {
    this.#meanMs = (this.#meanMs ?? ms) * (1 - SHARE_OF_LATEST) + ms * SHARE_OF_LATEST;
  }

  /** How many to receive: none until a handler is free, or half of those that may wait have begun. So calls are fewer and larger. */
  room(): number {
    const limit = this.#waitingLimit();
    const room = this.concurrency + limit - this.of("running").length - this.of("waiting").length;
    return room > Math.floor(limit / 2) ? Math.min(room, MOST - this.size) : 0;
  }

  #waitingLimit(): number {
    if (this.prefetch !== undefined) return this.prefetch;
    if (this.#meanMs === undefined) return 0;
    return Math.min(MOST_WAITING, Math.round((this.concurrency * Math.min(WORK_MS, this.leaseMs / 4)) / this.#meanMs));
  }

  /** Those whose lease is half over, and that are not settled. */
  ageing(): Holding<Body>[] {
    return [...this.#held.values()].filter(
      ({ state, isLost, renewed }) => state !== "settling" && !isLost && elapsedMs(renewed) > this.leaseMs / 2,
    );
  }

  /** Those that have waited for a handler for too long. */
  overdue(): Holding<Body>[] {
    return this.prefetch === undefined ? this.of("waiting").filter(({ taken }) => elapsedMs(taken) > LONGEST_WAIT_MS) : [];
  }
}
