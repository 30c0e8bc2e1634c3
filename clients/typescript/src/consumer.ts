import { randomId } from "./bytes.js";
import type { Headrace, Message } from "./client.js";
import { answerOf, HeadraceError } from "./errors.js";
import { ensureGroup, type GroupOptions } from "./groups.js";
import { Health, isGone, isRetryable } from "./health.js";
import { type Holding, Holdings } from "./holdings.js";
import { Bury, Retry, safely, type Verdict, verdictOf } from "./outcomes.js";
import { Settling } from "./settling.js";
import { elapsedMs, now, pause } from "./time.js";

const LONGEST_REST_MS = 1000;
const BEAT_MS = 15_000; // a consumer that is silent for 30 seconds is offline
const EXPIRES_AFTER_SECONDS = 3600;
const BACK_MS = 600_000; // for clocks that differ from the service's
const LAST_MS = 2000; // of the limit: to give back what still runs, and to leave
const CUT_OFF: Verdict = { delay_seconds: 0, reason: "The consumer ended before its handler." };

/** How a consumer works. A group that is missing is created with `mode`, `tags` and `from`. */
export interface ConsumeOptions extends GroupOptions {
  /** How many handlers run at a time (1). */
  concurrency?: number;
  /** How many messages wait for a handler (about a second's work, as long as the handlers' times show). */
  prefetch?: number;
  /** When it aborts, messages whose handlers have not begun are given back, handlers finish, and `consume` resolves. */
  signal?: AbortSignal;
  /** How long that may take (25): then handlers that still run lose their messages to other consumers. */
  drainSeconds?: number;
  /** How long one receive waits for messages (10). */
  wait_seconds?: number;
  /** How long a lease is (the group's); it is renewed while the handler runs. */
  lease_seconds?: number;
  /** The name to register, for one process: a later one takes it over. Without it a name is made, which ends with the process. */
  consumer?: string;
  /** Register with the group (true): for a rank, shards, and messages of a broadcast. */
  register?: boolean;
  /**
   * Gets what a handler threw, or why messages could not be settled, with the messages; and, without messages, the first error of calls
   * that fail: they are repeated until they work. Default: `console.warn`.
   */
  onError?: (error: unknown, messages: Message[]) => void;
  /** Calls work again. Default: `console.info`. */
  onRecover?: () => void;
}

export type Handler<Body> = (message: Message<Body>) => unknown;

/** Runs a handler for the messages of a group until its signal aborts. */
export class Consumer<Body> {
  readonly #drainMs: number;
  readonly #name: string | undefined;
  readonly #instance = randomId();
  readonly #held: Holdings<Body>;
  readonly #settling: Settling<Body>;
  readonly #health: Health;
  readonly #stop = new AbortController();
  readonly #ended = new AbortController();
  #changed = new AbortController();
  #isJoined = false;
  #keepsPlace = false;
  #lastSeenMs: number | undefined; // the group, at work
  #signOfLife = now();
  #failure: { error: unknown } | undefined;

