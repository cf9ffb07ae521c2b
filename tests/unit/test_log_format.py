"""The worker's log: each line is JSON, also those of libraries, the SDK and failures that nothing caught."""

import asyncio
import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from tenure.controller.log_format import configure_logging
from tenure.model.errors import TryLater

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """The lines that the worker wrote, each from JSON. The configuration of the process is restored."""
    root, known, output = logging.getLogger(), structlog.get_config(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    for logger, name in ((workflow.logger, "workflow_info_on_message"), (activity.logger, "activity_info_on_message")):
        monkeypatch.setattr(logger, name, True)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    configure_logging("info", "json")
    yield lambda: [json.loads(line) for line in output.getvalue().splitlines()]
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**known)


def fail_in_thread() -> None:
    thread = threading.Thread(target=int, args=("x\ny",))
    thread.start()
    thread.join()


def log_caught(logger: logging.Logger, error: BaseException, **extra: Any) -> None:
    try:
        raise error
    except BaseException:
        logger.warning("Completing activity as failed", exc_info=True, extra=extra)


@pytest.mark.parametrize(
    ("write", "level", "expected"),
    [
        (lambda: structlog.get_logger("worker").info("a\nb", error=ValueError), "INFO", "a\nb"),
        (lambda: logging.getLogger("botocore").error("%s failed", "call"), "ERROR", "call failed"),
        (lambda: log_caught(logging.getLogger("asyncio"), ValueError("x")), "WARNING", "ValueError: x"),
        (lambda: warnings.warn("unawaited", stacklevel=1), "WARNING", "UserWarning: unawaited"),
        (lambda: sys.excepthook(ValueError, ValueError("x"), None), "ERROR", "ValueError: x"),
        (fail_in_thread, "ERROR", "invalid literal"),
    ],
    ids=["own", "library", "traceback", "warning", "uncaught", "thread"],
)
def test_each_log_line_is_json(log_lines: Lines, write: Callable[[], None], level: str, expected: str) -> None:
    write()
    (line,) = log_lines()
    assert list(line)[:3] == ["level", "time", "message"] and line["level"] == level
    assert expected in line["message"] + line.get("exception", "")


def test_libraries_log_no_information(log_lines: Lines) -> None:
    logging.getLogger("botocore").info("found credentials")
    structlog.get_logger("worker").debug("detail")
    assert log_lines() == []


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError("Worker shutdown"), ApplicationError("no capacity"), TryLater("no capacity")]
)
def test_expected_failure_has_no_traceback(log_lines: Lines, error: BaseException) -> None:
    log_caught(
        activity.logger.base_logger, error, temporal_activity={"activity_type": "drain_node", "workflow_id": "w"}
    )
    (line,) = log_lines()
    assert "exception" not in line and line["error"] == f"{type(error).__name__}: {error}"
    assert (line["activity"], line["workflow"]) == ("drain_node", "w") and "temporal_activity" not in line


def test_line_of_temporal_core_has_its_fields(log_lines: Lines) -> None:
    core = SimpleNamespace(fields={"run_id": "r", "attempt": 2})
    logging.getLogger("temporalio.core").warning("Task not found when completing", extra={"temporal_log": core})
    (line,) = log_lines()
    assert (line["message"], line["run_id"], line["attempt"]) == ("Task not found when completing", "r", 2)
    assert line["logger"] == "temporalio.core"


def test_line_of_activity_names_the_nodeclaim_of_its_workflow(log_lines: Lines) -> None:
    environment = ActivityEnvironment()
    environment.info = ActivityEnvironment.default_info()
    for workflow_id in ("prod/nodeclaim/general-a/uid", "prod/provisioning"):
        environment.info = environment.info.__class__(**{**vars(environment.info), "workflow_id": workflow_id})
        environment.run(lambda: structlog.get_logger("tenure.kube").info("tainted node"))
    assert [line.get("NodeClaim") for line in log_lines()] == [{"name": "general-a"}, None]
