"""One step towards spec.replicas: from live objects, repeated without harm, with a last look before every deletion."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.model.errors import TryLater
from tenure.model.extra_capacity import MovedPod, ReplicasAsked, ReplicasKept
from tests.support.fakes.kubernetes import NODE_CLASS
from tests.unit.activities.builders import Scene, performed


def asked(plan_id: str = "plan", hold: str = "") -> ReplicasAsked:
    return ReplicasAsked(pool="default", plan_id=plan_id, hold=hold)


async def keep(scene: Scene, plan_id: str = "plan", hold: str = "") -> ReplicasKept:
    return await performed(scene.replicas.keep_replicas, asked(plan_id, hold))


def standing(scene: Scene) -> set[str]:
    found = scene.claims.found.items()
    return {name for name, claim in found if "deletionTimestamp" not in claim["metadata"]}


def running(scene: Scene, *names: str, pods: int = 0, **node: Any) -> None:
    """Nodes of the pool with so many pods on each; NodeClaims with their finalizers."""
    for name in names:
        provider = f"aws:///us-west-2a/i-{name}"
        scene.claims.add(name, expireAfter="Never")
        scene.claims.found[name]["metadata"]["finalizers"] = [labels.TERMINATION_FINALIZER]
        scene.claims.give(name, provider_id=provider, Launched="True")
        scene.claims.found[name]["status"]["nodeName"] = f"node-{name}"
        scene.nodes.join(f"node-{name}", provider, labels={labels.NODEPOOL: "default"}, **node)
        for number in range(pods):
            scene.pods.place(f"node-{name}", f"{name}-{number}")


async def test_what_is_missing_is_created_from_the_template(scene: Scene) -> None:
    scene.pools.add("default", replicas=3)
    assert await keep(scene) == ReplicasKept(desired=3, standing=3, created=3)
    made = [await scene.claims.get(name) for name in standing(scene)]
    assert len({one.metadata.name for one in made if one}) == 3
    for one in made:
        assert one is not None
        assert one.nodepool == "default" and one.spec.node_class_ref.name == "default"
        assert one.metadata.finalizers == (labels.TERMINATION_FINALIZER,)
        assert labels.LAUNCH_GROUP not in one.metadata.annotations


async def test_a_step_said_twice_makes_none_twice(scene: Scene) -> None:
    scene.pools.add("default", replicas=5)
    await keep(scene)
    first = standing(scene)
    assert await keep(scene) == ReplicasKept(desired=5, standing=5)
    assert standing(scene) == first


async def test_a_step_that_broke_off_is_finished_under_the_names_it_began_with(scene: Scene) -> None:
    scene.pools.add("default", replicas=5)
    whole = Scene()
    whole.pools.add("default", replicas=5)
    await keep(whole)
    scene.claims.faults["create"] = [None, None, TryLater("the API server is away"), None, None]
    with pytest.raises(ApplicationError, match="away"):
        await keep(scene)
    assert len(standing(scene)) == 4
    assert (await keep(scene)).created == 1
    assert standing(scene) == standing(whole)


async def test_two_tries_at_once_make_the_same_names(scene: Scene) -> None:
    """The first was believed dead and lists before the second creates."""
    scene.pools.add("default", replicas=4)
    empty: list[Any] = []
    listed = scene.claims.list

    async def list_of_old(**_: Any) -> Any:
        return empty

    await keep(scene)
    scene.claims.list = list_of_old  # type: ignore[method-assign]
    await keep(scene)
    scene.claims.list = listed  # type: ignore[method-assign]
    assert len(standing(scene)) == 4


async def test_another_plan_makes_others(scene: Scene) -> None:
    scene.pools.add("default", replicas=1)
    await keep(scene, "one")
    (first,) = standing(scene)
    scene.claims.give(first, deleting=True)
    assert (await keep(scene, "two")).created == 1
    assert standing(scene) != {first}


async def test_one_that_goes_is_replaced_under_another_name_of_the_plan(scene: Scene) -> None:
    scene.pools.add("default", replicas=2)
    await keep(scene)
    gone = sorted(standing(scene))[0]
    scene.claims.give(gone, deleting=True)
    assert (await keep(scene)).created == 1
    assert len(standing(scene)) == 2 and gone not in standing(scene)


async def test_the_limit_bounds_what_is_made_and_those_that_go_count(scene: Scene) -> None:
    scene.pools.add("default", replicas=10, limits={"nodes": "5"})
    running(scene, "a")
    scene.claims.give("a", deleting=True)
    kept = await keep(scene)
    assert (kept.created, kept.standing, kept.more) == (4, 4, False)
    assert "limits.nodes=5" in kept.waits_for
    assert scene.events.reasons("default") == [labels.REPLICAS_WAIT]


@pytest.mark.parametrize(
    ("ready", "why"), [("False", "EC2NodeClass default is not ready"), ("", "is not resolved yet")]
)
async def test_nothing_is_made_while_the_class_is_not_ready(scene: Scene, ready: str, why: str) -> None:
    scene.pools.add("default", replicas=2)
    scene.node_classes.add("default", ready=ready)
    kept = await keep(scene)
    assert kept.created == 0 and why in kept.waits_for
    assert not scene.claims.found


async def test_nothing_is_made_for_a_pool_that_is_wrong(scene: Scene) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    scene.pools.add("default", replicas=2, template={"spec": {"nodeClassRef": NODE_CLASS, "taints": [taint, taint]}})
    assert "stands twice" in (await keep(scene)).waits_for
    assert not scene.claims.found


async def test_a_pool_that_is_gone_or_not_static_is_left_alone(scene: Scene) -> None:
    running(scene, "a")
    assert await keep(scene) == ReplicasKept()
    scene.pools.add("default")
    assert await keep(scene) == ReplicasKept()
    assert standing(scene) == {"a"}


async def test_a_large_pool_takes_several_steps_of_one_plan(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodepool.static_capacity.MOST_MADE", 3)
    scene.pools.add("default", replicas=7)
    steps = [await keep(scene) for _ in range(3)]
    assert [(one.created, one.more) for one in steps] == [(3, True), (3, True), (1, False)]
    assert len(standing(scene)) == 7


async def test_unlaunched_ones_go_first_and_nobody_asks_what_nodes_carry(scene: Scene) -> None:
    scene.pools.add("default", replicas=2)
    running(scene, "a", "b")
    scene.claims.add("new")
    scene.loads.faults["on_nodes"] = [TryLater("not to be asked")]
    assert await keep(scene) == ReplicasKept(desired=2, standing=2, deleted=1)
    assert standing(scene) == {"a", "b"}


async def test_from_five_to_three_go_the_empty_ones_and_from_three_to_one_the_protected_stays(scene: Scene) -> None:
    running(scene, "busy", "light", pods=1)
    running(scene, "empty", "bare")
    running(scene, "kept", annotations={labels.DO_NOT_DISRUPT: "true"})
    scene.loads.weights["busy-0"] = MovedPod(priority=2**25)
    scene.pools.add("default", replicas=3)
    assert (await keep(scene)).deleted == 2
    assert standing(scene) == {"busy", "light", "kept"}
    scene.pools.add("default", replicas=2)
    await keep(scene)
    assert standing(scene) == {"busy", "kept"}
    scene.pools.add("default", replicas=1)
    await keep(scene)
    assert standing(scene) == {"kept"}
    scene.pools.add("default", replicas=0)
    await keep(scene)
    assert standing(scene) == set()


async def test_a_deletion_says_why(scene: Scene) -> None:
    scene.pools.add("default", replicas=0)
    running(scene, "a", pods=2)
    await keep(scene)
    assert scene.claims.condition("a", labels.DISRUPTION_REASON) == f"True {labels.OVERPROVISIONED}"
    assert scene.events.said == [
        ("a", labels.OVERPROVISIONED, "deleted: NodePool default has more nodes than spec.replicas=0")
    ]


async def test_held_back_nothing_is_deleted_and_it_is_said_why(scene: Scene) -> None:
    scene.pools.add("default", replicas=0)
    running(scene, "a")
    kept = await keep(scene, hold="paused by ops")
    assert (kept.deleted, kept.waits_for) == (0, "paused by ops")
    assert standing(scene) == {"a"}


async def test_a_pool_that_grew_meanwhile_loses_nothing(scene: Scene) -> None:
    """The last look is at the pool too."""
    scene.pools.add("default", replicas=1)
    running(scene, "a", "b")
    _before_the_last_look(scene, lambda: scene.pools.add("default", replicas=2))
    kept = await keep(scene)
    assert (kept.deleted, kept.more) == (0, True)
    assert standing(scene) == {"a", "b"}


async def test_an_empty_node_that_got_a_pod_meanwhile_is_weighed_anew(scene: Scene) -> None:
    scene.pools.add("default", replicas=2)
    running(scene, "a")
    running(scene, "b", pods=1)
    running(scene, "c", pods=1)
    scene.loads.weights["a-late"] = MovedPod(priority=2**25)
    _before_the_last_look(scene, lambda: scene.pods.place("node-a", "a-late"))
    kept = await keep(scene)
    assert (kept.deleted, kept.more) == (0, True)
    assert (await keep(scene)).deleted == 1
    assert "a" in standing(scene)


async def test_one_that_was_launched_meanwhile_is_weighed_anew(scene: Scene) -> None:
    scene.pools.add("default", replicas=1)
    running(scene, "a")
    scene.claims.add("new")
    _before_the_last_look(scene, lambda: scene.claims.give("new", provider_id="aws:///us-west-2a/i-new"))
    assert (await keep(scene)).more
    assert standing(scene) == {"a", "new"}


async def test_a_deletion_that_is_refused_keeps_no_other_from_being_made(scene: Scene) -> None:
    scene.pools.add("default", replicas=0)
    running(scene, "a", "b", "c")
    scene.claims.faults["delete"] = [TryLater("no")]
    with pytest.raises(ApplicationError):
        await keep(scene)
    assert len(standing(scene)) == 1
    assert (await keep(scene)).deleted == 1


def _before_the_last_look(scene: Scene, happens: Any) -> None:
    """Something happens after the step has decided: at its second look at the pool."""
    looks = scene.pools.get
    count = 0

    async def get(name: str) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            happens()
        return await looks(name)

    scene.pools.get = get  # type: ignore[method-assign]