  constructor(
    private readonly hr: Headrace,
    private readonly topic: string,
    private readonly group: string,
    private readonly handler: Handler<Body>,
    private readonly given: ConsumeOptions,
  ) {
    const { concurrency = 1, prefetch, drainSeconds = 25 } = given;
    if (!Number.isInteger(concurrency) || concurrency < 1) throw new RangeError(`concurrency is a whole number from 1 on, not ${concurrency}.`);
    if (!Number.isInteger(prefetch ?? 0) || (prefetch ?? 0) < 0) throw new RangeError(`prefetch is a whole number from 0 on, not ${prefetch}.`);
    this.#held = new Holdings(concurrency, prefetch);
    this.#drainMs = drainSeconds * 1000;
    this.#name = given.register === false ? undefined : (given.consumer ?? madeName());
    const works = (): void => console.info(`headrace: ${topic}/${group}: calls work again`);
    this.#health = new Health((error) => this.#report(error), () => safely(given.onRecover ?? works));
    this.#settling = new Settling({
      call: (verdict, messages) =>
        verdict === "ack" ? hr.ack(topic, group, messages) : hr.nack(topic, group, messages, verdict),
      health: this.#health,
      held: this.#held,
      onEnd: () => this.#notify(),
      onLost: (error, messages) => this.#report(error, messages),
      onRefusal: (error) => this.#fail(error),
    });
  }

  /** Works until the signal aborts. Rejects where waiting does not help, such as for a token that may not consume. */
  async run(): Promise<void> {
    const { signal } = this.given;
    if (signal?.aborted) return;
    const stop = (): void => this.#end();
    signal?.addEventListener("abort", stop);
    const polling = this.#poll();
    const keeping = this.#keep();
    while (!this.#isStopped) await pause(Infinity, this.#stop.signal);
    signal?.removeEventListener("abort", stop);
    await this.#drain(polling, keeping);
    if (this.#failure) throw this.#failure.error;
  }

  /** Receive and hand out, until stopped. Errors that may pass are waited out; others end it. */
  async #poll(): Promise<void> {
    let restMs = 0;
    while (!this.#isStopped) {
      const began = performance.now();
      try {
        if (!this.#isJoined) await this.#join();
        const room = this.#held.room();
        if (room < 1) {
          await this.#change();
          continue;
        }
        restMs = (await this.#receive(room)) > 0 ? 0 : Math.min(LONGEST_REST_MS, restMs * 2 + 50);
      } catch (error) {
        await pause(this.#waitMs("receive", error), this.#stop.signal);
        continue;
      }
      const restLeftMs = began + restMs - performance.now();
      if (restLeftMs > 0) await pause(restLeftMs, this.#stop.signal);
    }
  }

  /** Ensure the group, learn its lease, register. What was deleted meanwhile begins where the consumer saw it last, not at its beginning. */
  async #join(): Promise<void> {
    const { hr, topic, group, given } = this;
    const from = this.#lastSeenMs && { from: new Date(this.#lastSeenMs - BACK_MS).toISOString() };
    const { mode, offline, lease_seconds } = await ensureGroup(hr, topic, group, { ...given, ...from });
    const leaseSeconds =
      given.lease_seconds ?? lease_seconds ?? (await answerOf(hr.api.GET("/v1/topics/{topic}", { params: { path: { topic } } }))).lease_seconds;
    this.#held.leaseMs = 1000 * leaseSeconds;
    this.#keepsPlace = mode === "broadcast" && given.consumer !== undefined;
    if (this.#name !== undefined) {
      const expires = given.consumer === undefined && { expires_after_seconds: EXPIRES_AFTER_SECONDS };
      const body = { instance: this.#instance, ...expires, ...(mode === "broadcast" && offline === "keep" && from) };
      const params = { path: { topic, group, consumer: this.#name } };
      await answerOf(hr.api.PUT("/v1/topics/{topic}/groups/{group}/consumers/{consumer}", { params, body }));
    }
    this.#isJoined = true;
  }

  async #receive(max: number): Promise<number> {
    this.#signOfLife = now();
    const messages = await this.hr.receive<Body>(this.topic, this.group, {
      max,
      wait_seconds: this.given.wait_seconds ?? 10,
      lease_seconds: this.#held.leaseMs / 1000, // the group's may change meanwhile
      ...(this.#name === undefined ? {} : { consumer: this.#name, instance: this.#instance }),
    });
    this.#health.works("receive");
    this.#lastSeenMs = Date.now();
    const at = now();
    for (const message of messages) this.#held.take(message, at);
    if (this.#isStopped) this.#giveBack();
    this.#begin();
    return messages.length;
  }

  /** Begin as many handlers as there are places. */
  #begin(): void {
    for (let holding; (holding = this.#held.next()); ) void this.#handle(holding);
  }

  async #handle(holding: Holding<Body>): Promise<void> {
    holding.state = "running";
    const start = performance.now();
    let verdict: Verdict = "ack";
    try {
      await this.handler(holding.message);
    } catch (error) {
      verdict = verdictOf(error);
      if (!(error instanceof Bury || error instanceof Retry)) this.#report(error, [holding.message]);
    }
    this.#held.learn(performance.now() - start);
    if (holding.isLost) this.#held.drop(holding);
    else if (holding.state === "running") this.#settling.settle(holding, verdict); // it may be cut off
    this.#begin();
    this.#notify();
  }

  /** Renew leases that are half over, give back what waits for long, and stay online while handlers take long. */
  async #keep(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      await pause(Math.min(this.#held.leaseMs / 8, 1000), this.#ended.signal);
      if (!this.#isJoined || this.#ended.signal.aborted) continue;
      try {
        this.#giveBack(this.#held.overdue());
        await this.#renew();
        await this.#beat();
        this.#health.works("keep");
      } catch (error) {
        const waitMs = Math.min(this.#waitMs("keep", error), this.#held.leaseMs / 4); // a lease may outlast the trouble
        await pause(waitMs, this.#ended.signal);
      }
    }
  }

  async #renew(): Promise<void> {
    const ageing = this.#held.ageing();
    if (ageing.length === 0) return;
    const asked = now();
    const messages = ageing.map(({ message }) => message);
    const results = await this.hr.extend(this.topic, this.group, messages, Math.ceil(this.#held.leaseMs / 1000));
    ageing.forEach((holding, index) => {
      const error = results[index]?.error;
      if (!error) holding.renewed = asked;
      else if (!error.retryable) this.#held.lose(holding);
    });
    this.#notify();
  }

  async #beat(): Promise<void> {
    if (this.#name === undefined || elapsedMs(this.#signOfLife) < BEAT_MS) return;
    this.#signOfLife = now();
    const params = { path: { topic: this.topic, group: this.group, consumer: this.#name } };
    const body = { instance: this.#instance };
    await answerOf(this.hr.api.POST("/v1/topics/{topic}/groups/{group}/consumers/{consumer}/heartbeat", { params, body }));
  }

  /** How long to wait before calls like the one that failed. Ends the consumer where waiting does not help. */
  #waitMs(kind: string, error: unknown): number {
    if (isGone(error)) this.#isJoined = false;
    if (isRetryable(error) || (isGone(error) && this.#lastSeenMs !== undefined)) return this.#health.fails(kind, error);
    this.#fail(error);
    return 0;
  }

  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#end();
  }

  #end(): void {
    this.#stop.abort();
    this.#giveBack();
    this.#notify();
  }

  #giveBack(holdings = this.#held.of("waiting")): void {
    for (const holding of holdings) this.#settling.settle(holding, { untried: true });
  }

  /** Let handlers finish, give back what takes too long, and leave, within the limit. */
  async #drain(polling: Promise<void>, keeping: Promise<void>): Promise<void> {
    const lastMs = Math.min(LAST_MS, this.#drainMs / 2);
    const idle = this.#finish(this.#failure ? undefined : polling); // what it still receives is given back
    await within(this.#drainMs - lastMs, idle);
    const cutOff = this.#held.of("running").filter(({ isLost }) => !isLost);
    for (const holding of cutOff) this.#settling.settle(holding, CUT_OFF);
    if (cutOff.length > 0) {
      this.#report(new Error("its handler still runs, and it is given back"), cutOff.map(({ message }) => message));
    }
    const leave = async (): Promise<void> => {
      await this.#finish();
      this.#ended.abort();
      await keeping;
      await this.#leave();
    };
    await within(lastMs, idle.then(leave));
    this.#ended.abort();
    this.#settling.close();
    const rest = this.#held.of("settling").map(({ message }) => message);
    if (rest.length > 0) this.#report(new Error("not settled before the end; comes again when its lease ends"), rest);
  }

  /** Until all is settled. */
  async #finish(polling?: Promise<void>): Promise<void> {
    await polling;
    while (this.#held.size > 0) await this.#change();
  }

  /** Leave the group. A name of the user's keeps its place in a broadcast; one that was taken over is another process's. */
  async #leave(): Promise<void> {
    const { error } = this.#failure ?? {};
    const isTakenOver = error instanceof HeadraceError && error.code === "CONSUMER_TAKEN_OVER";
    if (this.#name === undefined || !this.#isJoined || isTakenOver || this.#keepsPlace) return;
    const params = { path: { topic: this.topic, group: this.group, consumer: this.#name } };
    try {
      await this.hr.api.DELETE("/v1/topics/{topic}/groups/{group}/consumers/{consumer}", { params });
    } catch (error) {
      this.#report(error);
    }
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  /** The next end of a handler or a settlement. */
  async #change(): Promise<void> {
    await pause(Infinity, this.#changed.signal);
  }

  #notify(): void {
    this.#changed.abort();
    this.#changed = new AbortController();
  }

  #report(error: unknown, messages: Message<Body>[] = []): void {
    const place = [`${this.topic}/${this.group}`, ...messages.map(({ id }) => id)].join(" ");
    const { onError = (): void => console.warn(`headrace: ${place}:`, error) } = this.given;
    safely(() => onError(error, messages));
  }
}

/** Until it has ended, or so many milliseconds are over. */
async function within(ms: number, work: Promise<void>): Promise<void> {
  const end = new AbortController();
  await Promise.race([work.finally(() => end.abort()), pause(ms, end.signal)]);
}

/** A name that no other process has. */
function madeName(): string {
  const { process } = globalThis as { process?: { pid?: number; env?: Record<string, string | undefined> } };
  const host = (process?.env?.["HOSTNAME"] ?? "").replace(/[^A-Za-z0-9.-]/g, "-").replace(/^[-.]+/, "").slice(0, 60);
  return [host || "ts", process?.pid ?? 0, randomId().replace(/[^A-Za-z0-9]/g, "").slice(0, 6)].join("-");
}
