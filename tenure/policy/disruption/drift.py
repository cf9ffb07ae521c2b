"""Whether a node still matches its NodePool and EC2NodeClass: Karpenter's drift reasons, in Karpenter's order.

`tenure/controller/drift.py` collects the facts of every launched NodeClaim. Nothing here disrupts a node. Unknown facts
are never drift: the previous result for that reason applies until they are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.model.base import Value, format_short_list
from tenure.model.facts import Expression, NodeClaimFact, NodePoolFact
from tenure.model.instance_types import InstanceType
from tenure.model.provider_results import InstanceFacts
from tenure.model.requirements import RequirementError, Requirements

INSTANCE_TYPE_CHECK_AFTER: Final = timedelta(hours=1)
"""For a younger NodeClaim, the instance type existed at launch (reference 6.1)."""
_EXISTING_STATES: Final = ("pending", "running", "stopping", "stopped")


class Drift(Value):
    reason: str
    message: str
    recheck: bool = False
    """Read the instance again individually before the drift is reported."""


@dataclass(frozen=True, slots=True)
class DriftFacts:
    """Facts of one NodeClaim. None: the fact is unknown, unless its field has another meaning."""

    claim: NodeClaimFact
    pool: NodePoolFact | None
    """None: the NodePool does not exist. Its hash is of the current template, in Tenure's hash version."""
    node_class: EC2NodeClass | None
    """None: the EC2NodeClass does not exist."""
    types: Mapping[str, InstanceType] | None = None
    """By name, as resolved for the current EC2NodeClass."""
    instance: InstanceFacts | None = None
    fresh: bool = False
    """The instance was read for this NodeClaim just now."""
    previous: Drift | None = None


_Check = Callable[[DriftFacts, EC2NodeClass, datetime], str | None]
"""Returns the drift message, an empty text without drift, and None if unknown."""


def decide_drift(facts: DriftFacts, now: datetime) -> Drift | None:
    """The first drift reason, core's before the provider's (core reference 3.9, AWS reference 6.1).

    Only a launched NodeClaim of a NodePool can drift, and only while its NodeClass exists and is not being deleted.
    """
    claim, node_class = facts.claim, facts.node_class
    if not claim.launched or not claim.pool or claim.deleting:
        return None
    if facts.pool is None or node_class is None or node_class.metadata.is_deleting:
        return None
    for reason, check in _CHECKS:
        message = check(facts, node_class, now)
        if message:
            return Drift(reason=reason, message=message, recheck=_needs_recheck(reason, facts))
        if message is None and facts.previous is not None and facts.previous.reason == reason:
            return facts.previous
    return None


def _needs_recheck(reason: str, facts: DriftFacts) -> bool:
    """DescribeInstances may still show a reservation that the instance has left (upstream #9124)."""
    was_reported = facts.previous is not None and facts.previous.reason == reason
    return reason == labels.CAPACITY_RESERVATION_DRIFT and not facts.fresh and not was_reported


def _pool_changed(facts: DriftFacts, _: EC2NodeClass, __: datetime) -> str | None:
    stamps = facts.claim.annotations
    assert facts.pool is not None
    differs = _compare_hashes(
        (stamps.get(labels.NODEPOOL_HASH, ""), stamps.get(labels.NODEPOOL_HASH_VERSION, "")),
        (facts.pool.hash, HASH_VERSION),
    )
    return differs and f"the template of NodePool {facts.claim.pool} has changed since this node was created"


def _requirements_changed(facts: DriftFacts, _: EC2NodeClass, __: datetime) -> str | None:
    """Compare the node's labels with the NodePool's requirements. A missing label does not match."""
    assert facts.pool is not None
    try:
        required = _parse_requirements(facts.pool.requirements)
    except RequirementError:
        return None
    node_labels = facts.claim.labels
    older = {new: node_labels[old] for old, new in labels.NORMALIZED.items() if old in node_labels}
    known = {key: value for key in required if (value := node_labels.get(key, older.get(key))) is not None}
    if all(one.has(known[key]) if key in known else not one.present for key, one in required.items()):
        return ""
    return (
        f"NodePool {facts.claim.pool}: {Requirements.from_labels(known).explain_incompatibility(required, frozenset())}"
    )


@lru_cache(maxsize=1000)
def _parse_requirements(expressions: tuple[Expression, ...]) -> Requirements:
    """Cached, since all nodes of a NodePool have the same requirements. Raises RequirementError."""
    return Requirements.from_expressions(expressions)


def _instance_type_not_found(facts: DriftFacts, node_class: EC2NodeClass, now: datetime) -> str | None:
    """EC2 no longer lists the instance type, or no longer offers it in this zone or with this capacity type. Current
    availability does not matter."""
    claim = facts.claim
    if now - claim.created < INSTANCE_TYPE_CHECK_AFTER:
        return ""
    name, zone = claim.labels.get(labels.INSTANCE_TYPE, ""), claim.labels.get(labels.ZONE, "")
    if not facts.types or not name:
        return None
    found = facts.types.get(name)
    if found is None:
        return f"EC2 no longer lists the instance type {name}"
    if zone and found.offerings and zone not in {one.zone for one in found.offerings}:
        return f"EC2 no longer offers {name} in {zone}"
    bought = claim.labels.get(labels.CAPACITY_TYPE, "")
    # An instance continues as on-demand when its reservation ends, so reserved instances accept both capacity types.
    accepted = {bought, labels.ON_DEMAND} if bought == labels.RESERVED else {bought}
    sold = {*found.labels.get(labels.CAPACITY_TYPE, ()), *(one.capacity_type for one in found.offerings)}
    return f"EC2 no longer offers {name} as {bought}" if bought and sold and not sold & accepted else ""


