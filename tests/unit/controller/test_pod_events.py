"""The time of a node's last pod event is written onto its NodeClaim, and a host that begins anew goes by it."""

from typing import Any

from tenure.controller.pod_events import PodEvents
from tenure.model.errors import TryLater
from tenure.model.facts import ClaimFact
from tests.support.controller import builders
from tests.support.controller.builders import World, at, bound, claim, node, pod
from tests.support.fakes.kubernetes import FakeClaims


class Stage(World):
    """A node whose NodeClaim the API server has, and what is written comes back by the watch."""

    def __init__(self, claims: FakeClaims | None = None) -> None:
        super().__init__()
        self.claims = claims or FakeClaims()
        self.events = PodEvents(self.caches, self.claims, lambda: self.now)
        if claims is None:
            self.claims.found["c1"] = claim("c1", phase="Initialized", annotations={"a": "b"})
        self.hear("nodes", node("n1", of="c1"))
        self.echo()
        self.caches.changes.take_moved()

    def echo(self) -> None:
        self.hear("nodeclaims", self.claims.found["c1"])

    async def write(self) -> Any:
        """What stands there now."""
        self.events.look()
        await self.events.write()
        self.echo()
        return self.claims.found["c1"]["status"].get("lastPodEventTime")

    def known(self) -> ClaimFact:
        return self.caches.timed("c1")


async def test_a_pod_that_comes_or_goes_is_written_and_one_that_stays_is_not() -> None:
    stage = Stage()
    stage.hear("pods", pod("a", on="n1"))
    assert await stage.write() == builders.stamp(0)
    stage.now = at(20)
    stage.hear("pods", pod("a", on="n1", metadata={"labels": {"changed": "yes"}}))
    assert await stage.write() == builders.stamp(0)
    stage.now = at(30.5)
    stage.lose("pods", pod("a", on="n1"))
    assert await stage.write() == builders.stamp(30), "whole seconds, as Kubernetes writes times"


async def test_what_happens_within_ten_seconds_is_written_when_they_are_over() -> None:
    stage = Stage()
    stage.hear("pods", pod("a", on="n1"))
    await stage.write()
    stage.now = at(4)
    stage.hear("pods", pod("b", on="n1"))
    assert await stage.write() == builders.stamp(0)
    stage.now = at(10)
    assert await stage.write() == builders.stamp(4)


async def test_another_host_goes_by_what_was_written_though_the_pod_is_gone() -> None:
    first = Stage()
    first.hear("pods", pod("a", on="n1"))
    first.now = at(60)
    first.lose("pods", pod("a", on="n1"))
    await first.write()
    second = Stage(first.claims)
    assert second.known().last_pod_event == at(60)
    second.now = at(90)
    second.hear("pods", bound(pod("old", on="n1"), -3600))
    assert second.known().last_pod_event == at(60), "a pod that is found there came when it was bound"
    assert await second.write() == builders.stamp(60)


async def test_a_pod_that_starts_after_it_was_bound_is_no_event_for_another_host() -> None:
    first = Stage()
    first.hear("pods", pod("a", on="n1"))
    await first.write()
    second = Stage(first.claims)
    second.now = at(90)
    second.hear("pods", bound(pod("a", on="n1"), 0))
    assert second.caches.changes.take_moved() == {"c1"}
    assert second.known().last_pod_event == at(0)


async def test_a_write_that_fails_is_tried_again_and_a_claim_that_goes_is_left_alone() -> None:
    stage = Stage()
    stage.hear("pods", pod("a", on="n1"))
    stage.claims.faults["patch"] = [TryLater("told to fail")]
    assert await stage.write() is None
    stage.now = at(10)
    assert await stage.write() == builders.stamp(0)
    stage.claims.found["c1"]["metadata"]["deletionTimestamp"] = builders.stamp(11)
    stage.echo()
    stage.now = at(30)
    stage.lose("pods", pod("a", on="n1"))
    assert await stage.write() == builders.stamp(0)


async def test_what_comes_back_of_it_is_no_reason_to_look_for_what_could_go() -> None:
    stage = Stage()
    stage.hear("pods", pod("a", on="n1"))
    before = stage.caches.changes.stirs
    await stage.write()
    assert stage.caches.changes.stirs == before
    assert stage.known().last_pod_event == at(0)
    stage.hear("nodeclaims", claim("c1", phase="Initialized", annotations={"a": "c"}))
    assert stage.caches.changes.stirs == before + 1


async def test_what_moves_while_aws_takes_the_node_back_is_written_if_it_left_it_standing() -> None:
    stage = Stage()
    stage.hear("pods", pod("a", on="n1"))
    await stage.write()
    stage.caches.evacuate("c1", evacuated=True)
    stage.now = at(20)
    stage.lose("pods", pod("a", on="n1"))
    assert await stage.write() == builders.stamp(0)
    stage.caches.evacuate("c1", evacuated=False)
    assert await stage.write() == builders.stamp(20)
