"""Forget one message: remove its content from DynamoDB, the large bodies, the journal and the archive.

  python -m glue_jobs.forget --topic orders --id 3f9k2m-0-7 --dry-run yes

Its place stays, as a cancelled message, so the proof counts it as known. What stays of its attempts is when they began
and how they ended. A message that was delayed has an id that does not say where it is: add --place SHARD/OFFSET, as
`headrace message` shows them. With --folder, its day is archived again at once; on AWS, run the printed command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from glue_jobs.archiving import forgetting, options
from glue_jobs.common import job
from glue_jobs.common.job import exclusive


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    arguments = options.of_forget(__doc__, argv)

    def work() -> int:
        with exclusive(arguments.folder):
            return job.run(
                "forget", arguments, lambda start, bucket: forgetting.run(start, bucket, arguments)
            )

    return job.run_guarded("forget", work)


if __name__ == "__main__":
    sys.exit(main())
