"""The planner writes warnings and its last exception as JSON, as the worker does."""

import json
import sys
import warnings

import pytest

from tenure.controller.planning.planner_child import log_as_json


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
