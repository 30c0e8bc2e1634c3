import { HeadraceError } from "./errors.js";
import { backoffMs } from "./time.js";

const GONE = ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND", "CONSUMER_NOT_FOUND"];

/** Is what the call is about missing? It may be created again. */
export function isGone(error: unknown): error is HeadraceError {
  return error instanceof HeadraceError && GONE.includes(error.code);
}

export function isRetryable(error: unknown): error is HeadraceError {
  return error instanceof HeadraceError && error.retryable;
}

/** Which kinds of calls fail now. Only changes of that are reported: what begins to be missing or to fail, and the recovery of all. */
export class Health {
  readonly #failures = new Map<string, number>();
  #reported: string | undefined;

  constructor(
    private readonly onError: (error: unknown) => void,
    private readonly onRecover: () => void,
  ) {}

  /** Returns how long to wait, in milliseconds: longer after each failure in a row. */
  fails(kind: string, error: HeadraceError): number {
    const state = error.retryable ? "UNAVAILABLE" : error.code;
    if (state !== this.#reported) this.onError(error);
    this.#reported = state;
    const failures = (this.#failures.get(kind) ?? 0) + 1;
    this.#failures.set(kind, failures);
    return backoffMs(failures);
  }

  works(kind: string): void {
    if (!this.#failures.delete(kind) || this.#failures.size > 0) return;
    this.#reported = undefined;
    this.onRecover();
  }
}
