import { randomId } from "./bytes.js";
import type { Headrace, Message } from "./client.js";
import { answerOf, HeadraceError } from "./errors.js";
import { ensureGroup, type GroupOptions } from "./groups.js";
import { Health, isGone } from "./health.js";
import { Bury, Retry, type Verdict, verdictOf } from "./outcomes.js";
import { type Holding, Settling } from "./settling.js";
import { elapsedMs, now, pause } from "./time.js";

const MOST = 1000; // messages of one call, and in hand
const LONGEST_REST_MS = 1000;
const BEAT_MS = 15_000; // a consumer that is silent for 30 seconds is offline
const EXPIRES_AFTER_SECONDS = 3600;

/** How a consumer works. A group that is missing is created with `mode`, `tags` and `from`. */
export interface ConsumeOptions extends GroupOptions {
  /** How many handlers run at a time (1). */
  concurrency?: number;
  /** How many messages wait for a handler (as many as handlers run). */
  prefetch?: number;
  /** When it aborts, handlers finish, messages whose handler has not begun are given back, and `consume` resolves. */
  signal?: AbortSignal;
  /** How long that may take (25); then `consume` resolves, and unfinished messages come again when their leases end. */
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
  readonly #options: Required<Pick<ConsumeOptions, "concurrency" | "prefetch" | "drainSeconds" | "wait_seconds">>;
  readonly #name: string | undefined;
  readonly #instance = randomId();
  readonly #held = new Map<string, Holding<Body>>(); // by receipt, until it is settled
  readonly #stop = new AbortController();
  readonly #ended = new AbortController();
  readonly #health: Health;
  readonly #settling: Settling<Body>;
  #waiting: Holding<Body>[] = [];
  #running = 0;
  #changed = new AbortController();
  #leaseMs = Infinity;
  #mode: string | undefined;
  #topicSince: string | undefined; // known once the consumer has joined
  #isJoined = false;
  #signOfLife = now();
  #failure: { error: unknown } | undefined;