def _class_changed(facts: DriftFacts, node_class: EC2NodeClass, _: datetime) -> str | None:
    """Unknown until the current generation is resolved: only then is the hash annotation of the EC2NodeClass updated,
    while nodes launched in the meantime already have the new hash."""
    ready = node_class.condition(labels.READY)
    if ready is not None and ready.observed_generation != node_class.metadata.generation:
        return None
    stamps, expected = facts.claim.annotations, node_class.metadata.annotations
    differs = _compare_hashes(
        (stamps.get(labels.NODECLASS_HASH, ""), stamps.get(labels.NODECLASS_HASH_VERSION, "")),
        (expected.get(labels.NODECLASS_HASH, ""), expected.get(labels.NODECLASS_HASH_VERSION, "")),
    )
    return differs and f"EC2NodeClass {node_class.name} has changed since this node was created"


def _compare_hashes(stamped: tuple[str, str], expected: tuple[str, str]) -> str | None:
    """Compare hash and version. Different versions are not comparable; a missing annotation is no drift."""
    if not all((*stamped, *expected)):
        return ""
    if stamped[1] != expected[1]:
        return None
    return "yes" if stamped[0] != expected[0] else ""


def _image_changed(facts: DriftFacts, node_class: EC2NodeClass, _: datetime) -> str | None:
    image, name = facts.claim.image_id, facts.claim.labels.get(labels.INSTANCE_TYPE, "")
    found = facts.types.get(name) if facts.types else None
    if found is None or not image or not node_class.status.amis:
        return None
    if found.image_id == image:
        return ""
    return f"{name} runs {image}, but EC2NodeClass {node_class.name} selects {found.image_id or 'no image'} for it"


def _groups_changed(facts: DriftFacts, node_class: EC2NodeClass, _: datetime) -> str | None:
    expected = {one.id for one in node_class.status.security_groups}
    instance = _existing_instance(facts)
    has = set(instance.security_group_ids) if instance else set()
    if not expected or not has:
        return None
    if has == expected:
        return ""
    return f"the instance has {_format_ids(has)}, but EC2NodeClass {node_class.name} selects {_format_ids(expected)}"


def _subnet_changed(facts: DriftFacts, node_class: EC2NodeClass, _: datetime) -> str | None:
    expected = {one.id for one in node_class.status.subnets}
    instance = _existing_instance(facts)
    if not expected or instance is None or not instance.subnet_id:
        return None
    if instance.subnet_id in expected:
        return ""
    return (
        f"the instance is in {instance.subnet_id}, but EC2NodeClass {node_class.name} selects {_format_ids(expected)}"
    )


def _reservation_changed(facts: DriftFacts, node_class: EC2NodeClass, _: datetime) -> str | None:
    """Without the gate ReservedCapacity, instances have no reservation here.

    An empty list in the status counts only if CapacityReservationsReady is True.
    """
    instance = _existing_instance(facts)
    if instance is None:
        return None
    reservation = instance.reservation_id
    if not reservation:
        return ""
    condition = node_class.condition(labels.CAPACITY_RESERVATIONS_READY)
    if condition is None or not condition.is_true:
        return None
    if reservation in {one.id for one in node_class.status.capacity_reservations}:
        return ""
    return f"the instance is in {reservation}, which EC2NodeClass {node_class.name} no longer selects"


def _placement_changed(facts: DriftFacts, node_class: EC2NodeClass, _: datetime) -> str | None:
    has, expected = facts.claim.labels.get(labels.PLACEMENT_GROUP_ID, ""), ""
    if node_class.spec.placement_group_selector is not None:
        a_type = next(iter(facts.types.values()), None) if facts.types else None
        expected = next(iter(a_type.labels.get(labels.PLACEMENT_GROUP_ID, ())), "") if a_type else ""
        if not expected:
            return None
    if has == expected:
        return ""
    name = node_class.name
    return f"the node is in placement group {has or 'none'}, but EC2NodeClass {name} selects {expected or 'none'}"


def _existing_instance(facts: DriftFacts) -> InstanceFacts | None:
    """None if terminating: such an instance has no network interface, and therefore no subnet and security groups."""
    return facts.instance if facts.instance and facts.instance.state in _EXISTING_STATES else None


def _format_ids(ids: set[str]) -> str:
    return format_short_list(sorted(ids))


_CHECKS: Final[tuple[tuple[str, _Check], ...]] = (
    (labels.NODEPOOL_DRIFTED, _pool_changed),
    (labels.REQUIREMENTS_DRIFTED, _requirements_changed),
    (labels.INSTANCE_TYPE_NOT_FOUND, _instance_type_not_found),
    (labels.NODECLASS_DRIFT, _class_changed),
    (labels.AMI_DRIFT, _image_changed),
    (labels.SECURITY_GROUP_DRIFT, _groups_changed),
    (labels.SUBNET_DRIFT, _subnet_changed),
    (labels.CAPACITY_RESERVATION_DRIFT, _reservation_changed),
    (labels.PLACEMENT_GROUP_DRIFT, _placement_changed),
)
