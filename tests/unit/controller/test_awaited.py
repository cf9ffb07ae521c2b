"""Pods that kube-scheduler leaves waiting beside their node are counted, and nothing that will come by itself is."""

from typing import Any, cast

import pytest
from temporalio.common import MetricMeter

from tenure.controller.cache.expected_pods import NOT_BOUND, Awaited, AwaitedGauge
from tenure.controller.cache.nominations import Nominations
from tests.support.controller.builders import World, at, away, claim, node, pod
from tests.unit.controller.test_offering_gauges import Meter


class Stage(World):
    """A node that is up, and one that is not yet."""

    def __init__(self) -> None:
        super().__init__()
        self.nominations = Nominations()
        self.meter = Meter()
        awaited = Awaited(self.caches, self.nominations, away(self))
        self.gauge = AwaitedGauge(awaited, cast(MetricMeter, self.meter))
        self.hear("nodeclaims", claim("c1", phase="Initialized"), claim("c2", phase="Registered"))
        self.hear("nodes", node("n1", of="c1"), node("n2", of="c2", ready=False))
        self.hear("pods", pod("p"), pod("q"), pod("r"))
        self.nominations.renew({"uid-p": "c1", "uid-q": "c1", "uid-r": "c2"}, at(0))

    def shown(self, seconds: float) -> list[Any]:
        self.gauge.show(at(seconds))
        return self.meter.news()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_pods_count_a_minute_after_their_node_was_up_until_they_are_bound(stage: Stage) -> None:
    assert stage.shown(59) == []
    assert stage.shown(60) == [(NOT_BOUND, ("general",), 2)]
    stage.nominations.renew({"uid-p": "c1", "uid-q": "c1"}, at(70))
    assert stage.shown(71) == [], "that they are still expected is no news"
    stage.nominations.bound("uid-p", at(72))
    assert stage.shown(72) == [(NOT_BOUND, ("general",), 1)]
    stage.nominations.bound("uid-q", at(73))
    assert stage.shown(73) == [(NOT_BOUND, ("general",), 0)]


def test_a_pod_that_still_runs_on_a_node_that_goes_is_not_kube_schedulers(stage: Stage) -> None:
    stage.hear("nodeclaims", claim("old", phase="Initialized", deleting=True))
    stage.hear("nodes", node("n-old", of="old"))
    stage.hear("pods", pod("p", on="n-old"), pod("q", on="n-old"))
    assert stage.shown(61) == []


def test_a_node_that_is_away_is_waited_for_and_not_kube_scheduler(stage: Stage) -> None:
    stage.hear("nodes", node("n1", of="c1", ready=False))
    assert stage.shown(61) == []


def test_a_pod_that_was_planned_just_now_has_its_own_minute(stage: Stage) -> None:
    assert stage.shown(60) == [(NOT_BOUND, ("general",), 2)]
    stage.hear("pods", pod("late"))
    stage.nominations.renew({"uid-p": "c1", "uid-q": "c1", "uid-late": "c1"}, at(70))
    assert stage.shown(129) == []
    assert stage.shown(130) == [(NOT_BOUND, ("general",), 3)]


def test_a_pod_that_plans_have_left_alone_for_long_does_not_count(stage: Stage) -> None:
    assert stage.shown(109) == [(NOT_BOUND, ("general",), 2)]
    stage.nominations.renew({"uid-p": "c1"}, at(109))
    assert stage.shown(110) == [(NOT_BOUND, ("general",), 1)]


def test_a_node_that_is_missing_is_not_kube_schedulers(stage: Stage) -> None:
    stage.lose("nodes", node("n1", of="c1"))
    assert stage.shown(61) == []


def test_a_process_that_hosts_the_watch_no_more_shows_none(stage: Stage) -> None:
    assert stage.shown(61)
    stage.gauge.close()
    assert stage.meter.news() == [(NOT_BOUND, ("general",), 0)]
