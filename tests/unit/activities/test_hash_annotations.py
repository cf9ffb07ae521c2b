"""Hash annotations of another version are updated without drift of any node."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash, nodepool_hash
from tenure.model.errors import Conflict
from tenure.model.nodeclaim.requests import NodeClassRequest, NodePoolRequest
from tests.unit.activities.builders import FakeCluster, run_activity

POOL, CLASS = NodePoolRequest(name="default"), NodeClassRequest(name="default")
KEYS = {
    "pool": (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION),
    "class": (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION),
}


def add_stamped_nodeclaim(
    cluster: FakeCluster, name: str, version: str = "v3", *, launched: bool = True, **conditions: str
) -> None:
    """A NodeClaim with the NodePool and EC2NodeClass hash "1" of that version."""
    annotations = {
        annotation: value for pair in KEYS.values() for annotation, value in zip(pair, ("1", version), strict=True)
    }
    cluster.claims.add(name, annotations=annotations)
    cluster.claims.set_status(
        name, provider_id=f"aws:///us-west-2a/i-{name}" if launched else "", deleting=False, **conditions
    )


def read_stamp(cluster: FakeCluster, name: str, kind: str) -> tuple[str, str]:
    annotations: dict[str, Any] = cluster.claims.found[name]["metadata"]["annotations"]
    key, version = KEYS[kind]
    return annotations.get(key, ""), annotations.get(version, "")


def add_nodeclass_with_version(cluster: FakeCluster, version: str) -> None:
    meta = {"name": "default", "uid": "uid-default", "annotations": {labels.NODECLASS_HASH_VERSION: version}}
    cluster.node_classes.found["default"] = EC2NodeClass.model_validate({"metadata": meta, "spec": {"role": "r"}})


async def test_nodeclaims_of_nodepool_get_new_hashes(cluster: FakeCluster) -> None:
    cluster.pools.add("default")
    add_stamped_nodeclaim(cluster, "a")
    add_stamped_nodeclaim(cluster, "b", HASH_VERSION)
    await run_activity(cluster.pool_status.update_nodepool_status, POOL)
    assert read_stamp(cluster, "a", "pool") == (nodepool_hash(cluster.pools.found["default"]), HASH_VERSION)
    assert read_stamp(cluster, "b", "pool") == ("1", HASH_VERSION), (
        "a hash of the current version is kept, because the node may have drifted"
    )


async def test_drifted_nodeclaim_keeps_hash_with_new_version(cluster: FakeCluster) -> None:
    cluster.pools.add("default")
    add_nodeclass_with_version(cluster, "v6")
    add_stamped_nodeclaim(cluster, "a", Drifted="True")
    add_stamped_nodeclaim(cluster, "b", Drifted="False")
    await run_activity(cluster.pool_status.update_nodepool_status, POOL)
    await run_activity(cluster.classes.resolve_node_class, CLASS)
    for kind in KEYS:
        assert read_stamp(cluster, "a", kind) == ("1", HASH_VERSION)
        assert read_stamp(cluster, "b", kind)[0] != "1"


async def test_nodeclaims_of_nodeclass_get_new_hashes(cluster: FakeCluster) -> None:
    add_nodeclass_with_version(cluster, "v6")
    add_stamped_nodeclaim(cluster, "a")
    add_stamped_nodeclaim(cluster, "b", launched=False)
    await run_activity(cluster.classes.resolve_node_class, CLASS)
    assert read_stamp(cluster, "a", "class") == (nodeclass_hash(cluster.node_classes.found["default"]), HASH_VERSION)
    assert read_stamp(cluster, "b", "class") == ("1", "v3"), "the hash is written at launch"


async def test_restamp_request_updates_nodeclaims_of_current_nodeclass(cluster: FakeCluster) -> None:
    add_nodeclass_with_version(cluster, HASH_VERSION)
    add_stamped_nodeclaim(cluster, "a")
    await run_activity(cluster.classes.resolve_node_class, CLASS)
    assert read_stamp(cluster, "a", "class") == ("1", "v3")
    await run_activity(cluster.classes.resolve_node_class, CLASS.model_copy(update={"restamp": True}))
    assert read_stamp(cluster, "a", "class")[1] == HASH_VERSION


async def test_nodeclaim_without_hash_stays_without_hash(cluster: FakeCluster) -> None:
    cluster.pools.add("default")
    cluster.claims.add("a", annotations={})
    cluster.claims.set_status("a", provider_id="aws:///us-west-2a/i-a")
    await run_activity(cluster.pool_status.update_nodepool_status, POOL)
    await run_activity(cluster.classes.resolve_node_class, CLASS.model_copy(update={"restamp": True}))
    assert cluster.claims.found["a"]["metadata"]["annotations"] == {}


async def test_nodepool_version_is_written_after_its_nodeclaims(cluster: FakeCluster) -> None:
    cluster.pools.add("default")
    add_stamped_nodeclaim(cluster, "a")
    cluster.claims.faults["patch"] = [Conflict("somebody wrote")]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.pool_status.update_nodepool_status, POOL)
    assert cluster.pools.statuses == {}
    await run_activity(cluster.pool_status.update_nodepool_status, POOL)
    assert read_stamp(cluster, "a", "pool")[1] == HASH_VERSION and cluster.pools.statuses != {}
