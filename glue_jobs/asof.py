"""Show a topic as it was: what was waiting, in flight, being retried, dead or done at a moment in the past, per group.

  python -m glue_jobs.asof --topic orders --at 2026-11-20T09:30:00Z
  python -m glue_jobs.asof --topic orders --group billing --at 2026-11-20T09:30:00Z --list 20

Reads the archive only, so archive first. The last line is a summary in JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from glue_jobs.common import job
from glue_jobs.reporting import as_of, options


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    arguments = options.of_asof(__doc__, argv)
    return job.run("asof", arguments, lambda start, bucket: as_of.run(start, bucket, arguments))


if __name__ == "__main__":
    sys.exit(main())
