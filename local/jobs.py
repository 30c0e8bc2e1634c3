"""Glue's part: starts the archive's jobs as processes of their own, where PySpark and Java are installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from local.engine.dynamodb_local import signal_group

_ROOT = Path(__file__).resolve().parents[1]


class LocalJobs:
    """ports.Jobs. What a job prints goes to `<folder>/<job>-<its first argument>.log`."""

    def __init__(self, folder: Path, url: str, variables: Mapping[str, str]) -> None:
        """`url` is where Headrace serves; `variables` say where its engine is."""
        self._folder = folder
        self._variables = variables
        self._url = url
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_stopped = False

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        """Start a job. False if PySpark, Java or the jobs are missing (`headrace-local` comes without them), if the
        folder is unusable (a message goes to standard error), and once the service ends."""
        tools = importlib.util.find_spec("pyspark") and shutil.which("java")
        if not tools or not (_ROOT / "glue_jobs").is_dir():
            return False
        try:
            return self._begin(job, arguments)
        except OSError as error:
            place = error.filename or self._folder
            print(f"A job was not started: {place} cannot be used ({error.strerror}).", file=sys.stderr)
            return False

    def _begin(self, job: str, arguments: Mapping[str, str]) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        argv = [part for name, value in arguments.items() for part in (f"--{name}", value)]
        file = self._folder / f"{'-'.join((job, *arguments.values()))}.log"
        with self._lock, file.open("ab") as log:
            if self._is_stopped:
                return False
            process = subprocess.Popen(
                [sys.executable, "-m", f"glue_jobs.{job}", *argv],
                env=os.environ | self._variables | {"HEADRACE_URL": self._url, "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # with the Java machine that it starts: see `stop`
            )
            self._running = [*self._still_running(), process]
        threading.Thread(
            target=self._tell_failure, args=(process, file), name=f"job {file.stem}", daemon=True
        ).start()
        return True

    def stop(self, seconds: float = 5.0) -> None:
        """End what still runs, and the Java machine of each: one that was about to start would run for ever. A job that
        was ended can be run again."""
        with self._lock:
            self._is_stopped = True
            running = self._still_running()
        for each in running:
            signal_group(each, signal.SIGTERM)
        for each in running:
            with suppress(subprocess.TimeoutExpired):
                each.wait(seconds)
            signal_group(each, signal.SIGKILL)
            each.wait()

    def _still_running(self) -> list[subprocess.Popen[bytes]]:
        return [each for each in self._running if each.poll() is None]

    def _tell_failure(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """One that cannot even begin does not tell the service, either."""
        code = process.wait()
        if self._is_stopped:
            return
        if code > 0:
            print(f"A job failed: {log} says why.", file=sys.stderr)
        elif code < 0:
            how = f"signal {-code}; out of memory?"
            print(f"A job was killed ({how}): {log} says how far it came.", file=sys.stderr)
