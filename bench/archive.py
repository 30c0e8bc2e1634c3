"""Archiving messages and 2.2 attempts of each, beside DuckDB doing the same on the same files in the same run.

    python -m bench.archive --rows 1000000 5000000 --topics 10 2000

Needs PySpark, which `make archive` installs. Not one of `python -m bench`: it measures
a job, not the service.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .figures import Figure, markdown, plain, without_target
from .process import usage_of

_NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
_NOW = "2026-11-23T06:00:00Z"
_SHARDS = 4
_BATCH = 5_000  # lines in an object
_SECOND_TRIES = 5  # one message in so many is tried seven times, else once
_MOST_TRIES = 7
_AGAIN = 50  # one in so many objects comes a second time, in other company
_EVENTS = Path(__file__).parents[1] / "examples" / "flights.jsonl.gz"
_STRIDE = 7_919  # neighbours are no neighbours


def main() -> int:
    """Measure; exit code 1 where a figure misses its target."""
    parser = argparse.ArgumentParser(prog="python -m bench.archive", description=__doc__)
    sizes = "messages to archive, several numbers if you like (200,000 and 1,000,000)"
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000], help=sizes)
    parser.add_argument(
        "--topics", type=int, nargs="+", default=[10, 2_000], help="that they are of (10 and 2,000)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/archive.md")
    hint = "where the journals are written, and stay for the next time; 20,000,000 need 1 GB and 12 GB more for a while"
    parser.add_argument("--folder", type=Path, help=f"{hint} (a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        figures = measure(args.folder or Path(temporary), sorted(args.rows), args.topics)
    print(markdown(figures) if args.markdown else plain(figures))
    return 1 if any(figure.met is False for figure in figures) else 0


def measure(folder: Path, sizes: Sequence[int], all_topics: Sequence[int]) -> list[Figure]:
    """The figures for so many messages, of each number in rising order, of so many topics."""
    figures = []
    for topics in all_topics:
        jobs = []
        for rows in sizes:
            place = folder / f"{rows}-{topics}"
            job = _archive(place, rows, topics)
            jobs.append(job)
            figures += _archiving_figures(rows, topics, job, _duckdb(place))
        least, most = jobs[0], jobs[-1]
        if len(jobs) > 1:
            extra_cpu = (most["cpu_seconds"] - least["cpu_seconds"]) / (sizes[-1] - sizes[0])
            figures.append(without_target("CPU of a message more", f"{extra_cpu * 1e6:.1f} µs"))
        size, journal = most["bytes"] / sizes[-1], most["journal"] / sizes[-1]
        text = f"{journal:.0f} in the journal, {most['files']} files"
        figures.append(without_target("bytes a message, with its attempts", f"{size:.0f}", text))
    return figures


def _archiving_figures(
    rows: int, topics: int, job: dict[str, Any], duck: tuple[float, float]
) -> list[Figure]:
    """What a job took for so many messages, beside DuckDB."""
    duck_seconds, duck_cpu = duck
    work = f"{rows:,} messages of {topics:,} topics, {job['deliveries']:,} attempts"
    return [
        without_target(f"{work}: CPU", f"{job['cpu_seconds']:.0f} s", f"DuckDB {duck_cpu:.0f} s"),
        without_target("time", f"{job['seconds']:.0f} s", f"DuckDB {duck_seconds:.0f} s"),
        without_target("peak memory", f"{job['peak_mb']:,} MB"),
    ]


def _archive(folder: Path, rows: int, topics: int) -> dict[str, Any]:
    journal = folder / "journal"
    if not journal.exists():
        _write(journal, rows, topics)
    shutil.rmtree(folder / "archive", ignore_errors=True)
    result = _run_job("archive", folder, "--now", _NOW, "--backfill", "no")
    assert result["messages"] == rows, result
    size = sum(path.stat().st_size for path in journal.rglob("*.gz"))
    return {**result, "journal": size}


def _run_job(name: str, folder: Path, *argv: str) -> dict[str, Any]:
    """Run a job in a process of its own; its summary, the most memory it had, and its CPU time."""
    command = [
        sys.executable,
        "-m",
        f"glue_jobs.{name}",
        "--bucket",
        "headrace",
        "--folder",
        str(folder),
        *argv,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        peak, cpu_seconds = 0, 0.0
        while job.poll() is None:
            usage = usage_of(job.pid)
            peak, cpu_seconds = max(peak, usage.resident_mb), max(cpu_seconds, usage.cpu_seconds)
            time.sleep(0.2)
        output = job.stdout.read() if job.stdout else ""
    print(output.strip(), file=sys.stderr, flush=True)
    assert job.returncode == 0, job.returncode
    return {**json.loads(output.splitlines()[-1]), "peak_mb": peak, "cpu_seconds": cpu_seconds}


def _duckdb(folder: Path) -> tuple[float, float]:
    """Seconds, and seconds of CPU: the last edition of each offset and each attempt with its message's id, sorted;
    two threads, 2 GB."""
    import duckdb

    out, place = folder / "duck", 'topic, topic_uid, shard, "offset"'
    out.mkdir()
    start, before = time.monotonic(), time.process_time()
    db = duckdb.connect(config={"threads": 2, "memory_limit": "2GB", "temp_directory": str(folder / "tmp")})
    db.execute(
        f"""copy (
            select topic, topic_uid, shard, "offset", id, make_timestamp(accepted_ms * 1000) as accepted_at, tag, keys,
                ordering_key, headers, content_type, encode(body) as body
            from read_json('{folder}/journal/messages/*/*/*.gz', format='newline_delimited', columns={{
                v: 'INT', topic: 'VARCHAR', topic_uid: 'VARCHAR', shard: 'INT', "offset": 'BIGINT', id: 'VARCHAR',
                edition: 'BIGINT', accepted_ms: 'BIGINT', tag: 'VARCHAR', keys: 'VARCHAR[]', ordering_key: 'VARCHAR',
                headers: 'MAP(VARCHAR, VARCHAR)', content_type: 'VARCHAR', body: 'VARCHAR'}})
            qualify row_number() over (partition by {place} order by edition desc) = 1
            order by {place}
        ) to '{out}/messages.parquet' (format parquet, compression zstd)"""
    )
    db.execute(
        f"""copy (
            select a.* exclude (trace), m.id
            from read_json('{folder}/journal/deliveries/*/*/*.gz', format='newline_delimited', columns={{
                topic: 'VARCHAR', topic_uid: 'VARCHAR', "group": 'VARCHAR', group_uid: 'VARCHAR', shard: 'INT',
                "offset": 'BIGINT', attempt: 'INT', consumer: 'VARCHAR', started_ms: 'BIGINT', duration_ms: 'BIGINT',
                outcome: 'VARCHAR', detail: 'VARCHAR', trace: 'VARCHAR'}}) a
            left join '{out}/messages.parquet' m using ({place})
            qualify row_number() over (partition by {place}, "group", started_ms, trace) = 1
            order by topic, "group", topic_uid, shard, "offset"
        ) to '{out}/deliveries.parquet' (format parquet, compression zstd)"""
    )
    seconds, cpu_seconds = time.monotonic() - start, time.process_time() - before
    shutil.rmtree(out)
    return seconds, cpu_seconds


def _write(journal: Path, rows: int, topics: int) -> None:
    """A day's journal: topics of four shards, departures for bodies, some objects twice. An object has the lines of
    several shards, as a batch of the stream has."""
    each = rows // topics // _SHARDS
    shards = [(topic, shard) for topic in range(topics) for shard in range(_SHARDS)]
    at_once = max(1, _BATCH // each)
    tasks = [(journal, shards[n : n + at_once], each) for n in range(0, len(shards), at_once)]
    with multiprocessing.Pool(2) as pool:
        pool.map(_write_shards, tasks)


@cache
def _departures() -> list[str]:
    """Two thousand real departures: bodies as varied as in life compress as in life."""
    with gzip.open(_EVENTS, "rt") as file:
        return [line.strip() for line in file]


def _write_shards(task: tuple[Path, list[tuple[int, int]], int]) -> None:
    journal, shards, count = task
    events = _departures()
    for number, start in enumerate(range(0, count, _BATCH)):
        messages, attempts = [], []
        for topic, shard in shards:
            place = {"v": 1, "topic": f"topic-{topic:04}", "topic_uid": f"u{topic}", "shard": shard}
            for offset in range(start, min(start + _BATCH, count)):
                chance = offset * _STRIDE + shard
                messages.append(_message(place, offset, events[chance % len(events)]))
                tries = _MOST_TRIES if chance % _SECOND_TRIES == 0 else 1
                attempts += [
                    _attempt(place, offset, attempt, attempt == tries) for attempt in range(1, tries + 1)
                ]
        name = "-".join(map(str, (*shards[0], f"{number:06}")))
        for table, lines in (("messages", messages), ("deliveries", attempts)):
            text = gzip.compress("".join(lines).encode(), 6)
            home = journal / f"{table}/day=2026-11-21/hour=12"
            home.mkdir(parents=True, exist_ok=True)
            for copy in range(2 if number % _AGAIN == 1 else 1):
                (home / f"{name}-{copy}.jsonl.gz").write_bytes(text)


def _message(place: dict[str, Any], offset: int, body: str) -> str:
    shard, n = place["shard"], offset % 97
    line = {
        **place,
        "offset": offset,
        "edition": 0,
        "accepted_ms": _NOON_MS + offset,
        "id": f"{offset:012d}-{shard}-{offset:x}",
        "tag": "booked",
        "keys": [f"k{offset % 5003}"],
        "headers": {
            "source": "bench",
            **({"traceparent": f"00-{offset * _STRIDE:032x}-{n:016x}-01"} if n % 3 else {}),
        },
        "content_type": "application/json",
        "body": body,
    }
    return json.dumps(line, separators=(",", ":")) + "\n"


def _attempt(place: dict[str, Any], offset: int, attempt: int, is_last: bool) -> str:
    line = {
        **place,
        "group": "billing",
        "group_uid": f"g-{place['topic_uid']}",
        "offset": offset,
        "attempt": attempt,
        "consumer": f"worker-{offset % 7}",
        "consumer_uid": "",
        "started_ms": _NOON_MS + offset + attempt * 10_000,
        "duration_ms": offset % 211,
        "outcome": "SUCCESS" if is_last else "RETRY",
        "detail": "" if is_last else "503 Service Unavailable",
        "trace": f"{offset // 50}-{attempt}",
    }
    return json.dumps(line, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    os.environ.pop("AWS_ENDPOINT_URL_DYNAMODB", None)
    sys.exit(main())
