"""The time of a node's last pod event is written onto its NodeClaim, and a host that begins anew goes by it."""

from typing import Any

from tenure.controller.pod_events import LastPodEventWriter
from tenure.model.errors import TryLater
from tenure.model.facts import NodeClaimFact
from tests.support.controller import builders
from tests.support.controller.builders import CacheHarness, at, claim, node, pod, with_binding
from tests.support.fakes.kubernetes import FakeNodeClaims


class Stage(CacheHarness):
    """A node whose NodeClaim the API server has, and what is written comes back by the watch."""

    def __init__(self, claims: FakeNodeClaims | None = None) -> None:
        super().__init__()
        self.claims = claims or FakeNodeClaims()
        self.events = LastPodEventWriter(self.cache, self.claims, lambda: self.now)
        if claims is None:
            self.claims.found["c1"] = claim("c1", phase="Initialized", annotations={"a": "b"})
        self.apply_objects("nodes", node("n1", of="c1"))
        self.echo()
        self.cache.planner_changes.drain_pod_events()

    def echo(self) -> None:
        self.apply_objects("nodeclaims", self.claims.found["c1"])

    async def write(self) -> Any:
        """What stands there now."""
        self.events.collect()
        await self.events.write()
        self.echo()
        return self.claims.found["c1"]["status"].get("lastPodEventTime")

    def known(self) -> NodeClaimFact:
        return self.cache.planner_fact("c1")


async def test_a_pod_that_comes_or_goes_is_written_and_one_that_stays_is_not() -> None:
    harness = Stage()
    harness.apply_objects("pods", pod("a", on="n1"))
    assert await harness.write() == builders.stamp(0)
    harness.now = at(20)
    harness.apply_objects("pods", pod("a", on="n1", metadata={"labels": {"changed": "yes"}}))
    assert await harness.write() == builders.stamp(0)
    harness.now = at(30.5)
    harness.delete_objects("pods", pod("a", on="n1"))
    assert await harness.write() == builders.stamp(30), "whole seconds, as Kubernetes writes times"


async def test_what_happens_within_ten_seconds_is_written_when_they_are_over() -> None:
    harness = Stage()
    harness.apply_objects("pods", pod("a", on="n1"))
    await harness.write()
    harness.now = at(4)
    harness.apply_objects("pods", pod("b", on="n1"))
    assert await harness.write() == builders.stamp(0)
    harness.now = at(10)
    assert await harness.write() == builders.stamp(4)


async def test_another_host_goes_by_what_was_written_though_the_pod_is_gone() -> None:
    first = Stage()
    first.apply_objects("pods", pod("a", on="n1"))
    first.now = at(60)
    first.delete_objects("pods", pod("a", on="n1"))
    await first.write()
    second = Stage(first.claims)
    assert second.known().last_pod_event == at(60)
    second.now = at(90)
    second.apply_objects("pods", with_binding(pod("old", on="n1"), -3600))
    assert second.known().last_pod_event == at(60), "a pod that is found there came when it was bound"
    assert await second.write() == builders.stamp(60)


async def test_a_pod_that_starts_after_it_was_bound_is_no_event_for_another_host() -> None:
    first = Stage()
    first.apply_objects("pods", pod("a", on="n1"))
    await first.write()
    second = Stage(first.claims)
    second.now = at(90)
    second.apply_objects("pods", with_binding(pod("a", on="n1"), 0))
    assert second.cache.planner_changes.drain_pod_events() == {"c1"}
    assert second.known().last_pod_event == at(0)


async def test_a_write_that_fails_is_tried_again_and_a_claim_that_goes_is_left_alone() -> None:
    harness = Stage()
    harness.apply_objects("pods", pod("a", on="n1"))
    harness.claims.faults["patch"] = [TryLater("told to fail")]
    assert await harness.write() is None
    harness.now = at(10)
    assert await harness.write() == builders.stamp(0)
    harness.claims.found["c1"]["metadata"]["deletionTimestamp"] = builders.stamp(11)
    harness.echo()
    harness.now = at(30)
    harness.delete_objects("pods", pod("a", on="n1"))
    assert await harness.write() == builders.stamp(0)


async def test_what_comes_back_of_it_is_no_reason_to_look_for_what_could_go() -> None:
    harness = Stage()
    harness.apply_objects("pods", pod("a", on="n1"))
    before = harness.cache.planner_changes.disruption_changes
    await harness.write()
    assert harness.cache.planner_changes.disruption_changes == before
    assert harness.known().last_pod_event == at(0)
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", annotations={"a": "c"}))
    assert harness.cache.planner_changes.disruption_changes == before + 1


async def test_what_moves_while_aws_takes_the_node_back_is_written_if_it_left_it_standing() -> None:
    harness = Stage()
    harness.apply_objects("pods", pod("a", on="n1"))
    await harness.write()
    harness.cache.set_early_evicted("c1", early_evicted=True)
    harness.now = at(20)
    harness.delete_objects("pods", pod("a", on="n1"))
    assert await harness.write() == builders.stamp(0)
    harness.cache.set_early_evicted("c1", early_evicted=False)
    assert await harness.write() == builders.stamp(20)
