"""Turn small files of the archive into sorted ones of a target size.

A partition is rewritten where it would have fewer files. The new files are read again and must have just the rows and
the checksum that the manifest names; then the manifest is switched; the old files stay for readers for a while and go
with a later run. --grace-minutes 0 removes them at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from glue_jobs.archiving import compaction, options
from glue_jobs.common import job
from glue_jobs.common.job import exclusive


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    arguments = options.of_compact(__doc__, argv)

    def work() -> int:
        with exclusive(arguments.folder):
            return job.run(
                "compact", arguments, lambda start, bucket: compaction.run(start, bucket, arguments)
            )

    return job.run_guarded("compact", work)


if __name__ == "__main__":
    sys.exit(main())
