"""The one factory of AWS clients. Everything that watches or disturbs calls to AWS hooks in here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

OnClient = Callable[[Any], None]

# A consumer's function may take its time, and calling it twice would be two attempts.
_CONFIGS: dict[str, dict[str, int]] = {"lambda": {"read_timeout": 900, "attempts": 1}}


class Clients:
    """Makes boto3 clients for one process; `on_client` sees each before its first use (fault plan, counts)."""

    def __init__(self, region: str, on_client: OnClient | None = None) -> None:
        self._region = region
        self._on_client = on_client
        self._made: dict[str, Any] = {}

    def get(self, service: str) -> Any:
        """The process's client for a service. Endpoints and credentials are botocore's business."""
        if service not in self._made:
            config = _config(**_CONFIGS.get(service, {}))
            client = _session().client(service, region_name=self._region, config=config)
            if self._on_client:
                self._on_client(client)
            self._made[service] = client
        return self._made[service]


@cache
def _session() -> Any:
    import boto3.session

    return boto3.session.Session()


def _config(read_timeout: int = 5, attempts: int = 3) -> Any:
    from botocore.config import Config

    return Config(
        connect_timeout=2,
        read_timeout=read_timeout,
        max_pool_connections=64,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        user_agent="headrace",  # else botocore puts one together anew for each request: a tenth of its time
        parameter_validation=False,  # our own requests, tested; saves a tenth of the handler's time
    )
