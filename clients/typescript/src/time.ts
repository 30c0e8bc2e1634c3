const MOST_MS = 2 ** 31 - 1; // a longer timer ends at once
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;

/** A moment by both clocks. */
export interface Moment {
  readonly wallMs: number;
  readonly steadyMs: number;
}

export function now(): Moment {
  return { wallMs: Date.now(), steadyMs: performance.now() };
}

/** How long ago it was, by the clock that counts more: the wall clock may be set back, and the steady clock stops while the machine sleeps. */
export function elapsedMs(since: Moment): number {
  return Math.max(Date.now() - since.wallMs, performance.now() - since.steadyMs);
}

/** Waits so long, or until `signal` aborts: then it resolves at once. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return;
  await new Promise<void>((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, timerMs(ms));
    signal?.addEventListener("abort", end);
  });
}

/** The longest timer that there is, for a longer time. */
export function timerMs(ms: number): number {
  return Math.min(ms, MOST_MS);
}

/** How long to wait after the `failures`-th failure in a row: twice as long each time, up to a limit, less a random part. */
export function backoffMs(failures: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1)) * (0.5 + Math.random() / 2);
}
