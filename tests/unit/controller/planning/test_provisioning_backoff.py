"""Launches for a pod stop when nodes register for it and it runs on none of them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tenure.apis import labels
from tenure.controller.planning.pod_groups import pod_group
from tenure.controller.planning.provisioning_backoff import RECENT
from tenure.model.errors import TryLater
from tenure.model.plan import (
    BACKOFF_RETENTION,
    FIRST_BACKOFF,
    MAX_BACKOFF,
    MAX_BACKOFFS,
    UNUSED_NODE_LIMIT,
    ProvisioningBackoff,
    select_retained,
)
from tests.support.controller.builders import NOW, Json, at, node, node_class, pool
from tests.unit.controller.planning.launches import EXPIRY, UNTIL_READY, Launches, initialized_status, small_node, web
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness


async def test_launches_stop_after_three_unused_nodes_with_the_message_of_kube_scheduler(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        assert len(await launches.launch()) == 1
    assert await launches.plan() == []
    (message,) = launches.failed_scheduling
    assert "3 nodes were launched for this pod and registered" in message
    assert "0/4 nodes are available: 4 Insufficient cpu." in message
    (backoff,) = launches.outcome.backoffs or ()
    assert (backoff.unused_nodes, backoff.pod) == (3, "default/p0")
    assert backoff.until == launches.harness.now + FIRST_BACKOFF


async def test_nodes_count_as_unused_at_once_when_another_plan_replaces_them(launches: Launches) -> None:
    """The pods of other teams cause plans at any time, and an unused node may be gone at the next one."""
    for number in range(UNUSED_NODE_LIMIT):
        (name,) = await launches.plan()
        launches.advance(UNTIL_READY)
        launches.initialize([name])
        assert [one.unused_nodes for one in launches.outcome.backoffs or ()] == ([number] if number else [])
    assert await launches.plan() == []
    assert [(one.unused_nodes, one.pods) for one in launches.outcome.backoffs or ()] == [(UNUSED_NODE_LIMIT, 1)]
    assert len(launches.failed_scheduling) == 1
    launches.advance(FIRST_BACKOFF.total_seconds() - 1)
    assert await launches.plan() == []


async def test_launches_stop_although_nodes_with_an_unknown_taint_never_initialize(launches: Launches) -> None:
    """The planner leaves such a node as soon as it registers."""
    taint = {"key": "stranger.example.com/keep-out", "effect": "NoSchedule"}
    for _ in range(UNUSED_NODE_LIMIT):
        (name,) = await launches.plan()
        launches.advance(UNTIL_READY)
        launches.register(name, taint)
    assert await launches.plan() == []
    (message,) = launches.failed_scheduling
    assert f"{UNUSED_NODE_LIMIT} nodes were launched for this pod" in message


async def test_registered_node_is_not_unused_while_its_pods_wait_for_startup(launches: Launches) -> None:
    (name,) = await launches.plan()
    launches.advance(UNTIL_READY)
    launches.register(name, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    assert await launches.plan() == [] and launches.outcome.backoffs == ()


async def launch_and_delete(launches: Launches, *, interrupted: bool = False) -> None:
    """A node becomes ready, and is deleted before the next plan."""
    (name,) = await launches.launch()
    launches.harness.cache.set_interrupted(name, interrupted=interrupted)
    launches.harness.delete_objects("nodes", small_node(name))
    launches.harness.delete_objects("nodeclaims", launches.harness.claims.found[name])


async def test_unused_node_counts_although_it_is_deleted_before_the_next_plan(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launch_and_delete(launches)
    assert await launches.plan() == []
    assert [one.unused_nodes for one in launches.outcome.backoffs or ()] == [UNUSED_NODE_LIMIT]


async def test_deleted_node_does_not_count_once_its_pods_are_not_pending(launches: Launches) -> None:
    (name,) = await launches.launch()
    launches.harness.delete_objects("pods", web("p0"))
    launches.harness.delete_objects("nodeclaims", launches.harness.claims.found[name])
    launches.harness.apply_objects("pods", web("p0"))
    assert len(await launches.plan()) == 1 and launches.outcome.backoffs == ()


async def test_interrupted_node_does_not_count_once_it_is_deleted(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launch_and_delete(launches, interrupted=True)
    assert len(await launches.plan()) == 1 and launches.outcome.backoffs == ()


@pytest.mark.parametrize(("first", "second", "unused"), [("p0", "other", 0), ("other", "p0", 0), ("other", "", 1)])
async def test_node_counts_as_unused_without_any_pod_that_a_node_was_launched_for(
    launches: Launches, first: str, second: str, unused: int
) -> None:
    """kube-scheduler may exchange the pods of two nodes, and bind a DaemonSet's pod before them."""
    other = {"ownerReferences": [{"kind": "ReplicaSet", "uid": "own", "controller": True}]}
    (of_p0,) = await launches.plan()
    launches.harness.apply_objects("pods", web("other", metadata=other))
    (of_other,) = await launches.plan()
    claims = [of_p0, of_other]
    launches.advance(UNTIL_READY)
    launches.initialize(claims)
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "uid": "agent", "controller": True}]}
    for claim, bound in zip(claims, (first, second), strict=True):
        launches.harness.apply_objects("pods", web(f"agent-{claim}", on=f"node-{claim}", metadata=daemon))
        if bound:
            metadata = other if bound == "other" else {}
            launches.harness.apply_objects("pods", web(bound, on=f"node-{claim}", metadata=metadata))
    for claim in claims:
        launches.harness.delete_objects("nodeclaims", launches.harness.claims.found[claim])
    assert _count_unused_nodes(launches) == unused


