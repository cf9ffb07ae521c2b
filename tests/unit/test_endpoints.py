"""An unreachable endpoint is reported until it responds, or until the process no longer calls it."""

import asyncio

import pytest

from tenure import endpoints
from tenure.endpoints import MIN_FAILURES, Endpoints


async def test_endpoint_that_is_no_longer_called_is_no_longer_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "IDLE_SECONDS", 0.05)
    found: list[tuple[str, bool]] = []
    tracked = Endpoints(lambda endpoint, unreachable: found.append((endpoint, unreachable)))
    for _ in range(MIN_FAILURES):
        tracked.record_failure("temporal", "no route to host")
    assert found == [("temporal", True)]
    for _ in range(4):
        await asyncio.sleep(0.02)
        tracked.record_failure("temporal", "no route to host")
    assert tracked.unreachable == {"temporal"}
    await asyncio.sleep(0.2)
    assert found == [("temporal", True), ("temporal", False)] and not tracked.unreachable
    for _ in range(MIN_FAILURES):
        tracked.record_failure("temporal", "no route to host")
    assert found[2:] == [("temporal", True)]


async def test_response_ends_the_report_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "IDLE_SECONDS", 0.02)
    found: list[bool] = []
    tracked = Endpoints(lambda endpoint, unreachable: found.append(unreachable))
    for _ in range(MIN_FAILURES):
        tracked.record_failure("ec2", "timed out")
    tracked.record_response("ec2")
    await asyncio.sleep(0.1)
    assert found == [True, False]
