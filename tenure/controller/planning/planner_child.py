"""The child process of the planner: handles its parent's requests with a `ClusterState`."""

import contextlib
import os
import pickle
import signal
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, Final

from tenure.controller.planning.planner_process import Response
from tenure.scheduling.cluster_state import ClusterState
from tenure.scheduling.settings import PlanSettings

_NICE: Final = 5


def serve(pipe: Connection, settings: PlanSettings) -> None:
    """Run in the child process until the parent exits. Ignores signals to the process group: the parent stops it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    serve_requests(pipe, ClusterState(settings))


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
