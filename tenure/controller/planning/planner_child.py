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

from tenure.gc_settings import tune_gc
from tenure.model.errors import InvalidObject
from tenure.model.invalid_objects import ObjectKey
from tenure.scheduling.cluster_state import ClusterState

_NICE: Final = 5

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
    serve_requests(pipe, ClusterState(pipe.recv()))


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
    """Serve until the other end of the pipe is closed."""
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            method, args, kwargs = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(
                pickle.dumps(_handle_request(state, method, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
            )


def _handle_request(state: ClusterState, method: str, args: Any, kwargs: Any) -> Response:
    began = time.perf_counter()
    try:
        result = getattr(state, method)(*args, **kwargs)
    except Exception:
        return None, 0.0, traceback.format_exc(limit=-4), None
    invalid = state.guard.invalid_objects
    return result, time.perf_counter() - began, "", invalid.items() if invalid.take_changed() else None


if __name__ == "__main__":
    main()
