"""The developer's own settings, which no test may see: a profile of AWS, another service's address, a token, a proxy,
the variables of `make`."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_FOREIGN = ("AWS_", "HEADRACE_", "PYTHON", "SPARK_", "PYSPARK_", "HADOOP_", "MAKE", "MFLAGS")
_OF_THE_TESTS = {
    "AWS_ENDPOINT_URL_DYNAMODB",  # a DynamoDB that is there already
    "HEADRACE_CHROMIUM",
    "HEADRACE_ENGINE_CACHE",
    "HEADRACE_REHEARSE",
    "HEADRACE_SEED",
    "HEADRACE_SOAK",
    "HEADRACE_TEST_ENGINE",
    "HEADRACE_WRITE_EXAMPLES",
    "HEADRACE_WRITE_PAGES",
}
_NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
_LOCAL_HOSTS = "127.0.0.1,localhost,::1"
_NO_PROXY = ("NO_PROXY", "no_proxy")


def scrub(environ: MutableMapping[str, str]) -> None:
    """Remove the settings that change what our code does, but for those that are for the tests. What is on this
    machine is reached without a proxy; a proxy that fetches packages stays."""
    for name in [name for name in environ if name.startswith(_FOREIGN) and name not in _OF_THE_TESTS]:
        del environ[name]
    environ.update({**_NO_FILES, "AWS_EC2_METADATA_DISABLED": "true"})
    for name in _NO_PROXY:
        hosts = environ.get(name, "").removeprefix(_LOCAL_HOSTS).strip(",")
        environ[name] = f"{_LOCAL_HOSTS},{hosts}".rstrip(",")
