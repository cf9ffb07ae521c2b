"""The time of a node's last pod event is written to its NodeClaim, and a new controller reads it from there."""

from typing import Any

from tenure.controller.pod_events import LastPodEventWriter
from tenure.model.errors import TryLater
from tenure.model.facts import NodeClaimFact
from tests.support.controller import builders
from tests.support.controller.builders import CacheHarness, at, claim, node, pod, with_binding
from tests.support.fakes.kubernetes import FakeNodeClaims


class PodEventHarness(CacheHarness):
    """A node with its NodeClaim on an API server. `echo` delivers the written NodeClaim as the watch does."""

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
        """Write due pod events. Returns the stored time."""
        self.events.collect()
        await self.events.write()
        self.echo()
        return self.claims.found["c1"]["status"].get("lastPodEventTime")

    def known(self) -> NodeClaimFact:
        return self.cache.planner_fact("c1")


async def test_binding_and_deletion_are_written_but_no_update() -> None:
    harness = PodEventHarness()
    harness.apply_objects("pods", pod("a", on="n1"))
    assert await harness.write() == builders.stamp(0)
    harness.now = at(20)
    harness.apply_objects("pods", pod("a", on="n1", metadata={"labels": {"changed": "yes"}}))
    assert await harness.write() == builders.stamp(0)
    harness.now = at(30.5)
    harness.delete_objects("pods", pod("a", on="n1"))
    assert await harness.write() == builders.stamp(30), "Kubernetes stores whole seconds"


async def test_events_within_ten_seconds_are_written_together() -> None:
    harness = PodEventHarness()
    harness.apply_objects("pods", pod("a", on="n1"))
    await harness.write()
    harness.now = at(4)
    harness.apply_objects("pods", pod("b", on="n1"))
    assert await harness.write() == builders.stamp(0)
    harness.now = at(10)
    assert await harness.write() == builders.stamp(4)


async def test_another_host_uses_the_written_time_of_a_deleted_pod() -> None:
    first = PodEventHarness()
    first.apply_objects("pods", pod("a", on="n1"))
    first.now = at(60)
    first.delete_objects("pods", pod("a", on="n1"))
    await first.write()
    second = PodEventHarness(first.claims)
    assert second.known().last_pod_event == at(60)
    second.now = at(90)
    second.apply_objects("pods", with_binding(pod("old", on="n1"), -3600))
    assert second.known().last_pod_event == at(60), "the event of a pod first seen as bound is its binding"
    assert await second.write() == builders.stamp(60)


async def test_start_of_a_bound_pod_is_no_event_for_another_host() -> None:
    first = PodEventHarness()
    first.apply_objects("pods", pod("a", on="n1"))
    await first.write()
    second = PodEventHarness(first.claims)
    second.now = at(90)
    second.apply_objects("pods", with_binding(pod("a", on="n1"), 0))
    assert second.cache.planner_changes.drain_pod_events() == {"c1"}
    assert second.known().last_pod_event == at(0)


async def test_failed_write_is_retried_and_deleting_nodeclaim_is_skipped() -> None:
    harness = PodEventHarness()
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


async def test_own_write_does_not_trigger_disruption() -> None:
    harness = PodEventHarness()
    harness.apply_objects("pods", pod("a", on="n1"))
    before = harness.cache.planner_changes.disruption_changes
    await harness.write()
    assert harness.cache.planner_changes.disruption_changes == before
    assert harness.known().last_pod_event == at(0)
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", annotations={"a": "c"}))
    assert harness.cache.planner_changes.disruption_changes == before + 1


async def test_event_during_early_eviction_is_written_only_after_it_ended() -> None:
    harness = PodEventHarness()
    harness.apply_objects("pods", pod("a", on="n1"))
    await harness.write()
    harness.cache.set_early_evicted("c1", early_evicted=True)
    harness.now = at(20)
    harness.delete_objects("pods", pod("a", on="n1"))
    assert await harness.write() == builders.stamp(0)
    harness.cache.set_early_evicted("c1", early_evicted=False)
    assert await harness.write() == builders.stamp(20)
