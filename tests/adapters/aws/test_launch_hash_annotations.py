"""A launched node has the static hash of the EC2NodeClass spec that it was launched from, not a stale annotation."""

from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instance.nodeclaim_status import launch_facts
from tenure.model.launch import FleetInstance
from tests.support.aws.builders import build_nodeclaim as a_claim
from tests.support.aws.builders import build_nodeclass
from tests.support.aws.steps import NODECLAIM, make_launch_group, prepare_launch, resolve_nodeclass

INSTANCE: dict[str, Any] = {
    "instance_id": "i-1",
    "instance_type": "m5.large",
    "zone": "us-west-2a",
    "subnet_id": "subnet-1",
    "image_id": "ami-1",
    "capacity_type": "on-demand",
}
STALE = {labels.NODECLASS_HASH: "1", labels.NODECLASS_HASH_VERSION: "v0"}


def nodeclass_with_stale_hash() -> EC2NodeClass:
    raw = build_nodeclass().to_object()
    raw["metadata"]["annotations"] = STALE
    return EC2NodeClass.from_object(raw)


def hash_annotations(**instance: str) -> tuple[str, str]:
    facts = launch_facts(FleetInstance(**INSTANCE, **instance), None, nodeclass_with_stale_hash(), a_claim())
    return facts.annotations[labels.NODECLASS_HASH], facts.annotations[labels.NODECLASS_HASH_VERSION]


def test_hash_of_the_launch_is_used() -> None:
    assert hash_annotations(node_class_stamp="v9/77") == ("77", "v9")


def test_hash_of_the_class_is_used_without_a_launch() -> None:
    assert hash_annotations() == ("1", "v0")


async def test_changed_class_with_stale_annotation_launches_with_its_new_hash(cloud: AwsAdapters) -> None:
    """Otherwise the node would drift as soon as the class is resolved."""
    before = await resolve_nodeclass(cloud)
    raw = before.to_object()
    raw["spec"]["detailedMonitoring"] = True
    raw["metadata"] |= {"generation": 2, "annotations": STALE}
    changed = EC2NodeClass.from_object(raw)
    request = await prepare_launch(cloud, changed)
    result = await cloud.fleet.create(make_launch_group(request))
    (facts,) = await cloud.fleet.describe(result, before, NODECLAIM)
    found = await cloud.resolver.resolve(changed)
    assert found.ca_bundle is not None
    assert facts.annotations[labels.NODECLASS_HASH] == nodeclass_hash(changed, ca_bundle=found.ca_bundle)
    assert facts.annotations[labels.NODECLASS_HASH_VERSION] == HASH_VERSION
