"""Loads the fixtures with real components, and prints the counts of hostile values."""

import pytest

from tests.support.product.fixtures import plan, sandbox

__all__ = ["plan", "sandbox"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [one for found in terminalreporter.stats.values() for one in found if isinstance(one, pytest.TestReport)]
    for report in reports:
        for name, value in report.user_properties:
            if name == "hostile" and report.when == "call":
                terminalreporter.write_line(str(value))
