"""How a NodePool stands for a roll-out, what is told of it, and images that are taken back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.nodepool.rollout import RolloutActivities
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodepool_hash
from tenure.model.rollout import News, PinAsked, RolloutAsked, RolloutSeen, RolloutTold, pin_in_force
from tests.unit.activities.builders import Scene, performed

ASKED = RolloutAsked(name="default", pods=True)
PIN = PinAsked(node_class="default", images={"ami-bad": "ami-good"}, by="ann", why="it fails", lasts=timedelta(days=30))


@pytest.fixture
def rolling(scene: Scene) -> RolloutActivities:
    scene.pools.add("default")
    resolve(scene)
    return RolloutActivities(
        pools=scene.pools,
        claims=scene.claims,
        nodes=scene.nodes,
        pods=scene.pods,
        node_classes=scene.node_classes,
        events=scene.events,
    )


def resolve(scene: Scene, *images: str, generation: int = 1, observed: int = 1, **status: Any) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": observed}
    stamps = {labels.NODECLASS_HASH: "c1", labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    scene.node_classes.found["default"] = EC2NodeClass.model_validate(
        {
            "metadata": {"name": "default", "uid": "u", "generation": generation, "annotations": stamps},
            "status": {"conditions": [ready], "amis": [{"id": one} for one in images or ("ami-1",)], **status},
        }
    )


def node(
    scene: Scene, name: str, *, image: str = "ami-1", ready: bool = True, going: bool = False, **more: Any
) -> None:
    """An initialized one of the NodePool `default`, stamped as it is now; `more`: conditions."""
    stamps = {
        labels.NODEPOOL_HASH: nodepool_hash(scene.pools.found["default"]),
        labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
        labels.NODECLASS_HASH: "c1",
        labels.NODECLASS_HASH_VERSION: HASH_VERSION,
    }
    scene.claims.add(name, annotations=stamps | more.pop("stamps", {}))
    scene.claims.found[name]["status"]["imageID"] = image
    provider = f"aws:///us-west-2a/i-{name}"
    scene.claims.give(name, provider_id=provider, deleting=more.pop("deleting", False), Initialized="True", **more)
    scene.nodes.join(f"node-{name}", provider, ready=ready)
    taints = ((labels.DISRUPTED_TAINT_KEY, "", labels.NO_SCHEDULE),) if going else ()
    scene.nodes.change(f"node-{name}", labels={labels.NODEPOOL: "default"}, taints=taints)


async def look(rolling: RolloutActivities) -> RolloutSeen:
    return await performed(rolling.look_at_rollout, ASKED)


async def test_old_ones_new_ones_and_those_that_go(scene: Scene, rolling: RolloutActivities) -> None:
    node(scene, "old", Drifted="True")
    node(scene, "going", Drifted="True", going=True)
    node(scene, "gone", Drifted="True", deleting=True)
    node(scene, "new")
    node(scene, "sick", ready=False)
    node(scene, "leaving", going=True)
    found = await look(rolling)
    assert found.drifted == ("uid-going", "uid-gone", "uid-old")
    assert found.out == ("uid-going", "uid-gone")
    assert (found.new, found.ready) == (2, 1)


async def test_a_node_whose_node_object_is_lost_is_not_ready(scene: Scene, rolling: RolloutActivities) -> None:
    node(scene, "new")
    scene.nodes.found.clear()
    found = await look(rolling)
    assert (found.new, found.ready) == (1, 0)


@pytest.mark.parametrize(
    "made_of",
    [{"image": "ami-0"}, {"stamps": {labels.NODEPOOL_HASH: "p0"}}, {"stamps": {labels.NODECLASS_HASH: "c0"}}],
    ids=["image", "template", "class"],
)
async def test_an_older_node_whose_drift_is_not_seen_yet_is_not_a_new_one(
    scene: Scene, rolling: RolloutActivities, made_of: dict[str, Any]
) -> None:
    node(scene, "old", **made_of)
    assert (await look(rolling)).new == 0


async def test_pods_that_stay_on_new_nodes_are_counted(scene: Scene, rolling: RolloutActivities) -> None:
    node(scene, "old", Drifted="True")
    node(scene, "new")
    scene.pods.place("node-old", "elsewhere", ready=False)
    scene.pods.place("node-new", "well")
    scene.pods.place("node-new", "not-well", ready=False)
    scene.pods.place("node-new", "daemon", ready=False, reschedulable=False)
    scene.pods.place("node-new", "leaving", ready=False, deletion=datetime(2026, 1, 1, tzinfo=UTC))
    found = await look(rolling)
    assert (found.pods, found.pods_ready) == (2, 1)
    blind = await performed(rolling.look_at_rollout, RolloutAsked(name="default"))
    assert (blind.pods, blind.pods_ready) == (0, 0)


async def test_the_target_changes_with_what_nodes_are_made_from(scene: Scene, rolling: RolloutActivities) -> None:
    targets = [(await look(rolling)).target]
    resolve(scene, "ami-2")
    targets.append((await look(rolling)).target)
    resolve(scene, "ami-2", securityGroups=[{"id": "sg-2"}])
    targets.append((await look(rolling)).target)
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    reference = scene.pools.found["default"].spec.template.spec.node_class_ref.to_object()
    scene.pools.add("default", template={"spec": {"nodeClassRef": reference, "requirements": [requirement]}})
    targets.append((await look(rolling)).target)
    scene.pools.add("default", template={"metadata": {"labels": {"a": "b"}}, "spec": {"nodeClassRef": reference}})
    targets.append((await look(rolling)).target)
    known = [one for one in targets if one]
    assert len({one.id for one in known}) == len(targets)
    assert known[1].changed_from(known[0]) == ("the image",)
    assert known[2].changed_from(known[1]) == ("the security groups",)
    assert known[3].changed_from(known[2]) == ("the NodePool's requirements",)
    assert known[4].changed_from(known[3]) == ("the NodePool's template", "the NodePool's requirements")


async def test_subnets_and_the_order_of_images_are_no_other_target(scene: Scene, rolling: RolloutActivities) -> None:
    resolve(scene, "ami-1", "ami-2", subnets=[{"id": "subnet-1", "zone": "a"}])
    before = (await look(rolling)).target
    resolve(scene, "ami-2", "ami-1", subnets=[{"id": "subnet-2", "zone": "b"}])
    assert (await look(rolling)).target == before


async def test_a_class_that_is_not_resolved_as_it_is_now_tells_no_target(
    scene: Scene, rolling: RolloutActivities
) -> None:
    resolve(scene, generation=2, observed=1)
    assert (await look(rolling)).target is None
    scene.node_classes.found.clear()
    assert (await look(rolling)).target is None
    scene.pools.found.clear()
    assert await look(rolling) == RolloutSeen()


async def test_news_are_events_and_the_state_stands_on_the_node_pool(scene: Scene, rolling: RolloutActivities) -> None:
    news = (News(reason="RolloutHalted", message="halted", warning=True),)
    await performed(rolling.tell_rollout, RolloutTold(name="default", news=news, kept='{"wave": 1}'))
    assert scene.events.said == [("default", "RolloutHalted", "halted")]
    assert (await look(rolling)).kept == '{"wave": 1}'
    scene.pools.found.clear()
    await performed(rolling.tell_rollout, RolloutTold(name="default", news=news))
    assert len(scene.events.said) == 1


async def test_images_are_pinned_and_the_class_is_resolved_at_once(scene: Scene, rolling: RolloutActivities) -> None:
    assert await performed(scene.classes.pin_images, PIN) is True
    pin = pin_in_force(scene.node_classes.found["default"], datetime.now(UTC))
    assert pin is not None
    assert (pin.images, pin.by, pin.reason) == ({"ami-bad": "ami-good"}, "ann", "it fails")
    assert scene.resolver.resolved == 1
    assert scene.events.said == [("default", "RolledBack", "ami-good instead of ami-bad, by ann: it fails")]
    again = PIN.model_copy(update={"by": "ben"})
    assert await performed(scene.classes.pin_images, again) is True
    assert pin_in_force(scene.node_classes.found["default"], datetime.now(UTC)) == pin
    assert len(scene.events.said) == 1


async def test_a_class_that_goes_is_not_pinned(scene: Scene) -> None:
    scene.node_classes.add("default", deleting=True)
    assert await performed(scene.classes.pin_images, PIN) is False
    assert scene.resolver.resolved == 0
