"""A node without drift, and builders that change one property of the node or of the objects it is compared with."""

from datetime import timedelta
from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.model.facts import Expression, NodeClaimFact, NodePoolFact
from tenure.model.instance_types import InstanceType, Offering
from tenure.model.provider_results import InstanceFacts
from tenure.policy.disruption.drift import Drift, DriftFacts, decide_drift
from tests.unit.policy.builders import NOW

STAMPS = {
    labels.NODEPOOL_HASH: "11",
    labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
    labels.NODECLASS_HASH: "22",
    labels.NODECLASS_HASH_VERSION: HASH_VERSION,
}
NODE_LABELS = {
    labels.NODEPOOL: "general",
    labels.INSTANCE_TYPE: "m6i.large",
    labels.ZONE: "us-west-2a",
    labels.CAPACITY_TYPE: "spot",
    labels.ARCH: "amd64",
}
STATUS: dict[str, Any] = {
    "amis": [{"id": "ami-new", "requirements": []}],
    "subnets": [{"id": "subnet-a"}, {"id": "subnet-b"}],
    "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
}


def claim(**more: Any) -> NodeClaimFact:
    fields: dict[str, Any] = {
        "name": "c1",
        "uid": "uid-c1",
        "created": NOW - timedelta(hours=2),
        "pool": "general",
        "node_class": "default",
        "labels": NODE_LABELS,
        "annotations": STAMPS,
        "provider_id": "aws:///us-west-2a/i-1",
        "image_id": "ami-new",
        "launched": True,
    }
    return NodeClaimFact.model_validate({**fields, **more})


def with_labels(**changes: str) -> NodeClaimFact:
    """The NodeClaim with changed labels. Names are those of `model.labels`; an empty value removes the label."""
    found = {**NODE_LABELS, **{getattr(labels, name): value for name, value in changes.items()}}
    return claim(labels={key: value for key, value in found.items() if value})


def with_hashes(**changes: str) -> NodeClaimFact:
    found = {**STAMPS, **{getattr(labels, name): value for name, value in changes.items()}}
    return claim(annotations={key: value for key, value in found.items() if value})


def pool(*requirements: tuple[str, str, tuple[str, ...]], template: str = "11") -> NodePoolFact:
    expressions = tuple(Expression(key=key, operator=operator, values=values) for key, operator, values in requirements)
    return NodePoolFact(
        name="general", uid="uid-general", node_class="default", requirements=expressions, hash=template
    )


def node_class(
    *,
    stamps: dict[str, str] | None = None,
    deleting: bool = False,
    group: str = "",
    reservations_ready: str = "True",
    generation: int = 1,
    resolved: int = 1,
    **status: Any,
) -> EC2NodeClass:
    """An EC2NodeClass that selects the properties of the node, except for fields of `status`.

    `reservations_ready` is the status of CapacityReservationsReady; `resolved` is the observed generation.
    """
    current_hash = {labels.NODECLASS_HASH: "22", labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    metadata: dict[str, Any] = {"name": "default", "generation": generation}
    metadata["annotations"] = current_hash if stamps is None else stamps
    if deleting:
        metadata["deletionTimestamp"] = NOW.isoformat()
    conditions: list[dict[str, Any]] = [{"type": labels.READY, "status": "True", "observedGeneration": resolved}]
    if reservations_ready:
        conditions.append({"type": labels.CAPACITY_RESERVATIONS_READY, "status": reservations_ready})
    return EC2NodeClass.from_object(
        {
            "metadata": metadata,
            "spec": {"role": "r", **({"placementGroupSelector": {"id": group}} if group else {})},
            "status": {**STATUS, "conditions": conditions, **status},
        }
    )


def a_type(name: str = "m6i.large", **more: Any) -> InstanceType:
    fields: dict[str, Any] = {
        "name": name,
        "labels": {labels.CAPACITY_TYPE: ("on-demand", "spot")},
        "capacity": {},
        "overhead": {},
        "offerings": tuple(
            offering(zone, capacity_type)
            for zone in ("us-west-2a", "us-west-2b")
            for capacity_type in ("on-demand", "spot")
        ),
        "image_id": "ami-new",
    }
    return InstanceType.model_validate({**fields, **more})


def offering(zone: str, capacity_type: str, *, available: bool = True) -> Offering:
    return Offering(zone=zone, capacity_type=capacity_type, price=0.1, available=available)


def listed(*types: InstanceType) -> dict[str, InstanceType]:
    return {one.name: one for one in types}


def instance(**more: Any) -> InstanceFacts:
    fields: dict[str, Any] = {
        "instance_id": "i-1",
        "state": "running",
        "subnet_id": "subnet-a",
        "security_group_ids": ("sg-1", "sg-2"),
    }
    return InstanceFacts.model_validate({**fields, **more})


def facts(**more: Any) -> DriftFacts:
    defaults: dict[str, Any] = {
        "claim": claim(),
        "pool": pool(),
        "node_class": node_class(),
        "types": listed(a_type()),
        "instance": instance(),
    }
    return DriftFacts(**{**defaults, **more})


def drift_of(**more: Any) -> Drift | None:
    return decide_drift(facts(**more), NOW)


def reason(**more: Any) -> str:
    """The drift reason, empty without drift."""
    found = drift_of(**more)
    return found.reason if found else ""
