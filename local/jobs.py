"""Glue's part: starts the archive's jobs as processes of their own, where PySpark and Java are installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.engine.dynamodb_local import end_group

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(eq=False)
class LocalJobs:
    """ports.Jobs. What a job prints goes to `<folder>/<job>-<its first argument>.log`.

    `url`: where Headrace serves.
    `variables`: they say where its engine is.
    """

    folder: Path
    url: str
    variables: Mapping[str, str]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_stopped = False

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        """False where PySpark or Java is missing, or the jobs are (`headrace-local` comes without them); where the
        folder cannot be used, which standard error says; and once the service ends."""
        tools = importlib.util.find_spec("pyspark") and shutil.which("java")
        if not tools or not (_ROOT / "glue_jobs").is_dir():
            return False
        argv = [part for name, value in arguments.items() for part in (f"--{name}", value)]
        file = self.folder / f"{'-'.join((job, *arguments.values()))}.log"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock, file.open("ab") as log:
                if self._is_stopped:
                    return False
                process = subprocess.Popen(
                    [sys.executable, "-m", f"glue_jobs.{job}", *argv],
                    env=os.environ | self.variables | {"HEADRACE_URL": self.url, "PYTHONPATH": str(_ROOT)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # with the Java machine that it starts: see `stop`
                )
                self._running = [*(each for each in self._running if each.poll() is None), process]
        except OSError as error:
            place = error.filename or self.folder
            print(f"A job was not started: {place} cannot be used ({error.strerror}).", file=sys.stderr)
            return False
        name = f"job {file.stem}"
        threading.Thread(target=self._watch, args=(process, file), name=name, daemon=True).start()
        return True

    def stop(self, seconds: float = 5.0) -> None:
        """End what still runs, and the Java machine of each: one that was about to start would run for ever. A job that
        was ended can be run again."""
        with self._lock:
            self._is_stopped = True
        for each in self._running:
            if each.poll() is None:
                end_group(each, seconds)

    def _watch(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Say that a job failed: one that cannot even begin does not tell the service, either."""
        code = process.wait()
        if code and not self._is_stopped:
            how = "failed" if code > 0 else f"was killed (signal {-code}; out of memory?)"
            print(f"A job {how}: {log} says how far it came.", file=sys.stderr)
