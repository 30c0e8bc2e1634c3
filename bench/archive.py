"""Archiving and compacting, beside DuckDB doing the same on the same files in the same run.

    python -m bench.archive --rows 1000000 5000000 20000000

The smallest is compacted, too. Needs PySpark, which `make archive` installs. Not one of `python -m bench`: it measures
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
_TOPICS, _SHARDS = 10, 4
_BATCH = 5_000  # lines in an object
_AGAIN = 50  # one in so many objects comes a second time, in other company
_EVENTS = Path(__file__).parents[1] / "examples" / "flights.jsonl.gz"
_STRIDE = 7_919  # neighbours are no neighbours


def main() -> int:
    """Measure; exit code 1 where a figure misses its target."""
    parser = argparse.ArgumentParser(prog="python -m bench.archive", description=__doc__)
    sizes = "messages to archive, several numbers if you like (200,000 and 1,000,000)"
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000], help=sizes)
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/archive.md")
    hint = "where the journals are written, and stay for the next time; 20,000,000 need 1 GB and 12 GB more for a while"
    parser.add_argument("--folder", type=Path, help=f"{hint} (a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        figures = measure(args.folder or Path(temporary), sorted(args.rows))
    print(markdown(figures) if args.markdown else plain(figures))
    return 1 if any(figure.met is False for figure in figures) else 0


def measure(folder: Path, sizes: Sequence[int]) -> list[Figure]:
    """The figures for so many messages, of each number in rising order."""
    figures, jobs = [], []
    for rows in sizes:
        job = _archive(folder / str(rows), rows)
        jobs.append(job)
        figures += _archiving_figures(rows, job, _duckdb(folder / str(rows)))
    least, most = jobs[0], jobs[-1]
    if len(jobs) > 1:
        extra_cpu = (most["cpu_seconds"] - least["cpu_seconds"]) / (sizes[-1] - sizes[0])
        figures.append(without_target("CPU of a message more", f"{extra_cpu * 1e6:.1f} µs"))
    size, journal = most["bytes"] / sizes[-1], most["journal"] / sizes[-1]
    file_count = Figure(
        "files written", f"{_TOPICS} partitions", str(most["files"]), most["files"] == _TOPICS
    )
    return [
        *figures,
        file_count,
        without_target("bytes a message", f"{size:.0f}", f"{journal:.0f} in the journal"),
        *_compaction_figures(folder / str(sizes[0]), sizes[0]),
    ]


def _compaction_figures(folder: Path, rows: int) -> list[Figure]:
    """What compaction takes for so many messages in eight files a topic."""
    per_file = rows // _TOPICS // 8
    _archive(folder, rows, "--window", "2026-11-21", per_file=per_file)
    job = _run_job("compact", folder, "--target-mb", "256", "--grace-minutes", "0")
    if not job["seconds"]:
        return [without_target(f"compact {rows:,}", "nothing to do")]
    files = f"{job['files_before']} files to {job['files_after']}"
    pace = f"{rows / job['seconds']:,.0f} rows/s, {job['cpu_seconds'] / rows * 1e6:.1f} µs a row"
    return [
        without_target(f"compact {rows:,}", pace, files),
        without_target("peak memory", f"{job['peak_mb']:,} MB"),
    ]


def _archiving_figures(rows: int, job: dict[str, Any], duck: tuple[float, float]) -> list[Figure]:
    """What a job took for so many messages, beside DuckDB."""
    pace, (duck_pace, duck_cpu) = rows / job["seconds"], duck
    ratio, cpu = pace / duck_pace, job["cpu_seconds"] / rows
    work = f"{rows:,} messages, beside DuckDB"
    return [
        without_target(work, f"{ratio:.2f} of its pace", f"{pace:,.0f} rows/s"),
        without_target("the same by DuckDB", f"{duck_pace:,.0f} rows/s"),
        without_target(
            "CPU of a message, process started", f"{cpu * 1e6:.1f} µs", f"{cpu / duck_cpu:.2f} of DuckDB"
        ),
        without_target("CPU of a message by DuckDB", f"{duck_cpu * 1e6:.1f} µs"),
        without_target("peak memory", f"{job['peak_mb']:,} MB"),
    ]


def _archive(folder: Path, rows: int, *argv: str, per_file: int = 10**9) -> dict[str, Any]:
    journal = folder / "journal"
    if not journal.exists():
        _write(journal, rows)
    shutil.rmtree(folder / "archive", ignore_errors=True)
    result = _run_job(
        "archive", folder, "--now", _NOW, "--backfill", "no", "--rows-per-file", str(per_file), *argv
    )
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
    """Rows a second, and seconds of CPU a row: the last edition of each offset, sorted, zstd, a folder for each topic;
    two threads, 2 GB."""
    import duckdb

    out = folder / "duck"
    start, before = time.monotonic(), time.process_time()
    db = duckdb.connect(config={"threads": 2, "memory_limit": "2GB", "temp_directory": str(folder / "tmp")})
    db.execute(
        f"""copy (
            select topic, shard, "offset", id, make_timestamp(accepted_ms * 1000) as accepted_at, tag, keys,
                ordering_key, headers, content_type, encode(body) as body
            from read_json('{folder}/journal/messages/*/*/*.gz', format='newline_delimited', columns={{
                v: 'INT', topic: 'VARCHAR', topic_uid: 'VARCHAR', shard: 'INT', "offset": 'BIGINT', id: 'VARCHAR',
                edition: 'BIGINT', accepted_ms: 'BIGINT', tag: 'VARCHAR', keys: 'VARCHAR[]', ordering_key: 'VARCHAR',
                headers: 'MAP(VARCHAR, VARCHAR)', content_type: 'VARCHAR', body: 'VARCHAR'}})
            qualify row_number() over (partition by topic, topic_uid, shard, "offset" order by edition desc) = 1
            order by topic, shard, "offset"
        ) to '{out}' (format parquet, compression zstd, partition_by (topic))"""
    )
    seconds, cpu_seconds = time.monotonic() - start, time.process_time() - before
    ((count,),) = db.execute(f"select count(*) from read_parquet('{out}/*/*.parquet')").fetchall()
    shutil.rmtree(out)
    return count / seconds, cpu_seconds / count


def _write(journal: Path, rows: int) -> None:
    """A day's journal: topics of four shards, departures for bodies, some objects twice."""
    each = rows // _TOPICS // _SHARDS
    tasks = [(journal, topic, shard, each) for topic in range(_TOPICS) for shard in range(_SHARDS)]
    with multiprocessing.Pool(2) as pool:
        pool.map(_write_shard, tasks)


