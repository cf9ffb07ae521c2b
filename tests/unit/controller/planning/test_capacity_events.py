"""Pods of a NodeClaim without capacity get its event."""

from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.pod_verdict_events import CapacityEvents
from tests.support.controller.builders import CacheHarness, Json, claim, pod, with_binding
from tests.support.fakes.kubernetes import FakeEvents

MESSAGE = "EC2 returned fewer instances than requested"


class CapacityHarness(CacheHarness):
    """Pods that are expected on NodeClaim `c1`."""

    def __init__(self, *pods: Json) -> None:
        super().__init__()
        self.nominations, self.events = Nominations(self.cache.owner_of), FakeEvents()
        self.nominations.subscribe_to(self.cache, lambda: self.now)
        self.capacity_events = CapacityEvents(self.cache, self.nominations, self.events)
        self.apply_objects("nodeclaims", claim("c1"))
        self.apply_objects("pods", *pods)
        self.nominations.nominate({one["metadata"]["uid"]: "c1" for one in pods}, self.now)

    def reject(self, reason: str = "InsufficientCapacity", message: str = MESSAGE, status: str = "Unknown") -> None:
        raw = claim("c1")
        raw["status"]["conditions"] = [{"type": "Launched", "status": status, "reason": reason, "message": message}]
        self.apply_objects("nodeclaims", raw)

    async def published(self) -> list[tuple[str, str, str]]:
        self.events.published.clear()
        await self.capacity_events.publish()
        return sorted(self.events.published)


async def test_each_expected_pod_gets_the_event_although_the_nodeclaim_is_deleted_at_once() -> None:
    harness = CapacityHarness(pod("a"), pod("b"))
    harness.apply_objects("pods", pod("other"))
    harness.reject()
    harness.delete_objects("nodeclaims", claim("c1"))
    text = f"NodeClaim c1 event: {MESSAGE}"
    assert await harness.published() == [(name, "InsufficientCapacityError", text) for name in ("a", "b")]
    assert await harness.published() == []


async def test_pod_that_was_bound_or_is_terminating_gets_no_event() -> None:
    harness = CapacityHarness(pod("bound"), pod("deleted"), pod("terminating"), pod("waits"))
    harness.reject()
    harness.apply_objects("pods", with_binding(pod("bound", on="n"), 0))
    harness.apply_objects("pods", pod("terminating", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}))
    harness.delete_objects("pods", pod("deleted"))
    assert [name for name, _, _ in await harness.published()] == ["waits"]


async def test_unchanged_error_is_published_once_and_another_one_again() -> None:
    harness = CapacityHarness(pod("a"))
    harness.reject()
    assert len(await harness.published()) == 1
    harness.reject()
    assert await harness.published() == []
    harness.reject(message="no capacity in us-west-2b either")
    assert len(await harness.published()) == 1


async def test_other_launch_errors_and_launched_nodeclaims_give_no_event() -> None:
    harness = CapacityHarness(pod("a"))
    harness.reject("NodeClassNotReady")
    harness.reject(status="True")
    assert await harness.published() == []