async def test_node_is_used_by_a_pod_that_was_bound_before_its_node_was_known(launches: Launches) -> None:
    (name,) = await launches.plan()
    launches.advance(UNTIL_READY)
    launches.harness.apply_objects("pods", web("p0", on=f"node-{name}"))
    launches.initialize([name])
    launches.harness.delete_objects("pods", web("p0", on=f"node-{name}"))
    launches.harness.delete_objects("nodeclaims", launches.harness.claims.found[name])
    assert _count_unused_nodes(launches) == 0


@pytest.mark.parametrize("used", [True, False])
async def test_new_process_counts_a_deleted_node_unless_it_had_pods(launches: Launches, used: bool) -> None:
    """The node became ready after the process began, and the pod was bound before the process listed pods."""
    (name,) = await launches.plan()
    launches.advance(1)
    async with restarted(launches):
        launches.advance(UNTIL_READY)
        launches.initialize([name])
        raw = launches.harness.claims.found[name]
        status = initialized_status(name, launches.harness.now)
        if used:
            status["lastPodEventTime"] = f"{launches.harness.now:%Y-%m-%dT%H:%M:%SZ}"
        launches.harness.apply_objects("nodeclaims", {**raw, "status": status})
        launches.harness.delete_objects("nodeclaims", {**raw, "status": status})
        assert _count_unused_nodes(launches) == (0 if used else 1)


def _count_unused_nodes(launches: Launches) -> float:
    records = launches.harness.meter.drain_records()
    return sum(value for name, _, value in records if name == "tenure_nodes_unused_total")


async def test_node_that_expects_another_pod_of_the_group_is_not_unused(launches: Launches) -> None:
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "uid": "own", "controller": True}]}
    launches.harness.apply_objects("pods", web("p0", metadata=owner))
    (name,) = await launches.plan()
    launches.advance(UNTIL_READY)
    launches.initialize([name])
    roomy = small_node(name)
    roomy["status"]["allocatable"] |= {"cpu": "1500m"}
    launches.harness.apply_objects("nodes", roomy)
    launches.harness.apply_objects("pods", web("p1", metadata=owner))
    assert len(await launches.plan()) == 1
    assert launches.outcome.backoffs == ()


async def test_backoff_doubles_up_to_an_hour(launches: Launches) -> None:
    waits: list[timedelta] = []
    for _ in range(UNUSED_NODE_LIMIT - 1):
        await launches.launch()
    for _ in range(9):
        assert len(await launches.launch()) == 1
        assert await launches.plan() == []
        (backoff,) = launches.outcome.backoffs or ()
        assert backoff.until
        waits.append(backoff.until - launches.harness.now)
        launches.advance(waits[-1].total_seconds() + 1)
    assert waits[:4] == [FIRST_BACKOFF * factor for factor in (1, 2, 4, 8)]
    assert waits[-1] == MAX_BACKOFF and waits == sorted(waits)


