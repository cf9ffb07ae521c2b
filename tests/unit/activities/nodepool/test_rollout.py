"""The observed rollout state of a NodePool, its events, and image pins."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.nodepool.rollout import RolloutActivities
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodepool_hash
from tenure.model.rollout import (
    ObservedRollout,
    PinRequest,
    RolloutEvent,
    RolloutNotification,
    RolloutRequest,
    active_image_pin,
)
from tests.support.fakes.kubernetes import DISRUPTED
from tests.unit.activities.builders import FakeCluster, run_activity

REQUEST = RolloutRequest(name="default", pods=True)
PIN = PinRequest(
    node_class="default", images={"ami-bad": "ami-good"}, by="ann", why="it fails", lasts=timedelta(days=30)
)


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    cluster.pools.add("default")
    set_resolved_amis(cluster)
    return cluster


def set_resolved_amis(
    cluster: FakeCluster, *images: str, generation: int = 1, observed: int = 1, **status: Any
) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": observed}
    stamps = {labels.NODECLASS_HASH: "c1", labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    cluster.node_classes.found["default"] = EC2NodeClass.model_validate(
        {
            "metadata": {"name": "default", "uid": "u", "generation": generation, "annotations": stamps},
            "status": {"conditions": [ready], "amis": [{"id": one} for one in images or ("ami-1",)], **status},
        }
    )


def add_node(
    cluster: FakeCluster, name: str, *, image: str = "ami-1", ready: bool = True, is_tainted: bool = False, **more: Any
) -> None:
    """Add an initialized node of the NodePool `default` with current hashes; `more` has conditions."""
    stamps = {
        labels.NODEPOOL_HASH: nodepool_hash(cluster.pools.found["default"]),
        labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
        labels.NODECLASS_HASH: "c1",
        labels.NODECLASS_HASH_VERSION: HASH_VERSION,
    }
    cluster.claims.add(name, annotations=stamps | more.pop("stamps", {}))
    cluster.claims.found[name]["status"]["imageID"] = image
    provider = f"aws:///us-west-2a/i-{name}"
    cluster.claims.set_status(
        name, provider_id=provider, deleting=more.pop("deleting", False), Initialized="True", **more
    )
    cluster.nodes.join(f"node-{name}", provider, ready=ready)
    taints = (DISRUPTED,) if is_tainted else ()
    cluster.nodes.update_node(f"node-{name}", labels={labels.NODEPOOL: "default"}, taints=taints)


async def observe_rollout(cluster: FakeCluster, request: RolloutRequest = REQUEST) -> ObservedRollout:
    return await run_activity(RolloutActivities(cluster.made).observe_rollout, request)


async def test_second_node_with_the_same_provider_id_is_ignored(cluster: FakeCluster) -> None:
    for name, fields in (("sick", {"ready": False}), ("old", {"Drifted": "True", "is_tainted": True})):
        add_node(cluster, name, Registered="True", **fields)
        cluster.claims.found[name]["status"]["nodeName"] = f"node-{name}"
        cluster.nodes.join(f"second-{name}", f"aws:///us-west-2a/i-{name}", labels={labels.NODEPOOL: "default"})
    found = await observe_rollout(cluster)
    assert (found.updated_nodes, found.ready, found.departing) == (1, 0, ("uid-old",))


async def test_drifted_updated_and_departing_nodes_are_counted(cluster: FakeCluster) -> None:
    add_node(cluster, "old", Drifted="True")
    add_node(cluster, "going", Drifted="True", is_tainted=True)
    add_node(cluster, "gone", Drifted="True", deleting=True)
    add_node(cluster, "new")
    add_node(cluster, "sick", ready=False)
    add_node(cluster, "leaving", is_tainted=True)
    found = await observe_rollout(cluster)
    assert found.drifted == ("uid-going", "uid-gone", "uid-old")
    assert found.departing == ("uid-going", "uid-gone")
    assert (found.updated_nodes, found.ready) == (2, 1)


async def test_nodeclaim_without_node_is_not_ready(cluster: FakeCluster) -> None:
    add_node(cluster, "new")
    cluster.nodes.found.clear()
    found = await observe_rollout(cluster)
    assert (found.updated_nodes, found.ready) == (1, 0)


@pytest.mark.parametrize(
    "outdated_fields",
    [{"image": "ami-0"}, {"stamps": {labels.NODEPOOL_HASH: "p0"}}, {"stamps": {labels.NODECLASS_HASH: "c0"}}],
    ids=["image", "template", "class"],
)
async def test_outdated_node_without_drift_condition_is_not_updated(
    cluster: FakeCluster, outdated_fields: dict[str, Any]
) -> None:
    add_node(cluster, "old", **outdated_fields)
    assert (await observe_rollout(cluster)).updated_nodes == 0


async def test_pods_on_updated_nodes_are_counted(cluster: FakeCluster) -> None:
    add_node(cluster, "old", Drifted="True")
    add_node(cluster, "new")
    cluster.pods.add("node-old", "elsewhere", ready=False)
    cluster.pods.add("node-new", "well")
    cluster.pods.add("node-new", "not-well", ready=False)
    cluster.pods.add("node-new", "daemon", ready=False, reschedulable=False)
    cluster.pods.add("node-new", "leaving", ready=False, deletion=datetime(2026, 1, 1, tzinfo=UTC))
    found = await observe_rollout(cluster)
    assert (found.pods, found.pods_ready) == (2, 1)
    without_pods = await observe_rollout(cluster, RolloutRequest(name="default"))
    assert (without_pods.pods, without_pods.pods_ready) == (0, 0)


async def test_target_changes_with_node_template(cluster: FakeCluster) -> None:
    targets = [(await observe_rollout(cluster)).target]
    set_resolved_amis(cluster, "ami-2")
    targets.append((await observe_rollout(cluster)).target)
    set_resolved_amis(cluster, "ami-2", securityGroups=[{"id": "sg-2"}])
    targets.append((await observe_rollout(cluster)).target)
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    reference = cluster.pools.found["default"].spec.template.spec.node_class_ref.to_object()
    cluster.pools.add("default", template={"spec": {"nodeClassRef": reference, "requirements": [requirement]}})
    targets.append((await observe_rollout(cluster)).target)
    cluster.pools.add("default", template={"metadata": {"labels": {"a": "b"}}, "spec": {"nodeClassRef": reference}})
    targets.append((await observe_rollout(cluster)).target)
    known = [one for one in targets if one]
    assert len({one.id for one in known}) == len(targets)
    assert known[1].changed_from(known[0]) == ("the image",)
    assert known[2].changed_from(known[1]) == ("the security groups",)
    assert known[3].changed_from(known[2]) == ("the NodePool's requirements",)
    assert known[4].changed_from(known[3]) == ("the NodePool's template", "the NodePool's requirements")


async def test_subnets_and_image_order_do_not_change_target(cluster: FakeCluster) -> None:
    set_resolved_amis(cluster, "ami-1", "ami-2", subnets=[{"id": "subnet-1", "zone": "a"}])
    before = (await observe_rollout(cluster)).target
    set_resolved_amis(cluster, "ami-2", "ami-1", subnets=[{"id": "subnet-2", "zone": "b"}])
    assert (await observe_rollout(cluster)).target == before


async def test_unresolved_nodeclass_has_no_target(cluster: FakeCluster) -> None:
    set_resolved_amis(cluster, generation=2, observed=1)
    assert (await observe_rollout(cluster)).target is None
    cluster.node_classes.found.clear()
    assert (await observe_rollout(cluster)).target is None
    cluster.pools.found.clear()
    assert await observe_rollout(cluster) == ObservedRollout()


async def test_rollout_events_and_state_are_on_nodepool(cluster: FakeCluster) -> None:
    updates = (RolloutEvent(reason="RolloutHalted", message="halted"),)
    publish = RolloutActivities(cluster.made).publish_rollout_status
    await run_activity(publish, RolloutNotification(name="default", events=updates, stored_state='{"wave": 1}'))
    assert cluster.events.published == [("default", "RolloutHalted", "halted")]
    assert (await observe_rollout(cluster)).stored_state == '{"wave": 1}'
    cluster.pools.found.clear()
    await run_activity(publish, RolloutNotification(name="default", events=updates))
    assert len(cluster.events.published) == 1


async def test_pinned_images_resolve_nodeclass_at_once(cluster: FakeCluster) -> None:
    assert await run_activity(cluster.classes.pin_amis, PIN) is True
    pin = active_image_pin(cluster.node_classes.found["default"], datetime.now(UTC))
    assert pin is not None
    assert (pin.images, pin.by, pin.reason) == ({"ami-bad": "ami-good"}, "ann", "it fails")
    assert cluster.resolver.resolve_count == 1
    assert cluster.events.published == [("default", "RolledBack", "ami-good instead of ami-bad, by ann: it fails")]
    repeated_pin = PIN.model_copy(update={"by": "ben"})
    assert await run_activity(cluster.classes.pin_amis, repeated_pin) is True
    assert active_image_pin(cluster.node_classes.found["default"], datetime.now(UTC)) == pin
    assert len(cluster.events.published) == 1


async def test_deleting_nodeclass_is_not_pinned(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default", deleting=True)
    assert await run_activity(cluster.classes.pin_amis, PIN) is False
    assert cluster.resolver.resolve_count == 0
