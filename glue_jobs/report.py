"""Show what went through: by topic, group and day volumes, latencies, attempts, failures, dead letters and backlog.

Writes, under reports/<first day>_<last day>/ of the bucket, each table as Parquet (a folder) and as CSV, and
report.html: one page with charts that needs nothing else. Reads the archive only; running it again replaces its own
files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from glue_jobs.common import job
from glue_jobs.reporting import options, run


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    arguments = options.of_report(__doc__, argv)
    return job.run("report", arguments, lambda start, bucket: run.run(start, bucket, arguments))


if __name__ == "__main__":
    sys.exit(main())
