"""Labels, annotations, capacity and allocatable of a NodeClaim after its launch."""

from collections.abc import Mapping
from typing import Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import parse_resources
from tenure.aws.instance.filter import requirements_of, tenancy_of
from tenure.model.instance_types import InstanceType, drop_zero_amounts, reservation_labels
from tenure.model.launch import FleetInstance
from tenure.model.provider_results import LaunchFacts
from tenure.model.requirements import RequirementError

_OF_THE_INSTANCE: Final = (*labels.RESERVATION_LABELS, labels.PLACEMENT_GROUP_PARTITION)
"""Labels that describe the options of the type, and not the instance."""


def launch_facts(
    instance: FleetInstance, found: InstanceType | None, node_class: EC2NodeClass, claim: NodeClaim
) -> LaunchFacts:
    """`found` is None for a type that is no longer listed: then only EC2's data of the instance is used."""
    requests_efa = bool(parse_resources(claim.spec.resources.requests).get(labels.EFA))
    return LaunchFacts(
        provider_id=f"aws:///{instance.zone}/{instance.instance_id}",
        image_id=instance.image_id or (found.image_id if found else ""),
        labels=_node_labels(instance, found, node_class, claim),
        annotations=_launch_annotations(instance, node_class),
        capacity=_status_resources(found.capacity if found else {}, requests_efa),
        allocatable=_status_resources(found.allocatable() if found else {}, requests_efa),
    )


def _node_labels(
    instance: FleetInstance, found: InstanceType | None, node_class: EC2NodeClass, claim: NodeClaim
) -> dict[str, str]:
    single = {key: values[0] for key, values in (found.labels if found else {}).items() if len(values) == 1}
    for key in _OF_THE_INSTANCE:
        single.pop(key, None)
    zone_ids = {subnet.zone: subnet.zone_id for subnet in node_class.status.subnets}
    known = {
        labels.INSTANCE_TYPE: instance.instance_type,
        labels.ZONE: instance.zone,
        labels.ZONE_ID: zone_ids.get(instance.zone, ""),
        labels.CAPACITY_TYPE: instance.capacity_type,
        labels.INSTANCE_TENANCY: _claim_tenancy(claim),
        labels.NODEPOOL: claim.nodepool,
        labels.NODECLASS: node_class.name,
    }
    return single | {key: value for key, value in known.items() if value} | _placement_labels(instance, found)


def _placement_labels(instance: FleetInstance, found: InstanceType | None) -> dict[str, str]:
    """Labels of the reservation and the partition; the partition is empty if EC2 chose it."""
    reserved = reservation_labels(instance.reservation_id, instance.market) if instance.reservation_id else {}
    if found is None or labels.PLACEMENT_GROUP_PARTITION not in found.labels:
        return reserved
    return reserved | {labels.PLACEMENT_GROUP_PARTITION: instance.partition}


def _claim_tenancy(claim: NodeClaim) -> str:
    try:
        return tenancy_of(requirements_of(claim))
    except RequirementError:
        return labels.TENANCIES[0]


def _launch_annotations(instance: FleetInstance, node_class: EC2NodeClass) -> dict[str, str]:
    """Hash and instance profile of the class at launch, for drift and for garbage collection of profiles.

    If unknown, those of the current class.
    """
    keys = (labels.NODECLASS_HASH_VERSION, labels.NODECLASS_HASH)
    found = dict(zip(keys, instance.node_class_stamp.partition("/")[::2], strict=True))
    if not instance.node_class_stamp:
        found = {key: node_class.metadata.annotations.get(key, "") for key in keys}
    found[labels.INSTANCE_PROFILE_NAME] = instance.instance_profile or node_class.status.instance_profile
    return {key: value for key, value in found.items() if value}


def _status_resources(resources: Mapping[str, int], requests_efa: bool) -> dict[str, int]:
    return {key: amount for key, amount in drop_zero_amounts(resources).items() if key != labels.EFA or requests_efa}
