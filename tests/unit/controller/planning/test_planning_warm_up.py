"""A new controller calls no node empty before its first plan, for at most the warm-up time."""

from datetime import datetime

import pytest

from tenure.controller.planning.undersized_nodes import WARM_UP, PlanningWarmUp
from tests.support.controller.builders import CacheHarness, at, claim, node, pod


class Host(CacheHarness):
    planned = uncertain = False

    def __init__(self) -> None:
        super().__init__()
        self.warm_up = PlanningWarmUp(self.cache, has_planned=lambda: self.planned, is_uncertain=lambda: self.uncertain)

    def until(self, seconds: float, *, synced: bool = True) -> datetime | None:
        return self.warm_up.ends_at(at(seconds), synced=synced)


@pytest.fixture
def host() -> Host:
    return Host()


def test_pending_pod_extends_the_warm_up_until_the_first_plan(host: Host) -> None:
    assert host.until(0) is None
    host.apply_objects("pods", pod("p"))
    assert host.until(5) == at(0) + WARM_UP
    host.planned = True
    assert host.until(6) is None


def test_pod_of_a_deleting_node_extends_the_warm_up(host: Host) -> None:
    host.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    host.apply_objects("nodes", node("n-old", of="old"))
    host.apply_objects("pods", pod("p", on="n-old"))
    assert host.until(0)


def test_warm_up_starts_with_the_first_sync_and_ends(host: Host) -> None:
    host.apply_objects("pods", pod("p"))
    assert host.until(0, synced=False) and host.until(300, synced=False)
    assert host.until(300) == at(300) + WARM_UP
    assert host.until(300 + WARM_UP.total_seconds()) is None


def test_uncertain_buffers_extend_the_warm_up_after_a_plan(host: Host) -> None:
    host.planned = host.uncertain = True
    assert host.until(0)
