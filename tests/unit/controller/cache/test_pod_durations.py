"""Durations of pods from their creation until they are bound and Ready."""

from typing import Any

import pytest

from tenure.controller.metrics import PodDurations
from tests.support.controller.builders import CacheHarness, Json, at, pod
from tests.support.controller.meter import RecordingMeter

BOUND, STARTUP = "karpenter_pods_bound_duration_seconds", "karpenter_pods_startup_duration_seconds"


class PodHarness(CacheHarness):
    """A pod that was created at `at(0)`."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = RecordingMeter()
        PodDurations(self.cache, self.meter, lambda: self.now)

    def report(self, seconds: float, *, node: str = "", ready: bool = False) -> None:
        self.now = at(seconds)
        raw: Json = pod("p", on=node)
        raw["metadata"]["creationTimestamp"] = at(0).isoformat()
        conditions: list[dict[str, Any]] = raw.setdefault("status", {}).setdefault("conditions", [])
        conditions[:] = [{"type": "Ready", "status": str(ready)}]
        if node:
            conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(30).isoformat()})
        self.apply_objects("pods", raw)

    def recorded(self) -> list[tuple[str, float]]:
        return [(name, value) for name, _, value in self.meter.drain_records()]


@pytest.fixture
def harness() -> PodHarness:
    return PodHarness()


def test_pending_pod_records_its_durations_once(harness: PodHarness) -> None:
    harness.report(1)
    harness.report(31, node="n")
    assert harness.recorded() == [(BOUND, 30)]
    harness.report(45, node="n", ready=True)
    assert harness.recorded() == [(STARTUP, 45)]
    harness.report(60, node="n")
    harness.report(70, node="n", ready=True)
    assert harness.recorded() == []


def test_pod_that_was_bound_before_is_not_recorded(harness: PodHarness) -> None:
    harness.report(500, node="n")
    harness.report(510, node="n", ready=True)
    assert harness.recorded() == []
