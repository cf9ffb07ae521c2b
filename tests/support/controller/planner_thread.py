"""A planner that answers in a thread, over the same pipe and pickles as in its own process.

A process takes most of a second to start. Tests that need one request the fixture `planner_in_a_process`.
"""

import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from tenure.controller.planning.planner_child import PreemptionCheck, serve_requests
from tenure.scheduling.cluster_state import ClusterState
from tenure.scheduling.settings import PlanSettings


def start_planner_thread(settings: PlanSettings) -> tuple[Connection, "PlannerThread"]:
    """Replaces `start_planner`."""
    own_end, thread_end = Pipe()
    return own_end, PlannerThread(thread_end, settings)


class PlannerThread:
    """The methods of `subprocess.Popen` that `PlannerProcess` calls."""

    pid = None

    def __init__(self, pipe: Connection, settings: PlanSettings) -> None:
        self._pipe, self._state = pipe, ClusterState(settings, PreemptionCheck(pipe))
        self._thread = threading.Thread(target=self._serve, name="planner", daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        return None if self._thread.is_alive() else 0

    def kill(self) -> None:
        """The thread ends when the parent closes its end of the pipe."""

    def wait(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _serve(self) -> None:
        with self._pipe:
            serve_requests(self._pipe, self._state)
