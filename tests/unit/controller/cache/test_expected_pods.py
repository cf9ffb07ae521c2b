"""Pods that kube-scheduler leaves waiting beside their node are counted, and nothing that will come by itself is."""

from typing import Any, cast

import pytest
from temporalio.common import MetricMeter

from tenure.controller.cache.expected_pods import NOT_BOUND, ExpectedPods, ExpectedPodsGauge
from tenure.controller.cache.nominations import Nominations
from tests.support.controller.builders import CacheHarness, at, claim, node, not_ready_tracker, pod
from tests.unit.controller.metrics.test_offerings import FakeMeter


class ExpectedPodsHarness(CacheHarness):
    """A node that is up, and one that is not yet."""

    def __init__(self) -> None:
        super().__init__()
        self.nominations = Nominations()
        self.meter = FakeMeter()
        expected_pods = ExpectedPods(self.cache, self.nominations, not_ready_tracker(self))
        self.gauge = ExpectedPodsGauge(expected_pods, cast(MetricMeter, self.meter))
        self.apply_objects("nodeclaims", claim("c1", phase="Initialized"), claim("c2", phase="Registered"))
        self.apply_objects("nodes", node("n1", of="c1"), node("n2", of="c2", ready=False))
        self.apply_objects("pods", pod("p"), pod("q"), pod("r"))
        self.nominations.nominate({"uid-p": "c1", "uid-q": "c1", "uid-r": "c2"}, at(0))

    def record_and_drain(self, seconds: float) -> list[Any]:
        self.gauge.record(at(seconds))
        return self.meter.drain_records()


@pytest.fixture
def harness() -> ExpectedPodsHarness:
    return ExpectedPodsHarness()


def test_pods_count_a_minute_after_their_node_was_up_until_they_are_bound(harness: ExpectedPodsHarness) -> None:
    assert harness.record_and_drain(59) == []
    assert harness.record_and_drain(60) == [(NOT_BOUND, ("general",), 2)]
    harness.nominations.nominate({"uid-p": "c1", "uid-q": "c1"}, at(70))
    assert harness.record_and_drain(71) == [], "that they are still expected is no news"
    harness.nominations.on_pod_bound("uid-p", at(72))
    assert harness.record_and_drain(72) == [(NOT_BOUND, ("general",), 1)]
    harness.nominations.on_pod_bound("uid-q", at(73))
    assert harness.record_and_drain(73) == [(NOT_BOUND, ("general",), 0)]


def test_a_pod_that_still_runs_on_a_node_that_goes_is_not_kube_schedulers(harness: ExpectedPodsHarness) -> None:
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.apply_objects("pods", pod("p", on="n-old"), pod("q", on="n-old"))
    assert harness.record_and_drain(61) == []


def test_a_node_that_is_away_is_waited_for_and_not_kube_scheduler(harness: ExpectedPodsHarness) -> None:
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    assert harness.record_and_drain(61) == []


def test_a_pod_that_was_planned_just_now_has_its_own_minute(harness: ExpectedPodsHarness) -> None:
    assert harness.record_and_drain(60) == [(NOT_BOUND, ("general",), 2)]
    harness.apply_objects("pods", pod("late"))
    harness.nominations.nominate({"uid-p": "c1", "uid-q": "c1", "uid-late": "c1"}, at(70))
    assert harness.record_and_drain(129) == []
    assert harness.record_and_drain(130) == [(NOT_BOUND, ("general",), 3)]


def test_a_pod_that_plans_have_left_alone_for_long_does_not_count(harness: ExpectedPodsHarness) -> None:
    assert harness.record_and_drain(109) == [(NOT_BOUND, ("general",), 2)]
    harness.nominations.nominate({"uid-p": "c1"}, at(109))
    assert harness.record_and_drain(110) == [(NOT_BOUND, ("general",), 1)]


def test_a_node_that_is_missing_is_not_kube_schedulers(harness: ExpectedPodsHarness) -> None:
    harness.delete_objects("nodes", node("n1", of="c1"))
    assert harness.record_and_drain(61) == []


def test_a_process_that_hosts_the_watch_no_more_shows_none(harness: ExpectedPodsHarness) -> None:
    assert harness.record_and_drain(61)
    harness.gauge.close()
    assert harness.meter.drain_records() == [(NOT_BOUND, ("general",), 0)]
