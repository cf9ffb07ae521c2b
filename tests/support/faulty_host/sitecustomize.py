"""Faults of a worker's host. Python imports this module at start, if its folder is in PYTHONPATH.

`FAULTY_HOST_DNS`: while this file exists, no name is resolved and no open HTTP connection is used again.
`FAULTY_HOST_CLOCK_SECONDS`: by how much the clock is ahead.
"""

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import tenure.clock

_DNS_FAULT = Path(os.environ.get("FAULTY_HOST_DNS", "/dev/null/none"))
_AHEAD = timedelta(seconds=float(os.environ.get("FAULTY_HOST_CLOCK_SECONDS", "0")))
_getaddrinfo, _putrequest = socket.getaddrinfo, HTTPConnection.putrequest
_time, _time_ns = time.time, time.time_ns


def getaddrinfo(*arguments: Any, **options: Any) -> Any:
    if _DNS_FAULT.exists():
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _getaddrinfo(*arguments, **options)


def putrequest(connection: HTTPConnection, *arguments: Any, **options: Any) -> None:
    if _DNS_FAULT.exists():
        connection.close()
    _putrequest(connection, *arguments, **options)


socket.getaddrinfo = getaddrinfo
HTTPConnection.putrequest = putrequest  # type: ignore[assignment]
if _AHEAD:
    time.time = lambda: _time() + _AHEAD.total_seconds()
    time.time_ns = lambda: _time_ns() + int(_AHEAD.total_seconds()) * 1_000_000_000
    tenure.clock.CLOCK._system_now = lambda: datetime.now(UTC) + _AHEAD
