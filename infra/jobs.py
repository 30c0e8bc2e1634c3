"""`python -m infra.jobs asof --stage dev -- --topic orders …`: start a job of the archive on AWS."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from .__main__ import add_options, given_options
from .cli import Aws
from .glue import job_names
from .stages import read
from .template import StackError


def start(aws: Aws, prefix: str, job: str, arguments: Sequence[str]) -> str:
    """Start a job of a stack, with arguments as the job takes them (`--name value`, `--name=value`); the run's id.

    Raises StackError."""
    parts = [part for each in arguments for part in (each.split("=", 1) if each.startswith("--") else [each])]
    names, values = parts[::2], parts[1::2]
    if len(names) != len(values) or not all(name.startswith("--") for name in names):
        raise StackError(
            f"The job's arguments come in pairs, such as --topic orders, not {' '.join(arguments)}"
        )
    text = json.dumps(dict(zip(names, values, strict=True)))
    answer = aws.ask("glue", "start-job-run", "--job-name", f"{prefix}-{job}", "--arguments", text)
    return str(answer["JobRunId"])


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.jobs", description=__doc__, epilog="What stands behind -- is for the job."
    )
    parser.add_argument("job", choices=job_names())
    add_options(parser)
    args = sys.argv[1:] if arguments is None else arguments
    end = args.index("--") if "--" in args else len(args)
    options = parser.parse_args(args[:end])
    try:
        prefix = read(options.stage, given_options(options)).prefix
        run_id = start(Aws(), prefix, options.job, args[end + 1 :])
    except StackError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{prefix}-{options.job} runs as {run_id}. It takes a minute or two to start. What it prints:")
    print(f"aws logs tail /aws-glue/{prefix}/output --log-stream-name-prefix {run_id} --follow")
    return 0


if __name__ == "__main__":
    sys.exit(main())
