"""A new host of the watch calls no node empty before it has planned, for as long as a plan may take."""

from datetime import datetime

import pytest

from tenure.controller.planning.undersized_nodes import WARM_UP, PlanningWarmUp
from tests.support.controller.builders import CacheHarness, at, claim, node, pod


class Host(CacheHarness):
    planned = unsure = False

    def __init__(self) -> None:
        super().__init__()
        self.unplanned = PlanningWarmUp(self.cache, has_planned=lambda: self.planned, is_uncertain=lambda: self.unsure)

    def until(self, seconds: float, *, synced: bool = True) -> datetime | None:
        return self.unplanned.ends_at(at(seconds), synced=synced)


@pytest.fixture
def host() -> Host:
    return Host()


def test_a_pod_without_a_place_may_be_on_its_way_until_there_was_a_plan(host: Host) -> None:
    assert host.until(0) is None
    host.apply_objects("pods", pod("p"))
    assert host.until(5) == at(0) + WARM_UP
    host.planned = True
    assert host.until(6) is None


def test_a_pod_of_a_node_that_goes_may_be_too(host: Host) -> None:
    host.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    host.apply_objects("nodes", node("n-old", of="old"))
    host.apply_objects("pods", pod("p", on="n-old"))
    assert host.until(0)


def test_the_time_counts_from_when_everything_is_known_and_then_ends(host: Host) -> None:
    host.apply_objects("pods", pod("p"))
    assert host.until(0, synced=False) and host.until(300, synced=False)
    assert host.until(300) == at(300) + WARM_UP
    assert host.until(300 + WARM_UP.total_seconds()) is None


def test_what_buffers_need_may_be_unknown_longer_than_where_pods_go(host: Host) -> None:
    host.planned = host.unsure = True
    assert host.until(0)
