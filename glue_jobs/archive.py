"""Archive closed windows: journal to Parquet tables of messages and deliveries, with a proof that nothing is lacking.

Without --window, every day whose journal has changed since it was archived (late data), or never was. A window that
was archived before and has the same journal keeps its files. Missing offsets are fetched from DynamoDB into the
journal; what is nowhere is reported, and the exit code is 3. A day that fails stops no other day.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from glue_jobs.archiving import options, run
from glue_jobs.common import job
from glue_jobs.common.job import exclusive


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    arguments = options.of_archive(__doc__, argv)

    def work() -> int:
        with exclusive(arguments.folder):
            return job.run("archive", arguments, lambda start, bucket: run.run(start, bucket, arguments))

    return job.run_guarded("archive", work)


if __name__ == "__main__":
    sys.exit(main())
