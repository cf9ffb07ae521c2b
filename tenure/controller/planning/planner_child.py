"""The child process of the planner: handles its parent's requests with a `ClusterState`."""

import contextlib
import json
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from tenure.gc_settings import FullCollections, tune_gc
from tenure.model.errors import InvalidObject, Preempted
from tenure.model.invalid_objects import ObjectKey
from tenure.scheduling.cluster_state import ClusterState

_NICE: Final = 5
_POLL_SECONDS: Final = 0.02
"""Seconds between two polls of the pipe."""

InvalidByKey = Mapping[ObjectKey, InvalidObject]
Response = tuple[Any, float, str, InvalidByKey | None]
"""The result, its duration in seconds, the error text, and all invalid objects if they changed."""


def main() -> None:
    """Serve the pipe whose file descriptor is the argument, until the parent exits. PlanSettings come first.

    Ignores signals to the process group: the parent stops it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    log_as_json()
    tune_gc()
    pipe = Connection(int(sys.argv[1]))
    serve_requests(pipe, ClusterState(pipe.recv(), PreemptionCheck(pipe)))


def log_as_json() -> None:
    """Write warnings and an uncaught exception in the form of the worker's log, without loading Temporal's SDK."""
    warnings.showwarning = lambda message, category, filename, line, *_: _write_line(
        "WARNING", f"{filename}:{line}: {category.__name__}: {message}"
    )
    sys.excepthook = lambda *error: _write_line(
        "ERROR", "uncaught exception", exception="".join(traceback.format_exception(*error))
    )


def _write_line(level: str, message: str, **more: str) -> None:
    line = {
        "level": level,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "message": message,
        "logger": "planner",
        **more,
    }
    print(json.dumps(line), flush=True)


def serve_requests(pipe: Connection, state: ClusterState) -> None:
    """Serve until the other end of the pipe is closed.

    An empty message ends a preemptible request, which then returns None. The empty message has no response."""
    collections = FullCollections(time.monotonic)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            message = pipe.recv_bytes()
            if message:
                method, args, kwargs = pickle.loads(message)
                response = _handle_request(state, method, args, kwargs)
                pipe.send_bytes(pickle.dumps(response, protocol=pickle.HIGHEST_PROTOCOL))
                collections.collect_if_grown()


class PreemptionCheck:
    """The check of a preemptible request. A message that arrives meanwhile is empty, and raises `Preempted`."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._next_poll_at = pipe, 0.0

    def __call__(self) -> None:
        if time.perf_counter() >= self._next_poll_at:
            if self._pipe.poll():
                raise Preempted
            self._next_poll_at = time.perf_counter() + _POLL_SECONDS


def _handle_request(state: ClusterState, method: str, args: Any, kwargs: Any) -> Response:
    began = time.perf_counter()
    try:
        result = getattr(state, method)(*args, **kwargs)
    except Preempted:
        result = None
    except Exception:
        return None, 0.0, traceback.format_exc(limit=-4), None
    invalid = state.guard.invalid_objects
    return result, time.perf_counter() - began, "", invalid.items() if invalid.take_changed() else None


if __name__ == "__main__":
    main()
