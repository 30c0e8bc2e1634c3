"""`make repair` and `headrace-local repair`: put right what does not fit together after tables were restored.

Safe at any time: it deletes nothing, and may be stopped and run again. A message may be delivered twice by it."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from chalicelib import settings
from chalicelib.adapters import dynamo_adapters
from chalicelib.api.fields import at
from chalicelib.api.parse import time_ms
from chalicelib.domain.errors import HeadraceError
from chalicelib.services.manage.repair import TRUST_MINUTES, Finding, Kind
from chalicelib.wiring import Deps
from local import Unusable
from local.clock import HandClock
from local.env import engine_of
from local.key_file import FileCipher
from local.options import add_data

_DESCRIPTION = """\
Look at every topic, and put right what does not fit together because tables were restored to different times. It
deletes nothing and may be run at any time, and again. docs/restore.md says what to do before and after."""
_TOLD_EVERY = 100
_SEEK = (
    "Messages that were accepted since the restore at these places are not delivered: seek each of these groups to the "
    f"time of the restore. If the service was open meanwhile, run this again in {TRUST_MINUTES} minutes."
)
_AUDIT_OLDER = (
    "The audit trail has no change since then. If the table `audit` was restored, too, what was revoked is valid again "
    "and is known nowhere: --revoke-all-but ID revokes every token but yours."
)


def main(program: str, arguments: Sequence[str]) -> int:
    """The command line."""
    options = _parser(program).parse_args(arguments)
    if options.revoke_all_but and options.dry_run:
        raise Unusable("--revoke-all-but revokes: leave out --dry-run.")
    since_ms = time_ms(options.since, "--since") if options.since else None
    with ExitStack() as stack:
        if options.prefix:
            from local.token import check_stage

            os.environ["HEADRACE_PREFIX"] = options.prefix
            check_stage(options.prefix)
            deps = Deps(dynamo_adapters(settings.read()))
        else:
            os.environ |= stack.enter_context(engine_of(options.data))
            cipher = FileCipher(options.data / "key")
            clock = HandClock(options.data / "clock")
            deps = Deps(dynamo_adapters(settings.read(), clock, cipher=cipher))
        if options.revoke_all_but:
            print(f"Revoked {deps.audit_replay.revoke_all_but(options.revoke_all_but)} tokens.")
        if since_ms is not None:
            _replay_audit(deps, since_ms, dry=options.dry_run)
        return _repair(deps, options.after, dry=options.dry_run)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=_DESCRIPTION)
    parser.add_argument("--dry-run", action="store_true", help="only say what is found, and what it costs")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="the time to which the table `control` was restored: revoke and rotate again what was revoked and "
        "rotated since, by the audit trail",
    )
    parser.add_argument("--revoke-all-but", metavar="ID", help="revoke every token but the one with this id")
    parser.add_argument("--after", metavar="TOPIC", help="begin behind this topic, where a run was stopped")
    parser.add_argument("--prefix", help="of a stage on AWS (make repair STAGE=... finds it)")
    add_data(parser)
    return parser


def _replay_audit(deps: Deps, since_ms: int, *, dry: bool) -> None:
    is_empty = True
    for each in deps.audit_replay.since(since_ms, dry=dry):
        is_empty = False
        if each.done or each.advice:
            entry = each.entry
            what = f"{at(entry.at_ms)} {entry.method} {entry.path}: {entry.object}, by {entry.token_name}"
            done = ("is done again: " if dry else "done again: ") if each.done else ""
            print(f"{done}{what}{f'. Left to do: {each.advice}' if each.advice else ''}")
    if is_empty:
        print(_AUDIT_OLDER)


def _repair(deps: Deps, after: str | None, *, dry: bool) -> int:
    """Print each finding as it is put right; 1 if a topic could not be read."""
    counts = Counter[Kind]()
    writes = Counter[Kind]()
    topics = failures = 0
    last = after

    def tell(findings: Iterator[Finding]) -> None:
        for finding in findings:
            counts[finding.kind] += 1
            writes[finding.kind] += finding.write_units
            print(_line(finding), flush=True)

    with deps.adapters.units() as units:
        try:
            for topic in deps.adapters.control.topics_behind(after):
                try:
                    tell(deps.repair.topic(topic, dry=dry))
                except HeadraceError as error:
                    failures += 1
                    print(f"{topic.name}: left out, for {error.detail}", file=sys.stderr)
                topics, last = topics + 1, topic.name
                if topics % _TOLD_EVERY == 0:
                    print(f"{topics:,} topics, the last is {last} …", file=sys.stderr)
            tell(deps.repair.retries(dry=dry))
        except (KeyboardInterrupt, SystemExit):  # by Ctrl-C, or another signal
            failures += 1
            print(f"Stopped. Go on with --after {last}" if last else "Stopped.", file=sys.stderr)
    print(f"{topics:,} topics: {counts.total():,} findings. Read {units.reads:,.0f} read units.")
    print(f"{'Would write' if dry else 'Wrote'} {writes.total():,} write units.")
    if counts[Kind.LOG_BEHIND]:
        print(_SEEK)
    return 1 if failures else 0


def _line(finding: Finding) -> str:
    place = finding.topic if finding.shard is None else f"{finding.topic}/{finding.shard}"
    group = f" ({finding.group})" if finding.group else ""
    lane = " in the retry lane" if finding.group and finding.shard is None else ""
    last = finding.offset + finding.count - 1
    offsets = f"{finding.offset}" if finding.count == 1 else f"{finding.offset}-{last}"
    lost = f"; missing, and not delivered: {finding.lost:,}" if finding.lost else ""
    if finding.kind is Kind.NO_CHECK:
        return f"{place}: {finding.kind}"
    return f"{place}{group}: {finding.kind}{lane}, offsets {offsets}{lost}"


if __name__ == "__main__":
    from local.token import on_stage

    with on_stage():
        sys.exit(main("make repair", sys.argv[1:]))
