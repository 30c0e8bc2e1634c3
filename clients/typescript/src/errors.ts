import type { components } from "./schema.js";

export type Problem = components["schemas"]["Problem"];

/** What Headrace refused, or that nobody answered. `code` is stable; docs/errors.md says what to do about each. */
export class HeadraceError extends Error {
  override readonly name = "HeadraceError";

  constructor(
    readonly code: string,
    readonly detail: string,
    /** The HTTP status; 0 where nothing came back. */
    readonly status: number = 0,
    /** May the same request succeed later? */
    readonly retryable: boolean = false,
    /** What to name when reporting a fault. */
    readonly requestId?: string,
    /** What is wrong with which field. */
    readonly issues: readonly { path: string; issue: string }[] = [],
  ) {
    super(`${code}: ${detail}`);
  }

  /** The error of a problem document; one that is none (a proxy's page, say) keeps its status. */
  static of(problem: unknown, status: number): HeadraceError {
    const perhapsLater = status >= 500 || status === 429;
    if (!isProblem(problem)) {
      return new HeadraceError("UNEXPECTED", `An answer ${status} that is not Headrace's.`, status, perhapsLater);
    }
    const { code, detail = "", retryable = perhapsLater, request_id: requestId, errors } = problem;
    return new HeadraceError(code, detail, status, retryable, requestId, errors ?? []);
  }
}

/** Is it a problem document, as Headrace writes them? */
export function isProblem(json: unknown): json is Partial<Problem> & { code: string } {
  return typeof (json as { code?: unknown } | null | undefined)?.code === "string";
}

/** The answer of a call of `api`. HeadraceError where it was refused. */
export async function answerOf<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (data === undefined) throw HeadraceError.of(error, response.status);
  return data;
}
