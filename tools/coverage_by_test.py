"""A pytest plugin that records which test executes which line, also in the threads of workers.

`run_mutation_sample.py` loads it with `-p`. Lines that run at import have an empty context.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage  # type: ignore[import-not-found,unused-ignore]
import pytest

DIRECTORY = Path(os.environ["COVERAGE_BY_TEST"])
PACKAGES = os.environ["COVERAGE_PACKAGES"].split(",")

recorder = coverage.Coverage(
    data_file=str(DIRECTORY / "coverage"), config_file=False, include=[f"{p}/*" for p in PACKAGES]
)
recorder.start()
durations: dict[str, float] = {}
failed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    recorder.switch_context(item.nodeid)
    result = yield
    recorder.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    durations[report.nodeid] = durations.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    recorder.stop()
    recorder.save()
    passed = {test: seconds for test, seconds in durations.items() if test not in failed}
    (DIRECTORY / "durations.json").write_text(json.dumps(passed))
