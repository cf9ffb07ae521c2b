"""The child process of the planner: its log, and requests that are preempted."""

import json
import pickle
import sys
import threading
import warnings
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from tenure.controller.planning.planner_child import PreemptionCheck, log_as_json, serve_requests
from tenure.scheduling.cluster_state import ClusterState


def test_warnings_and_uncaught_exceptions_are_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((warnings, "showwarning"), (sys, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    log_as_json()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    try:
        int("x\ny")
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    captured = capsys.readouterr()
    warning, failure = map(json.loads, captured.out.splitlines())
    assert warning["level"] == "WARNING" and warning["message"].endswith("RuntimeWarning: overflow")
    assert failure["level"] == "ERROR" and "ValueError: invalid literal" in failure["exception"]
    assert {"time", "message", "logger"} <= failure.keys() and captured.err == ""


class WaitingState(ClusterState):
    """Its passes run until they are preempted."""

    def wait_until_preempted(self) -> None:
        while True:
            self._check_preempted()

    def count(self, number: int) -> int:
        return number


def test_empty_message_ends_only_a_running_request() -> None:
    pipe, child_end = Pipe()

    def send_request(method: str, *args: int) -> None:
        pipe.send_bytes(pickle.dumps((method, args, {})))

    def read_result() -> Any:
        result, _, error, _ = pickle.loads(pipe.recv_bytes())
        assert error == ""
        return result

    child = threading.Thread(target=_serve, args=(child_end,))
    child.start()
    pipe.send_bytes(b"")
    send_request("count", 1)
    assert read_result() == 1, "the empty message has no response"
    send_request("wait_until_preempted")
    pipe.send_bytes(b"")
    assert read_result() is None
    send_request("count", 2)
    assert read_result() == 2
    pipe.close()
    child.join(timeout=10)
    assert not child.is_alive()


def _serve(pipe: Connection) -> None:
    serve_requests(pipe, WaitingState(check_preempted=PreemptionCheck(pipe)))
