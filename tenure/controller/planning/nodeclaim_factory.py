"""From a plan to NodeClaims: names, objects, launch groups, offering shards, and the final check of limits.

During an interruption burst, NodeClaims are spread over shards of the offerings
(docs/decisions/interruption-spreading.md). Limits are checked against a live list (reference 2.11), so that a NodeClaim
that a person created meanwhile counts."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from activities.ports.core import Claims
from tenure import metrics
from tenure.apis import labels, resources
from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE, ZONE_ID
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import parse_resources
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.model.blockers import LIMITS_EXCEEDED, NODECLAIM_NOT_CREATED, NODECLAIM_REJECTED
from tenure.model.errors import Fault, Forbidden
from tenure.model.facts import NodeClaimFact
from tenure.model.instance_types import OfferingShard, list_offering_shards
from tenure.model.launch import LaunchGroupMember
from tenure.model.nodeclaim.names import make_nodeclaim_name, parse_dra_drivers
from tenure.model.plan import LaunchDraft, PlannedNodeClaim, UnschedulablePod
from tenure.model.requirements import Requirements

MAX_GROUP_MEMBERS: Final = 500
"""Of one launch group, whose workflow has them in its state."""
_MAX_FAULT: Final = 500
"""Characters of a fault in the verdict on a pod."""


def claim_names(plan_id: str, claims: Sequence[PlannedNodeClaim]) -> list[str]:
    """One name per claim: the pool's name, and ten characters derived from the plan ID and the claim's position."""
    return [make_nodeclaim_name(claim.pool, plan_id, index) for index, claim in enumerate(claims)]


def group_ids(
    plan_id: str, claims: Sequence[PlannedNodeClaim], offering_shards: Sequence[OfferingShard | None] | None = None
) -> list[str]:
    """The launch group of each claim. Claims with the same launch request and the same shard share a group."""
    current: dict[tuple[str, OfferingShard | None], tuple[str, int]] = {}
    group_count = 0
    groups = []
    for claim, offering_shard in zip(claims, offering_shards or [None] * len(claims), strict=True):
        key = _same_launch(claim), offering_shard
        group, size = current.get(key, ("", MAX_GROUP_MEMBERS))
        if size >= MAX_GROUP_MEMBERS:
            group, size, group_count = f"{plan_id}-{group_count}", 0, group_count + 1
        current[key] = (group, size + 1)
        groups.append(group)
    return groups


def count_created(meter: metrics.Meter, claim: NodeClaim, reason: str = "provisioned") -> None:
    """`reason`: of the disruption that it replaces nodes for; the default is for pending pods and static capacity."""
    metrics.NODECLAIMS_CREATED.record(
        meter,
        reason=reason.lower(),
        nodepool=claim.metadata.labels.get(labels.NODEPOOL, ""),
        min_values_relaxed=claim.metadata.annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED, "false"),
    )


def launch_drafts(claims: Iterable[NodeClaim]) -> tuple[LaunchDraft, ...]:
    """The launch groups of these NodeClaims, with members sorted by UID."""
    by_group: dict[str, list[NodeClaim]] = {}
    for claim in claims:
        by_group.setdefault(claim.metadata.annotations[labels.LAUNCH_GROUP], []).append(claim)
    return tuple(
        LaunchDraft(
            group_id=group_id,
            pool=members[0].nodepool,
            node_class=members[0].spec.node_class_ref.name,
            members=tuple(
                LaunchGroupMember(name=one.name, uid=one.uid)
                for one in sorted(members, key=lambda one: one.metadata.uid)
            ),
            offering_shard=OfferingShard.read(members[0].metadata.annotations.get(labels.OFFERING_SHARD, "")),
        )
        for group_id, members in sorted(by_group.items())
    )


def _same_launch(claim: PlannedNodeClaim) -> str:
    """A key of all fields that determine a launch request. Requests count only if no instance types are named, or for
    EFA, which changes the launch template. Of DRA devices, only the drivers in the annotation count."""
    excluded = {"pods", "virtual_pods", "capacity_bound", "why", "devices"}
    if any(one.key == labels.INSTANCE_TYPE and one.operator == "In" for one in claim.requirements):
        excluded.add("requests")
    return f"{claim.model_dump_json(exclude=excluded)} {bool(claim.requests.get(labels.EFA))}"


def launch_hash(claim: NodeClaimFact) -> str:
    """A hash of all fields that determine the launch of a NodeClaim without an instance; else empty."""
    if claim.provider_id:
        return ""
    fields = {
        "labels": sorted(claim.labels.items()),
        "relaxed": claim.annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED, ""),
        "class": claim.node_class,
        "requests": sorted(claim.requests.items()),
        "wanted": [one.model_dump(mode="json") for one in (*claim.requirements, *claim.taints)],
        "startup": [one.model_dump(mode="json") for one in claim.startup_taints],
    }
    if drivers := parse_dra_drivers(claim.annotations):
        fields["drivers"] = sorted(drivers)
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def assign_shards(
    planned: Sequence[PlannedNodeClaim], zones_of: Callable[[str], Sequence[str]]
) -> list[OfferingShard | None]:
    """Assign the suitable shards in turn; None for a claim without any. `zones_of`: the zones of an EC2NodeClass."""
    found: list[OfferingShard | None] = []
    for number, claim in enumerate(planned):
        choice = _suitable_shards(claim, zones_of(claim.node_class))
        found.append(choice[number % len(choice)] if len(choice) > 1 else None)
    return found


def _suitable_shards(claim: PlannedNodeClaim, zones: Sequence[str]) -> Sequence[OfferingShard]:
    """Empty for a claim that cannot be spot, names zones by ID, or has minValues, which a shard may not satisfy."""
    requirements = Requirements.from_expressions(claim.requirements)
    types = next((one.values for one in claim.requirements if one.key == INSTANCE_TYPE and one.operator == "In"), ())
    varied = any(one.min_values for one in claim.requirements)
    if (
        varied
        or ZONE_ID in requirements
        or CAPACITY_TYPE not in requirements
        or not requirements[CAPACITY_TYPE].has(SPOT)
    ):
        return ()
    return list_offering_shards(
        types, [zone for zone in zones if ZONE not in requirements or requirements[ZONE].has(zone)]
    )


async def within_limits(
    planned: Sequence[PlannedNodeClaim], cache: ClusterCache, claims: Claims
) -> tuple[list[PlannedNodeClaim], list[UnschedulablePod]]:
    """The claims within their pools' limits, and the pods of the others. Pools without limits cost no API call."""
    allowed: list[PlannedNodeClaim] = []
    rejected: list[UnschedulablePod] = []
    used: dict[str, dict[str, int]] = {}
    for claim in planned:
        view = cache.nodepools.get(claim.pool)
        limits = view.fact.limits if view else {}
        if not limits:
            allowed.append(claim)
            continue
        if claim.pool not in used:
            found = await claims.list(labels={labels.NODEPOOL: claim.pool})
            used[claim.pool] = nodepool_usage([one for one in found if one.metadata.name not in cache.interrupted])
        after = resources.add(used[claim.pool], claim.capacity_bound or claim.requests, {resources.NODES: 1})
        over = resources.exceeded_resources(after, limits)
        if over:
            why = f"limits of NodePool {claim.pool} would be exceeded: {', '.join(over)}"
            rejected += _unschedulable_pods(claim, why, LIMITS_EXCEEDED, cache)
        else:
            used[claim.pool] = after
            allowed.append(claim)
    return allowed, rejected


