"""What goes wrong, as one sentence that says what to do."""

from __future__ import annotations

import os
import re
from typing import NoReturn

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

_OURS = re.compile(r"^glue_jobs\.\S+: (.+)$", re.MULTILINE)
_SILENT = re.compile(r'Could not connect to the endpoint URL: "([^"]+)"')
_CAUSE = re.compile(r"^(?:Caused by)?: (.+)$", re.MULTILINE)
_REFUSAL = re.compile(r"An error occurred \((\w+)\) when calling the (\w+) operation(?: \([^)]*\))?: (.*)")
_DISK = "The disk is full: free some space, and run the job again."
_MEMORY = "Spark ran out of memory: run the job again with more of it (on AWS: more workers)."
_KILLED = "Spark's process has ended: it was killed, or ran out of memory. Run the job again."
_NO_READER = "Nobody reads its output any more."
_NO_TABLES = (
    "DynamoDB has no tables of this prefix there: see --prefix and --region; --backfill no asks no table."
)
_NO_START = (
    "Spark did not start: see that Java 17 or newer is installed and memory is free, and run the job again."
)
_NO_CREDENTIALS = (
    "AWS needs credentials, and there are none. On one machine name the folder of the data: HEADRACE_DATA=.data, or "
    "--folder .data/bucket."
)
_SIGNS = (
    ("Unable to locate credentials", _NO_CREDENTIALS),
    ("non-existent table", _NO_TABLES),  # DynamoDB Local
    ("Requested resource not found", _NO_TABLES),
    ("JAVA_GATEWAY_EXITED", _NO_START),
    ("No space left on device", _DISK),
    ("Disk quota exceeded", _DISK),
    ("OutOfMemoryError", _MEMORY),
    ("Py4JNetworkError", _KILLED),
    ("Answer from Java side is empty", _KILLED),
    ("Connection refused", _KILLED),
    ("SparkContext was shut down", _KILLED),
    ("stopped SparkContext", _KILLED),
)
_ADVICE = {
    "NoSuchBucket": "see --bucket",
    "SlowDown": "run the job again",
    "AccessDenied": "see what the credentials allow",
    "403": "see what the credentials allow",
}
"""By the code of AWS's refusal."""


class JobError(Exception):
    """What a job can't go on with. Its text is a sentence for people."""


class Unreadable(JobError):
    """A file that a job has written is damaged; the text says how to go on."""


class Ended(JobError):
    """The process was ended from outside."""


_ENDED: list[Ended] = []  # py4j turns what a signal raises within a call into an error of its own


def end_process() -> NoReturn:
    """Raise Ended. If a library turns it into an error of its own, `sentence` still says that the process was ended."""
    _ENDED.append(Ended("The job was ended from outside. Run it again: it goes on where it was."))
    raise _ENDED[0]


def sentence(error: BaseException) -> str:
    """The error as a sentence; for a failed Spark task, the message of the task's own error."""
    if isinstance(error, JobError) or _ENDED:
        return str([error, *_ENDED][-1])
    text = f"{type(error).__name__}: {error}"
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if silent := _SILENT.search(text):
        return f"{silent[1]} does not answer: see that it runs and can be reached, and run the job again."
    if isinstance(error, BrokenPipeError):
        return _NO_READER  # py4j makes a Py4JNetworkError of one of its own
    if isinstance(error, Py4JNetworkError | ConnectionError) or type(error) is Py4JError:
        return _KILLED  # what Java itself raises is a Py4JJavaError
    for sign, meaning in _SIGNS:
        if sign in text:
            return meaning
    if refusal := _REFUSAL.search(text):
        code, operation, why = refusal.groups()
        advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
        return f"AWS refused {operation}: {why.strip().rstrip('.')} ({code}){advice}."
    if isinstance(error, Py4JJavaError) and (causes := _CAUSE.findall(text)):
        return str(causes[-1]).rstrip()  # the first line names only a call
    return text.partition("\n")[0].rstrip()


def is_debugging() -> bool:
    """Does the user want tracebacks, and Spark's log?"""
    return bool(os.environ.get("HEADRACE_DEBUG"))


def ends_the_run(error: BaseException) -> bool:
    """Would every later step fail as well?"""
    return bool(_ENDED) or sentence(error) in (_DISK, _MEMORY, _KILLED, _NO_START, _NO_READER)
