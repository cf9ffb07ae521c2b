"""Decisions on orphaned resources, from the lists that a task has read and the current time.

Uncertain resources are kept; the next run checks them again. Each docstring states the order in which the lists must be
read.
"""

from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta
from typing import Final

from tenure.apis import labels
from tenure.model.garbage_collection import (
    InventoryInstanceProfile,
    InventoryLaunchTemplate,
    InventoryLease,
    InventoryNode,
    InventoryNodeClaim,
    InventoryNodeClass,
)
from tenure.model.provider_results import InstanceFacts

INSTANCE_GRACE: Final = timedelta(seconds=30)
"""Karpenter's value. Covers a worker's clock ahead of EC2's. The NodeClaim still protects so young an instance."""
CLAIM_GRACE: Final = timedelta(minutes=1)
UNREADY_FOR: Final = timedelta(minutes=10)
"""The node's own workflow checks its instance much earlier (NOT_READY_GRACE)."""
NODE_GRACE: Final = timedelta(minutes=1)
TEMPLATE_GRACE: Final = timedelta(minutes=30)
"""Since the template was created, and since the creation of the last NodeClaim that may have used it."""
PROFILE_GRACE: Final = timedelta(hours=1)
TERMINATING_STATES: Final = ("shutting-down", "terminated")


def decide_orphaned_instances(
    instances: Iterable[InstanceFacts], claims: Sequence[InventoryNodeClaim], *, cluster: str, now: datetime
) -> list[InstanceFacts]:
    """Instances of this cluster that no NodeClaim owns or may still get. Read the instances first.

    A NodeClaim without an instance protects all instances that are tagged with its launch group or its name.
    """
    owned = {one.instance_id for one in claims if one.provider_id}
    waiting = [one for one in claims if not one.provider_id]
    groups = {one.group_id for one in waiting if one.group_id} | {one.name for one in waiting}
    return [
        one
        for one in instances
        if _is_ours(one, cluster)
        and one.state not in TERMINATING_STATES
        and one.launched_at is not None
        and one.launched_at + INSTANCE_GRACE < now
        and one.instance_id not in owned
        and groups.isdisjoint((one.tags.get(labels.LAUNCH_GROUP, ""), one.tags.get(labels.TAG_NODECLAIM, "")))
    ]


def _is_ours(instance: InstanceFacts, cluster: str) -> bool:
    tags = instance.tags
    known = labels.TAG_NODEPOOL in tags and labels.TAG_NODECLASS in tags
    return known and tags.get(labels.TAG_EKS_CLUSTER_NAME) == cluster


def decide_orphaned_nodeclaims(
    claims: Iterable[InventoryNodeClaim], instances: Iterable[InstanceFacts], *, now: datetime
) -> list[InventoryNodeClaim]:
    """Registered NodeClaims whose instance is not listed (reference 3.8). The lists may be read in any order, since the
    caller checks each instance with EC2.

    Excludes NodeClaims that never registered, which have their own deadline, and those that are being deleted.
    """
    there = {one.instance_id for one in instances if one.state not in TERMINATING_STATES}
    return [
        one
        for one in claims
        if one.registered
        and not one.deleting
        and one.provider_id
        and one.instance_id not in there
        and one.created + CLAIM_GRACE < now
    ]


def decide_ownerless_nodeclaims(claims: Iterable[InventoryNodeClaim]) -> list[InventoryNodeClaim]:
    """NodeClaims of a NodePool that does not own them: it was deleted with `--cascade=orphan`."""
    return [one for one in claims if one.pool and not one.has_owner and not one.deleting]


def decide_speaks_for(node: InventoryNode, claim: InventoryNodeClaim, *, now: datetime) -> bool:
    """Whether the Node shows that its NodeClaim's instance exists: it is Ready, or became NotReady only recently."""
    lately = node.ready_changed is not None and node.ready_changed > now - UNREADY_FOR
    return node.provider_id == claim.provider_id and (node.ready or lately)


def decide_orphaned_nodes(
    nodes: Iterable[InventoryNode], claims: Iterable[InventoryNodeClaim], *, now: datetime
) -> list[InventoryNode]:
    """Nodes of Tenure without a NodeClaim. Read the Nodes first. The caller checks whether their instances run."""
    owned = {one.instance_id for one in claims if one.provider_id}
    return [
        one
        for one in nodes
        if (one.pool or labels.TERMINATION_FINALIZER in one.finalizers)
        and one.instance_id.startswith("i-")
        and one.instance_id not in owned
        and one.created + NODE_GRACE < now
    ]


def decide_unused_templates(
    templates: Iterable[InventoryLaunchTemplate],
    claims: Sequence[InventoryNodeClaim],
    *,
    running: Set[str],
    now: datetime,
) -> list[InventoryLaunchTemplate]:
    """Unused launch templates. Read the templates first. `running`: the template IDs of live instances.

    A NodePool with a recent or pending launch keeps all templates of the same EC2NodeClass for the next launch.
    """
    young = now - TEMPLATE_GRACE
    buying = {(one.pool, one.node_class) for one in claims if not one.provider_id or one.created > young}
    return [
        one
        for one in templates
        if one.created < young
        and not one.used_lately
        and one.id not in running
        and (one.pool, one.node_class) not in buying
    ]


def decide_unused_profiles(
    profiles: Iterable[InventoryInstanceProfile],
    claims: Sequence[InventoryNodeClaim],
    node_classes: Sequence[InventoryNodeClass],
    *,
    running: Set[str],
    now: datetime,
) -> list[InventoryInstanceProfile]:
    """Profiles that no EC2NodeClass, NodeClaim or instance uses. Read the profiles first.

    `running`: profile names of live instances. A NodeClaim without the annotation may use any profile of its
    EC2NodeClass.
    """
    named = {name for one in node_classes for name in one.profiles}
    named |= {one.annotations.get(labels.INSTANCE_PROFILE_NAME, "") for one in claims} | running
    uids = {one.name: one.uid for one in node_classes}
    silent = {uids.get(one.node_class) for one in claims if labels.INSTANCE_PROFILE_NAME not in one.annotations}
    return [
        one
        for one in profiles
        if one.created + PROFILE_GRACE < now
        and one.name not in named
        and one.node_class_uid not in silent
        and not (None in silent and one.node_class_uid not in uids.values())
    ]


def decide_untagged(claims: Iterable[InventoryNodeClaim]) -> list[InventoryNodeClaim]:
    """NodeClaims with a Node whose instance does not have its name tags yet (reference 1.4)."""
    required = (labels.TAGGED, labels.CLUSTER_NAME_TAGGED)
    return [
        one
        for one in claims
        if one.node_name
        and one.provider_id
        and not one.deleting
        and any(one.annotations.get(annotation) != "true" for annotation in required)
    ]


def is_orphaned_lease(lease: InventoryLease, *, names: Set[str], uids: Set[str], now: datetime) -> bool:
    """True without a Node of the same name, an existing owner or a recent renewal. A kubelet that is about to register
    renews its Lease.

    Read the Leases first.
    """
    if lease.deleting or lease.name in names or not uids.isdisjoint(lease.owners):
        return False
    return lease.alive_until < now
