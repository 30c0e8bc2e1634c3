"""The world as the rehearsed functions see it: one public host, subscriber.example.com, which is on this machine.

Python imports this by itself in every process that has this folder in PYTHONPATH. Only the network is replaced: what
Headrace thinks of a host, its address and its certificate is all as on AWS.
"""

import os
import socket
from typing import Any

HOST, ADDRESS = "subscriber.example.com", "93.184.215.14"
_system_getaddrinfo, _system_connect = socket.getaddrinfo, socket.socket.connect


def _getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    return _system_getaddrinfo(ADDRESS if host == HOST else host, *arguments, **options)


def _connect(self: socket.socket, address: Any) -> None:
    if isinstance(address, tuple) and address[:2] == (ADDRESS, 443):
        address = ("127.0.0.1", int(os.environ["REHEARSAL_SUBSCRIBER_PORT"]))
    _system_connect(self, address)


if "REHEARSAL_SUBSCRIBER_PORT" in os.environ:
    socket.getaddrinfo = _getaddrinfo
    socket.socket.connect = _connect  # type: ignore[method-assign, assignment]
