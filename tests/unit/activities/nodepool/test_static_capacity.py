"""One step towards spec.replicas: from live objects, repeatable, with a final check before each deletion."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.model.errors import TryLater
from tenure.model.extra_capacity import MovedPod, ReplicasRequest, ReplicasResult
from tests.support.fakes.kubernetes import NODE_CLASS
from tests.unit.activities.builders import FakeCluster, run_activity


def replicas_request(plan_id: str = "plan", hold: str = "") -> ReplicasRequest:
    return ReplicasRequest(pool="default", plan_id=plan_id, deletion_blocked_by=hold)


async def reconcile_replicas(cluster: FakeCluster, plan_id: str = "plan", hold: str = "") -> ReplicasResult:
    return await run_activity(cluster.replicas.reconcile_replicas, replicas_request(plan_id, hold))


def active_nodeclaims(cluster: FakeCluster) -> set[str]:
    found = cluster.claims.found.items()
    return {name for name, claim in found if "deletionTimestamp" not in claim["metadata"]}


def add_running_nodes(cluster: FakeCluster, *names: str, pods: int = 0, **node: Any) -> None:
    """Nodes of the NodePool with `pods` pods each, and NodeClaims with their finalizers."""
    for name in names:
        provider = f"aws:///us-west-2a/i-{name}"
        cluster.claims.add(name, expireAfter="Never")
        cluster.claims.found[name]["metadata"]["finalizers"] = [labels.TERMINATION_FINALIZER]
        cluster.claims.set_status(name, provider_id=provider, Launched="True")
        cluster.claims.found[name]["status"]["nodeName"] = f"node-{name}"
        cluster.nodes.join(f"node-{name}", provider, labels={labels.NODEPOOL: "default"}, **node)
        for number in range(pods):
            cluster.pods.add(f"node-{name}", f"{name}-{number}")


async def test_missing_replicas_are_created_from_template(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=3)
    assert await reconcile_replicas(cluster) == ReplicasResult(desired=3, existing=3, created=3)
    made = [await cluster.claims.get(name) for name in active_nodeclaims(cluster)]
    assert len({one.metadata.name for one in made if one}) == 3
    for one in made:
        assert one is not None
        assert one.nodepool == "default" and one.spec.node_class_ref.name == "default"
        assert one.metadata.finalizers == (labels.TERMINATION_FINALIZER,)
        assert labels.LAUNCH_GROUP not in one.metadata.annotations


@pytest.mark.parametrize(
    ("replicas", "created", "deleted"),
    [(2, 0, 0), (3, 0, 0), (4, 1, 0), (1, 0, 1)],
    ids=["up", "steady", "more", "less"],
)
async def test_nodes_that_a_command_replaces_count_up_to_the_replicas(
    cluster: FakeCluster, replicas: int, created: int, deleted: int
) -> None:
    """`replaced` is part of a disruption command; one of the others is its replacement."""
    cluster.pools.add("default", replicas=replicas)
    add_running_nodes(cluster, "a", "replacement", "replaced", pods=1)
    cluster.claims.set_status("replaced", DisruptionReason="True")
    cluster.claims.found["replaced"]["status"]["conditions"][-1]["message"] = "command"
    result = await reconcile_replicas(cluster)
    assert (result.created, result.deleted) == (created, deleted)
    assert "replaced" in active_nodeclaims(cluster)


async def test_repeated_step_creates_nothing(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=5)
    await reconcile_replicas(cluster)
    first = active_nodeclaims(cluster)
    assert await reconcile_replicas(cluster) == ReplicasResult(desired=5, existing=5)
    assert active_nodeclaims(cluster) == first


async def test_interrupted_step_continues_with_same_names(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=5)
    uninterrupted = FakeCluster()
    uninterrupted.pools.add("default", replicas=5)
    await reconcile_replicas(uninterrupted)
    cluster.claims.faults["create"] = [None, None, TryLater("the API server is away"), None, None]
    with pytest.raises(ApplicationError, match="away"):
        await reconcile_replicas(cluster)
    assert len(active_nodeclaims(cluster)) == 4
    assert (await reconcile_replicas(cluster)).created == 1
    assert active_nodeclaims(cluster) == active_nodeclaims(uninterrupted)


async def test_concurrent_steps_create_same_names(cluster: FakeCluster) -> None:
    """The first attempt was presumed dead, and lists before the second one creates."""
    cluster.pools.add("default", replicas=4)
    empty: list[Any] = []
    listed = cluster.claims.list

    async def list_before_creation(**_: Any) -> Any:
        return empty

    await reconcile_replicas(cluster)
    cluster.claims.list = list_before_creation  # type: ignore[method-assign]
    await reconcile_replicas(cluster)
    cluster.claims.list = listed  # type: ignore[method-assign]
    assert len(active_nodeclaims(cluster)) == 4


async def test_new_plan_creates_new_names(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=1)
    await reconcile_replicas(cluster, "one")
    (first,) = active_nodeclaims(cluster)
    cluster.claims.set_status(first, deleting=True)
    assert (await reconcile_replicas(cluster, "two")).created == 1
    assert active_nodeclaims(cluster) != {first}


async def test_deleting_nodeclaim_is_replaced_with_another_name_of_plan(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=2)
    await reconcile_replicas(cluster)
    deleted = sorted(active_nodeclaims(cluster))[0]
    cluster.claims.set_status(deleted, deleting=True)
    assert (await reconcile_replicas(cluster)).created == 1
    assert len(active_nodeclaims(cluster)) == 2 and deleted not in active_nodeclaims(cluster)


async def test_node_limit_includes_deleting_nodeclaims(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=10, limits={"nodes": "5"})
    add_running_nodes(cluster, "a")
    cluster.claims.set_status("a", deleting=True)
    result = await reconcile_replicas(cluster)
    assert (result.created, result.existing, result.more) == (4, 4, False)
    assert "limits.nodes=5" in result.waits_for
    assert cluster.events.reasons_for("default") == [labels.REPLICAS_WAIT]


@pytest.mark.parametrize(
    ("ready", "why"), [("False", "EC2NodeClass default is not ready"), ("", "is not resolved yet")]
)
async def test_unready_nodeclass_blocks_creation(cluster: FakeCluster, ready: str, why: str) -> None:
    cluster.pools.add("default", replicas=2)
    cluster.node_classes.add("default", ready=ready)
    result = await reconcile_replicas(cluster)
    assert result.created == 0 and why in result.waits_for
    assert not cluster.claims.found


async def test_invalid_nodepool_blocks_creation(cluster: FakeCluster) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    cluster.pools.add("default", replicas=2, template={"spec": {"nodeClassRef": NODE_CLASS, "taints": [taint, taint]}})
    assert "is in taints and in startupTaints" in (await reconcile_replicas(cluster)).waits_for
    assert not cluster.claims.found


async def test_missing_or_dynamic_nodepool_is_ignored(cluster: FakeCluster) -> None:
    add_running_nodes(cluster, "a")
    assert await reconcile_replicas(cluster) == ReplicasResult()
    cluster.pools.add("default")
    assert await reconcile_replicas(cluster) == ReplicasResult()
    assert active_nodeclaims(cluster) == {"a"}


async def test_large_nodepool_takes_several_steps_of_one_plan(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodepool.static_capacity.MAX_CREATED_PER_PASS", 3)
    cluster.pools.add("default", replicas=7)
    steps = [await reconcile_replicas(cluster) for _ in range(3)]
    assert [(one.created, one.more) for one in steps] == [(3, True), (3, True), (1, False)]
    assert len(active_nodeclaims(cluster)) == 7


async def test_unlaunched_nodeclaims_are_deleted_first_without_reading_loads(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=2)
    add_running_nodes(cluster, "a", "b")
    cluster.claims.add("new")
    cluster.loads.faults["on_nodes"] = [TryLater("not to be asked")]
    assert await reconcile_replicas(cluster) == ReplicasResult(desired=2, existing=2, deleted=1)
    assert active_nodeclaims(cluster) == {"a", "b"}


async def test_second_node_with_the_same_provider_id_protects_nothing(cluster: FakeCluster) -> None:
    add_running_nodes(cluster, "busy", pods=1)
    add_running_nodes(cluster, "empty")
    cluster.claims.set_status("empty", Registered="True")
    provider, protected = "aws:///us-west-2a/i-empty", {labels.DO_NOT_DISRUPT: "true"}
    cluster.nodes.join("second", provider, labels={labels.NODEPOOL: "default"}, annotations=protected)
    cluster.pools.add("default", replicas=1)
    await reconcile_replicas(cluster)
    assert active_nodeclaims(cluster) == {"busy"}


async def test_scale_down_deletes_empty_nodes_first_and_protected_last(cluster: FakeCluster) -> None:
    add_running_nodes(cluster, "busy", "light", pods=1)
    add_running_nodes(cluster, "empty", "bare")
    add_running_nodes(cluster, "kept", annotations={labels.DO_NOT_DISRUPT: "true"})
    cluster.loads.weights["busy-0"] = MovedPod(priority=2**25)
    cluster.pools.add("default", replicas=3)
    assert (await reconcile_replicas(cluster)).deleted == 2
    assert active_nodeclaims(cluster) == {"busy", "light", "kept"}
    cluster.pools.add("default", replicas=2)
    await reconcile_replicas(cluster)
    assert active_nodeclaims(cluster) == {"busy", "kept"}
    cluster.pools.add("default", replicas=1)
    await reconcile_replicas(cluster)
    assert active_nodeclaims(cluster) == {"kept"}
    cluster.pools.add("default", replicas=0)
    await reconcile_replicas(cluster)
    assert active_nodeclaims(cluster) == set()


async def test_deletion_is_reported_with_reason(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=0)
    add_running_nodes(cluster, "a", pods=2)
    await reconcile_replicas(cluster)
    assert cluster.claims.condition_text("a", labels.DISRUPTION_REASON) == f"True {labels.OVERPROVISIONED}"
    assert cluster.events.published == [
        ("a", labels.OVERPROVISIONED, "deleted: NodePool default has more nodes than spec.replicas=0")
    ]


async def test_blocked_deletion_is_reported_with_reason(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=0)
    add_running_nodes(cluster, "a")
    result = await reconcile_replicas(cluster, hold="paused by ops")
    assert (result.deleted, result.waits_for) == (0, "paused by ops")
    assert active_nodeclaims(cluster) == {"a"}


async def test_nodepool_scaled_up_meanwhile_loses_nothing(cluster: FakeCluster) -> None:
    """The final check reads the NodePool again."""
    cluster.pools.add("default", replicas=1)
    add_running_nodes(cluster, "a", "b")
    _before_last_check(cluster, lambda: cluster.pools.add("default", replicas=2))
    result = await reconcile_replicas(cluster)
    assert (result.deleted, result.more) == (0, True)
    assert active_nodeclaims(cluster) == {"a", "b"}


async def test_empty_node_with_new_pod_is_ranked_again(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=2)
    add_running_nodes(cluster, "a")
    add_running_nodes(cluster, "b", pods=1)
    add_running_nodes(cluster, "c", pods=1)
    cluster.loads.weights["a-late"] = MovedPod(priority=2**25)
    _before_last_check(cluster, lambda: cluster.pods.add("node-a", "a-late"))
    result = await reconcile_replicas(cluster)
    assert (result.deleted, result.more) == (0, True)
    assert (await reconcile_replicas(cluster)).deleted == 1
    assert "a" in active_nodeclaims(cluster)


async def test_nodeclaim_launched_meanwhile_is_ranked_again(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=1)
    add_running_nodes(cluster, "a")
    cluster.claims.add("new")
    _before_last_check(cluster, lambda: cluster.claims.set_status("new", provider_id="aws:///us-west-2a/i-new"))
    assert (await reconcile_replicas(cluster)).more
    assert active_nodeclaims(cluster) == {"a", "new"}


async def test_failed_deletion_does_not_block_others(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=0)
    add_running_nodes(cluster, "a", "b", "c")
    cluster.claims.faults["delete"] = [TryLater("no")]
    with pytest.raises(ApplicationError):
        await reconcile_replicas(cluster)
    assert len(active_nodeclaims(cluster)) == 1
    assert (await reconcile_replicas(cluster)).deleted == 1


def _before_last_check(cluster: FakeCluster, change: Any) -> None:
    """Call `change` after the step has decided, when it reads the NodePool a second time."""
    get_nodepool = cluster.pools.get
    count = 0

    async def get(name: str) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            change()
        return await get_nodepool(name)

    cluster.pools.get = get  # type: ignore[method-assign]
