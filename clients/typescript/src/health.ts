import { HeadraceError } from "./errors.js";
import { backoffMs } from "./time.js";

const GONE = ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND", "CONSUMER_NOT_FOUND"];

/** Is what the call is about missing? It may be created again. */
export function isGone(error: unknown): boolean {
  return error instanceof HeadraceError && GONE.includes(error.code);
}

/** Which kinds of calls fail now. Only the first failure and the recovery of all are reported. */
export class Health {
  readonly #failures = new Map<string, number>();

  constructor(
    private readonly onError: (error: unknown) => void,
    private readonly onRecover: () => void,
  ) {}

  /** Returns how long to wait, in milliseconds: longer after each failure in a row. */
  fails(kind: string, error: unknown): number {
    if (this.#failures.size === 0) this.onError(error);
    const failures = (this.#failures.get(kind) ?? 0) + 1;
    this.#failures.set(kind, failures);
    return backoffMs(failures);
  }

  works(kind: string): void {
    if (this.#failures.delete(kind) && this.#failures.size === 0) this.onRecover();
  }
}