  constructor(
    private readonly hr: Headrace,
    private readonly topic: string,
    private readonly group: string,
    private readonly handler: Handler<Body>,
    private readonly given: ConsumeOptions,
  ) {
    const { concurrency = 1, prefetch = concurrency, drainSeconds = 25, wait_seconds = 10 } = given;
    if (!Number.isInteger(concurrency) || concurrency < 1) throw new RangeError(`concurrency is a whole number from 1 on, not ${concurrency}.`);
    if (!Number.isInteger(prefetch) || prefetch < 0) throw new RangeError(`prefetch is a whole number from 0 on, not ${prefetch}.`);
    this.#options = { concurrency, prefetch, drainSeconds, wait_seconds };
    this.#name = given.register === false ? undefined : (given.consumer ?? madeName());
    const onRecover = given.onRecover ?? ((): void => console.info(`headrace: ${topic}/${group}: calls work again`));
    this.#health = new Health((error) => this.#report(error), onRecover);
    this.#settling = new Settling({
      call: (verdict, messages) =>
        verdict === "ack" ? hr.ack(topic, group, ...messages) : hr.nack(topic, group, messages, verdict),
      health: this.#health,
      leaseMs: () => this.#leaseMs,
      onEnd: (holding) => this.#drop(holding),
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
    const finished = new AbortController();
    const finish = this.#finish(polling, keeping).then(() => finished.abort());
    await Promise.race([finish, pause(this.#options.drainSeconds * 1000, finished.signal)]);
    this.#ended.abort();
    this.#settling.close();
    if (this.#held.size > 0) {
      const rest = [...this.#held.values()].map(({ message }) => message);
      this.#report(new Error(`not settled within ${this.#options.drainSeconds} seconds; comes again when the lease ends`), rest);
    }
    if (this.#failure) throw this.#failure.error;
  }

  /** Receive and hand out, until stopped. Errors that may pass are waited out; others end it. */
  async #poll(): Promise<void> {
    const { concurrency, prefetch } = this.#options;
    let restMs = 0;
    while (!this.#isStopped) {
      const began = performance.now();
      try {
        if (!this.#isJoined) await this.#join();
        const room = Math.min(concurrency + prefetch - this.#running - this.#waiting.length, MOST - this.#held.size);
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

  /** Ensure the group, learn its lease, register. */
  async #join(): Promise<void> {
    const { hr, topic, group, given } = this;
    const { lease_seconds, created_at } = await answerOf(hr.api.GET("/v1/topics/{topic}", { params: { path: { topic } } }));
    const isSameTopic = created_at === this.#topicSince; // whose group was deleted: made anew, it would bring every message again
    const path = { topic, group };
    const ours = isSameTopic
      ? await answerOf(hr.api.GET("/v1/topics/{topic}/groups/{group}", { params: { path } }))
      : await ensureGroup(hr, topic, group, given);
    this.#mode = ours.mode;
    this.#leaseMs = 1000 * (given.lease_seconds ?? ours.lease_seconds ?? lease_seconds);
    if (this.#name !== undefined) {
      const body = { instance: this.#instance, ...(given.consumer ? {} : { expires_after_seconds: EXPIRES_AFTER_SECONDS }) };
      const params = { path: { ...path, consumer: this.#name } };
      await answerOf(hr.api.PUT("/v1/topics/{topic}/groups/{group}/consumers/{consumer}", { params, body }));
    }
    this.#topicSince = created_at;
    this.#isJoined = true;
  }

  async #receive(max: number): Promise<number> {
    const { lease_seconds } = this.given;
    this.#signOfLife = now();
    const messages = await this.hr.receive<Body>(this.topic, this.group, {
      max,
      wait_seconds: this.#options.wait_seconds,
      ...(lease_seconds === undefined ? {} : { lease_seconds }),
      ...(this.#name === undefined ? {} : { consumer: this.#name, instance: this.#instance }),
    });
    this.#health.works("receive");
    const renewed = now();
    for (const message of messages) {
      const holding = { message, renewed };
      this.#held.set(message.receipt, holding);
      this.#waiting.push(holding);
    }
    if (this.#isStopped) this.#giveBack();
    this.#begin();
    return messages.length;
  }

  /** Begin as many handlers as there are places. */
  #begin(): void {
    while (this.#running < this.#options.concurrency) {
      const holding = this.#waiting.shift();
      if (!holding) return;
      if (elapsedMs(holding.renewed) > this.#leaseMs) this.#drop(holding); // another consumer may have it
      else void this.#handle(holding);
    }
  }

  async #handle(holding: Holding<Body>): Promise<void> {
    this.#running++;
    let verdict: Verdict = "ack";
    try {
      await this.handler(holding.message);
    } catch (error) {
      verdict = verdictOf(error);
      if (!(error instanceof Bury || error instanceof Retry)) this.#report(error, [holding.message]);
    }
    this.#running--;
    if (this.#held.has(holding.message.receipt)) this.#settling.settle(holding, verdict);
    this.#begin();
    this.#notify();
  }

  /** Renew leases that are half over, and stay online while handlers take long. */
  async #keep(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      await pause(Math.min(this.#leaseMs / 8, 1000), this.#ended.signal);
      if (!this.#isJoined || this.#ended.signal.aborted) continue;
      try {
        await this.#renew();
        await this.#beat();
        this.#health.works("keep");
      } catch (error) {
        await pause(this.#waitMs("keep", error), this.#ended.signal);
      }
    }
  }

  async #renew(): Promise<void> {
    const isOld = ({ isSettling, renewed }: Holding<Body>): boolean => !isSettling && elapsedMs(renewed) > this.#leaseMs / 2;
    const ageing = [...this.#held.values()].filter(isOld);
    if (ageing.length === 0) return;
    const asked = now();
    const messages = ageing.map(({ message }) => message);
    const results = await this.hr.extend(this.topic, this.group, messages, Math.ceil(this.#leaseMs / 1000));
    ageing.forEach((holding, index) => {
      const error = results[index]?.error;
      if (!error) holding.renewed = asked;
      else if (!error.retryable) this.#drop(holding);
    });
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
    const mayPass = isGone(error) ? this.#topicSince !== undefined : error instanceof HeadraceError && error.retryable;
    if (isGone(error)) this.#isJoined = false;
    if (mayPass) return this.#health.fails(kind, error);
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

  #giveBack(): void {
    for (const holding of this.#waiting.splice(0)) this.#settling.settle(holding, { untried: true });
  }

  /** Until all is settled, and the consumer has left its group. */
  async #finish(polling: Promise<void>, keeping: Promise<void>): Promise<void> {
    if (!this.#failure) await polling; // what it still receives is given back
    while (this.#held.size > 0) await this.#change();
    this.#ended.abort();
    await keeping;
    await this.#leave();
  }

  /** Leave the group. A name of the user's keeps its place in a broadcast; one that was taken over is another process's. */
  async #leave(): Promise<void> {
    const isAnothers = this.#failure?.error instanceof HeadraceError && this.#failure.error.code === "CONSUMER_TAKEN_OVER";
    if (this.#name === undefined || !this.#isJoined || isAnothers || (this.given.consumer && this.#mode === "broadcast")) return;
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

  #drop({ message }: Holding<Body>): void {
    this.#held.delete(message.receipt);
    this.#notify();
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
    try {
      if (this.given.onError) this.given.onError(error, messages);
      else console.warn(`headrace: ${[`${this.topic}/${this.group}`, ...messages.map(({ id }) => id)].join(" ")}:`, error);
    } catch (failure) {
      console.error("headrace: onError failed:", failure);
    }
  }
}

/** A name that no other process has. */
function madeName(): string {
  const { process } = globalThis as { process?: { pid?: number; env?: Record<string, string | undefined> } };
  const host = (process?.env?.["HOSTNAME"] ?? "").replace(/[^A-Za-z0-9.-]/g, "-").replace(/^[-.]+/, "").slice(0, 60);
  return [host || "ts", process?.pid ?? 0, randomId().replace(/[^A-Za-z0-9]/g, "").slice(0, 6)].join("-");
}
