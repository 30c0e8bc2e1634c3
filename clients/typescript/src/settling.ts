import type { Message, Settled } from "./client.js";
import { HeadraceError } from "./errors.js";
import { type Health, isGone, isRetryable } from "./health.js";
import type { Holding, Holdings } from "./holdings.js";
import type { Verdict } from "./outcomes.js";
import { backoffMs, elapsedMs } from "./time.js";

const MOST = 500; // receipts of one call

interface Settlement<Body> {
  holding: Holding<Body>;
  verdict: Verdict;
  /** The same for all that may go in one call. */
  kind: string;
  tries: number;
}

export interface SettlingParts<Body> {
  call: (verdict: Verdict, messages: Message<Body>[]) => Promise<Settled[]>;
  health: Health;
  held: Holdings<Body>;
  /** Some are settled, or their lease is over. */
  onEnd: () => void;
  onLost: (error: unknown, messages: Message<Body>[]) => void;
  /** A call was refused for a reason that does not pass. */
  onRefusal: (error: unknown) => void;
}

/**
 * Acks and nacks of one consumer. What ends while a call is under way goes together in the next one; what fails for a reason that passes
 * is tried again until the lease is over.
 */
export class Settling<Body> {
  readonly #queues: Record<"ack" | "nack", Settlement<Body>[]> = { ack: [], nack: [] };
  readonly #working = new Set<"ack" | "nack">();
  readonly #waits = new Set<ReturnType<typeof setTimeout>>();
  #isClosed = false;

  constructor(private readonly parts: SettlingParts<Body>) {}

  settle(holding: Holding<Body>, verdict: Verdict): void {
    holding.state = "settling";
    this.#add({ holding, verdict, kind: JSON.stringify(verdict), tries: 0 });
  }

  /** Try nothing again from now on. */
  close(): void {
    this.#isClosed = true;
    for (const wait of this.#waits) clearTimeout(wait);
  }

  #add(settlement: Settlement<Body>): void {
    const lane = settlement.verdict === "ack" ? "ack" : "nack";
    this.#queues[lane].push(settlement);
    if (!this.#working.has(lane)) void this.#work(lane);
  }

  async #work(lane: "ack" | "nack"): Promise<void> {
    this.#working.add(lane);
    await undefined; // what ends in the same turn goes along
    for (let first; (first = this.#queues[lane][0]); ) {
      const { kind } = first;
      const batch = this.#queues[lane].filter((each) => each.kind === kind).slice(0, MOST);
      this.#queues[lane] = this.#queues[lane].filter((each) => !batch.includes(each));
      await this.#send(first.verdict, batch);
    }
    this.#working.delete(lane);
  }

  async #send(verdict: Verdict, batch: Settlement<Body>[]): Promise<void> {
    const { call, health, held, onEnd, onLost, onRefusal } = this.parts;
    const errors = await call(verdict, batch.map(({ holding }) => holding.message)).then(
      (results) => {
        health.works("settle");
        return results.map(({ error }) => error && HeadraceError.of(error, error.status));
      },
      (error: unknown) => {
        if (isRetryable(error)) health.fails("settle", error);
        else if (!isGone(error)) onRefusal(error);
        return batch.map(() => error);
      },
    );
    const lost: Message<Body>[] = [];
    batch.forEach((each, index) => {
      const error = errors[index];
      if (this.#again(each, error)) return;
      if (error) lost.push(each.holding.message);
      held.drop(each.holding);
    });
    onEnd();
    if (lost.length === 0 || this.#isClosed) return;
    health.works("settle"); // the messages that it cost are reported here
    onLost(errors.find(Boolean), lost);
  }

  /** Try it again later, if that may help and the lease lasts. */
  #again(settlement: Settlement<Body>, error: unknown): boolean {
    if (!isRetryable(error) || this.#isClosed) return false;
    const waitMs = backoffMs(++settlement.tries);
    if (elapsedMs(settlement.holding.renewed) + waitMs > this.parts.held.leaseMs) return false;
    const wait = setTimeout(() => {
      this.#waits.delete(wait);
      this.#add(settlement);
    }, waitMs);
    this.#waits.add(wait);
    return true;
  }
}
