"""Compare two groups over the same messages: today's consumer, and tomorrow's in the shadow.

Replay the messages into a topic of their own, let a group there run tomorrow's consumer, archive, and compare:

  python -m glue_jobs.replay --topic orders --from 2026-11-01 --to 2026-11-02 --into orders-shadow
  python -m glue_jobs.archive --open yes
  python -m glue_jobs.compare --topic orders --group billing --shadow orders-shadow --shadow-group next

Writes, under reports/shadows/ of the bucket, each message with its outcome, attempts and duration in both groups, as
Parquet (a folder) and as CSV, those that differ first. Prints what differs, and both groups in all. The last line is a
summary in JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from glue_jobs.common import job
from glue_jobs.reporting import options, shadow


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    arguments = options.of_compare(__doc__, argv)
    return job.run("compare", arguments, lambda start, bucket: shadow.run(start, bucket, arguments))


if __name__ == "__main__":
    sys.exit(main())