@cache
def _departures() -> list[str]:
    """Two thousand real departures: bodies as varied as in life compress as in life."""
    with gzip.open(_EVENTS, "rt") as file:
        return [line.strip() for line in file]


def _write_shard(task: tuple[Path, int, int, int]) -> None:
    journal, topic, shard, count = task
    events = _departures()
    place = {"v": 1, "topic": f"topic-{topic}", "topic_uid": f"u{topic}", "shard": shard}
    for number, start in enumerate(range(0, count, _BATCH)):
        lines = []
        for offset in range(start, min(start + _BATCH, count)):
            line = {
                **place,
                "offset": offset,
                "edition": 0,
                "accepted_ms": _NOON_MS + offset,
                "id": f"{offset:012d}-{shard}-{offset:x}",
                "tag": "booked",
                "keys": [f"k{offset % 5003}"],
                "headers": {"source": "bench"},
                "content_type": "application/json",
                "body": events[(offset * _STRIDE + shard) % len(events)],
            }
            lines.append(json.dumps(line, separators=(",", ":")))
        text = gzip.compress(("\n".join(lines) + "\n").encode(), 6)
        home = journal / "messages/day=2026-11-21/hour=12"
        home.mkdir(parents=True, exist_ok=True)
        for copy in range(2 if number % _AGAIN == 1 else 1):
            (home / f"{topic}-{shard}-{number:06}-{copy}.jsonl.gz").write_bytes(text)


if __name__ == "__main__":
    os.environ.pop("AWS_ENDPOINT_URL_DYNAMODB", None)
    sys.exit(main())
