"""A planner that answers in a thread, over the same pipe and pickles as in its own process.

A process takes most of a second to start. Tests that need one request the fixture `planner_in_a_process`.
"""

import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from typing import Any

from tenure.controller.planning.planner_child import serve_requests
from tenure.scheduling.cluster_state import ClusterState
from tenure.scheduling.settings import PlanSettings


class ThreadContext:
    """Replaces a `multiprocessing` context."""

    Pipe = staticmethod(multiprocessing.Pipe)

    def Process(self, *, args: tuple[Connection, PlanSettings], **_: Any) -> "PlannerThread":
        return PlannerThread(*args)


class PlannerThread:
    """The methods of `multiprocessing.Process` that `PlannerProcess` calls."""

    pid = None

    def __init__(self, pipe: Connection, settings: PlanSettings) -> None:
        # # The parent closes its copy of the connection after the child has started, so the thread needs its own.
        self._pipe = Connection(os.dup(pipe.fileno()))
        self._state = ClusterState(settings)
        self._thread = threading.Thread(target=self._serve, name="planner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def kill(self) -> None:
        """The thread ends when the parent closes its end of the pipe."""

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _serve(self) -> None:
        with self._pipe:
            serve_requests(self._pipe, self._state)
