"""Send archived messages again: from the archive into a topic, or to one of its groups.

A replay is created in the service, which checks it and knows every message that was sent under it: after any failure
run the job again, and no message is sent twice. There are two ways to choose the replay:

  --replay ID                                  one that POST /v1/topics/{topic}/replays has made
  --topic orders --from 2026-11-01 --to …      make one now, and run it; --dry-run yes only counts

  python -m glue_jobs.replay --topic orders --from 2026-11-01 --to 2026-11-02T12:00:00Z \\
      --where "customer.country = 'FI' AND total > 100" --into orders-again --rate 50

The token is HEADRACE_TOKEN, else what HEADRACE_DATA/token holds; on AWS the secret that --token-secret names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from glue_jobs.common import access, job
from glue_jobs.replaying import options, run


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    arguments = options.of_replay(__doc__, argv)

    def work() -> int:
        return run.run(arguments, access.service(arguments))

    return job.run_guarded("replay", work)


if __name__ == "__main__":
    sys.exit(main())