def nodepool_usage(claims: Sequence[NodeClaim]) -> dict[str, int]:
    """Resources of a pool's NodeClaims that are not being deleted: the capacity if known, else the requests."""
    live = [claim for claim in claims if not claim.metadata.is_deleting]
    amounts = (parse_resources(claim.status.capacity or claim.spec.resources.requests) for claim in live)
    return resources.add(resources.sum_resources(amounts), {resources.NODES: len(live)})


def pods_without_nodeclaim(
    name: str, claim: PlannedNodeClaim, fault: Fault, cache: ClusterCache
) -> list[UnschedulablePod]:
    """The pods of a NodeClaim that could not be created, with the message of the API server.

    The sentence leaves out the name of the NodeClaim, which differs in each plan, so that events are not repeated."""
    needs_attention = not fault.retryable or isinstance(fault, Forbidden)
    why = f"NodeClaim of NodePool {claim.pool} not created: {fault.message.replace(name, 'NAME')[:_MAX_FAULT]}"
    return _unschedulable_pods(claim, why, NODECLAIM_REJECTED if needs_attention else NODECLAIM_NOT_CREATED, cache)


def _unschedulable_pods(claim: PlannedNodeClaim, why: str, code: str, cache: ClusterCache) -> list[UnschedulablePod]:
    pods = (cache.pods.get(uid) for uid in claim.pods)
    return [
        UnschedulablePod(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, reason=why, code=code)
        for pod in pods
        if pod is not None
    ]