async def test_used_node_ends_the_backoff(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    assert await launches.plan() == []
    launches.advance(FIRST_BACKOFF.total_seconds() + 1)
    launches.harness.apply_objects("pods", web("p1"))
    assert await launches.launch(used_by="p1")
    assert len(await launches.plan()) == 1
    assert [one.unused_nodes for one in launches.outcome.backoffs or ()] == [0]


async def test_deleted_pods_are_no_longer_reported_and_their_count_is_kept(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    await launches.plan()
    tracker = launches.harness.provisioner.backoff_tracker
    assert [one.pods for one in launches.outcome.backoffs or ()] == [1] and not tracker.end_if_released()
    launches.harness.delete_objects("pods", web("p0"))
    assert tracker.end_if_released() and not tracker.end_if_released()
    await launches.plan()
    assert [(one.pods, one.unused_nodes) for one in launches.outcome.backoffs or ()] == [(0, UNUSED_NODE_LIMIT)]
    launches.harness.apply_objects("pods", web("p1"))
    assert await launches.plan() == []


async def test_pods_of_other_groups_get_their_nodes(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    other = web("other", metadata={"ownerReferences": [{"kind": "ReplicaSet", "uid": "own", "controller": True}]})
    launches.harness.apply_objects("pods", other)
    (created,) = await launches.plan()
    assert launches.harness.nominations.nomination_of("uid-other").target == created  # type: ignore[union-attr]
    assert set(launches.harness.nominations.unschedulable) == {"uid-p0"}


async def test_pod_in_backoff_uses_existing_nodes(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    assert await launches.plan() == []
    launches.harness.add_running_node("roomy", "roomy")
    roomy = node("roomy", of="roomy")
    roomy["status"]["allocatable"] |= {"pods": "10"}
    launches.harness.apply_objects("nodes", roomy)
    assert await launches.plan() == [] and not launches.harness.nominations.unschedulable
    assert launches.harness.nominations.nomination_of("uid-p0").target == "roomy"  # type: ignore[union-attr]


async def test_late_kube_scheduler_is_no_reason_for_a_backoff(launches: Launches) -> None:
    """The nodes have room, so plans keep the pods there: nothing is launched and nothing is counted."""
    harness = launches.harness
    harness.apply_objects("pods", *(web(f"p{number}") for number in range(1, 9)))
    names = await launches.plan()
    launches.advance(UNTIL_READY)
    launches.initialize(names)
    for name in names:
        harness.apply_objects(
            "nodes",
            node(f"node-{name}", of=name)
            | {"status": {**node("n")["status"], "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "100"}}},
        )
    launches.advance(EXPIRY)
    for _ in range(5):
        assert await launches.plan() == [] and launches.outcome.backoffs == ()
        launches.advance(EXPIRY)


async def test_repeated_plan_keeps_the_stored_backoffs(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT - 1):
        await launches.launch()
    await launches.plan()
    stored = launches.outcome.backoffs
    repeated = await launches.harness.plan(f"plan-{launches.plans}", backoffs=stored)
    assert repeated.created == 1 and repeated.backoffs is None
    assert [one.unused_nodes for one in stored or ()] == [2]


async def test_new_process_continues_the_count(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    async with restarted(launches):
        assert await launches.plan() == []


async def test_new_process_counts_a_node_that_the_earlier_one_launched_just_before(launches: Launches) -> None:
    for _ in range(UNUSED_NODE_LIMIT - 1):
        await launches.launch()
    (name,) = await launches.plan()
    launches.advance(UNTIL_READY)
    launches.initialize([name])
    async with restarted(launches):
        assert await launches.plan() == []
        (backoff,) = launches.outcome.backoffs or ()
        assert backoff.unused_nodes == UNUSED_NODE_LIMIT and name in backoff.nodeclaims


async def test_new_process_does_not_count_nodes_whose_pods_were_evicted_before_it_began(launches: Launches) -> None:
    """AWS reclaims all nodes at once, and another process takes over meanwhile."""
    names = [name for _ in range(UNUSED_NODE_LIMIT) for name in await launches.launch(used_by="p0")]
    async with restarted(launches, used=names):
        assert len(await launches.plan()) == 1
        assert launches.outcome.backoffs == ()


async def test_new_process_does_not_count_a_node_that_suits_another_pod_of_the_group(launches: Launches) -> None:
    """The earlier process may have nominated that pod to it."""
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "uid": "own", "controller": True}]}
    both = [web(name, metadata=owner) for name in ("p0", "p1")]
    launches.harness.apply_objects("pods", *both)
    (name, *_) = await launches.plan()
    launches.advance(UNTIL_READY)
    launches.initialize([name])
    roomy = small_node(name)
    roomy["status"]["allocatable"] |= {"cpu": "1500m"}
    async with restarted(launches, pods=both):
        launches.harness.apply_objects("nodes", roomy)
        assert len(await launches.plan()) == 1
        assert launches.outcome.backoffs == ()


@asynccontextmanager
async def restarted(launches: Launches, pods: Sequence[Json] = (), used: Sequence[str] = ()) -> AsyncIterator[None]:
    """A new process, which knows the objects of the API server and no nominations. `used`: the NodeClaims on whose
    nodes pods ran before."""
    old, fresh = launches.harness, ProvisionerHarness()
    fresh.now, fresh.claims = old.now, old.claims
    fresh.provisioner._claims = old.claims
    fresh.provisioner.backoff_tracker._began = old.now
    for kind, table in (("nodepools", [pool()]), ("ec2nodeclasses", [node_class()]), ("pods", pods or [web("p0")])):
        fresh.apply_objects(kind, *table)
    for name, raw in list(old.claims.found.items()):
        fact = old.cache.nodeclaims[name]
        if fact.initialized_at:
            status = initialized_status(name, fact.initialized_at)
            if name in used:
                status["lastPodEventTime"] = f"{fact.initialized_at:%Y-%m-%dT%H:%M:%SZ}"
            fresh.apply_objects("nodeclaims", {**raw, "status": status})
            fresh.apply_objects("nodes", small_node(name))
    launches.harness = fresh
    try:
        yield
    finally:
        await fresh.provisioner.close()


async def test_old_nodes_are_not_counted(launches: Launches) -> None:
    """A pod may have run there and be gone."""
    for _ in range(UNUSED_NODE_LIMIT + 2):
        await launches.launch()
        launches.advance(RECENT.total_seconds())
        if launches.plans == 1:
            launches.outcome = launches.outcome.model_copy(update={"backoffs": ()})
    assert launches.outcome.backoffs == ()


async def test_message_is_that_of_the_last_counted_node(launches: Launches) -> None:
    """After the unused nodes are deleted, kube-scheduler no longer names the cause."""
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    assert await launches.plan() == []
    launches.harness.scheduler_messages.message = "no nodes available to schedule pods"
    assert await launches.plan() == []
    (backoff,) = launches.outcome.backoffs or ()
    assert backoff.scheduler_message == "0/4 nodes are available: 4 Insufficient cpu."
    assert "4 Insufficient cpu." in launches.failed_scheduling[-1]


async def test_message_that_cannot_be_read_does_not_stop_the_plan(launches: Launches) -> None:
    launches.harness.scheduler_messages.fault = TryLater("503")
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    assert await launches.plan() == []
    assert "kube-scheduler:" not in launches.failed_scheduling[-1]


async def test_nodeclaim_names_the_groups_of_its_pods(launches: Launches) -> None:
    (name,) = await launches.plan()
    written = launches.harness.claims.found[name]["metadata"]["annotations"][labels.POD_GROUPS]
    assert written == pod_group(launches.harness.cache.pods["uid-p0"])


@given(some.lists(some.integers(0, 4 * 3600), max_size=8))
def test_recent_entries_are_retained(ages: list[int]) -> None:
    entries = tuple(
        ProvisioningBackoff(pod_group=str(number), pod="a/b", since=NOW, last_unused_at=NOW - timedelta(seconds=age))
        for number, age in enumerate(ages)
    )
    retained = select_retained(entries, NOW)
    assert {one.pod_group for one in retained} == {
        str(number) for number, age in enumerate(ages) if age < BACKOFF_RETENTION.total_seconds()
    }


def test_number_of_entries_is_bounded() -> None:
    entries = tuple(
        ProvisioningBackoff(pod_group=str(number), pod="a/b", since=NOW, last_unused_at=at(-number))
        for number in range(MAX_BACKOFFS + 5)
    )
    assert {one.pod_group for one in select_retained(entries, NOW)} == {str(number) for number in range(MAX_BACKOFFS)}
