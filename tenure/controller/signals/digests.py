"""Observations for workflows, computed from cached facts.

An observation contains only fields that matter in the phase of the NodeClaim. An undisturbed node therefore costs five
signals: it exists, its Node joined, it is Ready and unblocked, it became empty, and it is being deleted."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tenure.apis import labels, resources
from tenure.apis.durations import parse_duration
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.apis.lifecyclepolicy import LifecycleRules, RepairCondition
from tenure.model.base import Message
from tenure.model.facts import NodeClaimFact, NodeCondition, NodeFact, NodePoolFact
from tenure.model.node_health import RepairMode, UnhealthyCondition
from tenure.model.nodeclaim.node_identity import NODEPOOL_GAP
from tenure.model.observations import UNCOMPARED, ObservedNodeClaim, ObservedNodeClass, ObservedNodePool
from tenure.model.operator_requests import NO_INVALID_RULES, InvalidRules
from tenure.policy.disruption.drift import Drift
from tenure.policy.lifecycle.initialization import decide_waiting_for
from tenure.policy.lifecycle.repair_policies import matching_conditions, repair_conditions
from tenure.policy.static_capacity import count_nodes
from tenure.scheduling.not_ready_grace import NotReadyGrace

BLOCKED_DELAY: Final = timedelta(seconds=6)
"""A Ready node must be blocked for this long before its blockers are signaled."""

REGISTRATION_DELAY: Final = timedelta(seconds=10)
"""A registered Node must lack something for this long before it is signaled."""

EXPECTED_PODS_DELAY: Final = timedelta(minutes=1)
"""An initialized node waits this long for its expected pods before they are signaled."""

UNHEALTHY_DELAY: Final = timedelta(minutes=1)
"""A starting node may be unhealthy for this long, or for half of the toleration, before a signal is sent."""


@dataclass(frozen=True)
class NodeClaimView:
    claim: NodeClaimFact
    nodes: tuple[NodeFact, ...] = ()
    consolidation: str = ""
    occupied: bool = True
    """Whether pods run there that would need another node, or this is not known yet."""
    expected: bool = False
    """Whether pods are nominated to it."""
    expected_until: datetime | None = None
    """When the last nomination ends, or ended; None with `expected` means no end in sight."""
    expected_pods: str = ""
    """Text that names those pods."""
    expected_pods_since: datetime | None = None
    """The earliest time at which they could be bound."""
    vacant_since: datetime | None = None
    """The latest time at which the last such pod can have left."""
    drift: Drift | None = None
    is_vacancy_unobserved: bool = False
    """The watch did not see the last pod leave: `vacant_since` is the start of the watch."""
    warm_up_until: datetime | None = None
    """When a new host has planned at the latest; None afterwards."""
    needed_by_buffer: str = ""
    """The CapacityBuffer that needs headroom there."""
    drain: str = ""
    """The digest of its blocked drain."""
    not_ready: NotReadyGrace | None = None
    """The NotReady grace of an initialized node."""
    rules: LifecycleRules | None = None
    """The rules of LifecyclePolicies for its NodePool."""
    event_policies: dict[str, str] = field(default_factory=dict)
    """The names of the policies for AWS events, by kind."""
    hook_policies: dict[str, str] = field(default_factory=dict)
    """The name of the policy whose hooks apply, by hook point."""
    events_unread: str = ""
    """The invalid rules for AWS events."""
    repair_mode: RepairMode | None = None
    """None if the gate NodeRepair is off."""


@dataclass(frozen=True)
class Digest:
    observed: ObservedNodeClaim
    recheck_at: datetime | None = None


def nodeclaim_digest(view: NodeClaimView, now: datetime) -> Digest:
    """The observation without its number."""
    claim, nodes = view.claim, view.nodes
    if claim.deleting or any(node.deleting for node in nodes):
        return Digest(_base_observation(view).model_copy(update={"deleting": True, "disruption": claim.disruption}))
    drift = view.drift
    found = {"drift": drift.reason, "drift_message": drift.message} if drift else {}
    base = _base_observation(view).model_copy(update=found)
    if not nodes:
        return Digest(base.model_copy(update=_not_ready_fields(view)))
    node = {"provider_id": claim.provider_id, "node_name": nodes[0].name, "node_count": len(nodes)}
    joined = base.model_copy(update=node)
    if not claim.registered:
        return Digest(joined)
    digest = (_running_digest if claim.initialized else _starting_digest)(view, joined, nodes[0], now)
    digest = _with_registration(digest, view, nodes[0], now)
    return _with_health(digest, view, nodes[0], view.repair_mode, now) if view.repair_mode else digest


def _base_observation(view: NodeClaimView) -> ObservedNodeClaim:
    return ObservedNodeClaim(
        rules=view.rules,
        event_policies=view.event_policies,
        hook_policies=view.hook_policies,
        events_unread=view.events_unread,
        pause=_pause(view),
        drain=view.drain,
    )


def _pause(view: NodeClaimView) -> str:
    """The annotation of the NodeClaim, or else that of its Node."""
    annotations = (view.claim.annotations.get(labels.PAUSE), *(one.annotations.get(labels.PAUSE) for one in view.nodes))
    return next((one for one in annotations if one), "")


def _starting_digest(view: NodeClaimView, joined: ObservedNodeClaim, node: NodeFact, now: datetime) -> Digest:
    """NotReady is reported without reasons, a blocked Ready node after BLOCKED_DELAY, an unblocked one at once."""
    waiting = waiting_for(view.claim, node)
    if not waiting:
        return Digest(_ready_observation(view, joined, node))
    if view.claim.rebooting:
        joined = joined.model_copy(update={"boot_id": node.boot_id})
    settled = (node.ready_changed or now) + BLOCKED_DELAY
    if not node.ready or now >= settled:
        return Digest(
            joined.model_copy(update={"node_ready": node.ready, "waiting_for": _reported_reasons(node, waiting)})
        )
    return Digest(joined, recheck_at=settled)


def _running_digest(view: NodeClaimView, joined: ObservedNodeClaim, node: NodeFact, now: datetime) -> Digest:
    found: dict[str, Any] = {}
    if waiting := waiting_for(view.claim, node):
        found |= {"node_ready": node.ready, "waiting_for": _reported_reasons(node, waiting)}
    observed = _ready_observation(view, joined, node).model_copy(update=found | _not_ready_fields(view))
    if view.occupied:
        return Digest(observed)
    if view.needed_by_buffer:
        return Digest(observed.model_copy(update={"needed_by_buffer": view.needed_by_buffer}))
    if view.expected and (view.expected_until is None or now < view.expected_until):
        return _expecting_digest(view, observed, now)
    times = (view.vacant_since, view.claim.initialized_at, view.expected_until)
    since = max((at for at in times if at), default=now)
    is_vacancy_unobserved = view.is_vacancy_unobserved and since == view.vacant_since
    found = {"empty": True, "empty_since": since, "empty_since_unseen": is_vacancy_unobserved}
    return Digest(observed.model_copy(update=found | {"hold_until": view.warm_up_until}))


def _not_ready_fields(view: NodeClaimView) -> dict[str, Any]:
    grace = view.not_ready
    if grace is None or grace.not_ready_since is None:
        return {}
    return {"not_ready_since": grace.not_ready_since, "not_ready_reason": grace.describe_causes}


def _expecting_digest(view: NodeClaimView, observed: ObservedNodeClaim, now: datetime) -> Digest:
    """Report expected pods after EXPECTED_PODS_DELAY. A NotReady node reports NotReady instead."""
    notify_at = (
        view.expected_pods_since + EXPECTED_PODS_DELAY
        if view.expected_pods_since and not observed.not_ready_since
        else None
    )
    if notify_at is None or now < notify_at:
        times = (view.expected_until, notify_at)
        return Digest(observed, recheck_at=min((one for one in times if one), default=None))
    return Digest(observed.model_copy(update={"awaited_pods": view.expected_pods}), recheck_at=view.expected_until)


def _with_registration(digest: Digest, view: NodeClaimView, node: NodeFact, now: datetime) -> Digest:
    """Add what the Node lacks. Registration changes the Node and the NodeClaim, which two watches observe."""
    gaps = tuple(one for one in node.registration_gaps if one != NODEPOOL_GAP or view.claim.pool)
    if not gaps:
        return digest
    settled = view.claim.registered_at + REGISTRATION_DELAY if view.claim.registered_at else now
    if now < settled:
        return Digest(digest.observed, recheck_at=min(digest.recheck_at or settled, settled))
    return Digest(digest.observed.model_copy(update={"registration_gaps": gaps}), digest.recheck_at)


def _with_health(digest: Digest, view: NodeClaimView, node: NodeFact, mode: RepairMode, now: datetime) -> Digest:
    """Add the unhealthy conditions. A starting node is NotReady for a while, so it reports them after a delay.

    Voluntary repair ignores NodeClaims without a NodePool (reference 1.15, section 3.3).
    """
    if mode != "legacy" and not view.claim.pool:
        return digest
    conditions = repair_conditions(view.rules, mode)
    matches = {
        one: found
        for one in node.conditions
        if one.since and (found := matching_conditions(conditions, one.type, one.status, one.reason))
    }
    if not matches:
        return digest
    unhealthy = [
        UnhealthyCondition(type=one.type, status=one.status, reason=_counted_reason(conditions, one), since=one.since)
        for one in matches
        if one.since
    ]
    if not view.claim.initialized:
        notify_at = min(
            one.since + _health_delay(entry.toleration)
            for one, found in matches.items()
            for entry in found
            if one.since
        )
        if now < notify_at:
            return Digest(digest.observed, recheck_at=min(digest.recheck_at or notify_at, notify_at))
    fields = {
        "unhealthy": tuple(unhealthy),
        "repair_mode": mode,
        "do_not_repair": mode != "legacy" and node.annotations.get(labels.DO_NOT_REPAIR) == "true",
    }
    return Digest(digest.observed.model_copy(update=fields), digest.recheck_at)


def _counted_reason(conditions: Sequence[RepairCondition], one: NodeCondition) -> str:
    """The reason if an entry for the condition has a pattern. Other changes of reasons cause no signal."""
    has_pattern = any(entry.reason for entry in conditions if (entry.type, entry.status) == (one.type, one.status))
    return one.reason if has_pattern else ""


def _health_delay(toleration: str) -> timedelta:
    return min(UNHEALTHY_DELAY, (parse_duration(toleration) or UNHEALTHY_DELAY) / 2)


def _ready_observation(view: NodeClaimView, joined: ObservedNodeClaim, node: NodeFact) -> ObservedNodeClaim:
    return joined.model_copy(
        update={
            "node_ready": True,
            "ready_since": node.ready_changed,
            "boot_id": node.boot_id,
            "consolidation": view.consolidation,
            "maintenance": node.maintained_by_others,
            "do_not_disrupt": node.annotations.get(labels.DO_NOT_DISRUPT) == "true",
        }
    )


def waiting_for(claim: NodeClaimFact, node: NodeFact) -> tuple[str, ...]:
    """The blockers of initialization, by the rules of the activity that performs it."""
    return decide_waiting_for(
        ready=node.ready,
        taints=node.taints,
        startup_taints=claim.startup_taints,
        allocatable=node.allocatable,
        requests=claim.requests,
        dra_resources=claim.dra_resources,
        missing_drivers=claim.missing_drivers,
    )


def _reported_reasons(node: NodeFact, waiting: tuple[str, ...]) -> tuple[str, ...]:
    """The reasons to report. NotReady hides the others, since they mostly follow from it."""
    return waiting if node.ready else ()


def nodepool_digest(
    pool: NodePoolFact,
    claims: Iterable[NodeClaimFact],
    node_class: EC2NodeClass | None,
    *,
    static_capacity: bool = False,
    healthy_at: tuple[int, int] | None = None,
    pauses: tuple[str, str] = ("", ""),
    rules: LifecycleRules | None = None,
    freed: int = 0,
    unread: InvalidRules = NO_INVALID_RULES,
) -> ObservedNodePool:
    """A short form of the pool's status; for a static pool also the numbers that decide on its NodeClaims. `pauses`:
    annotations of the pool and the cluster; `freed`: changes whenever budgets may allow more."""
    claims = tuple(claims)
    launched = [claim for claim in claims if claim.provider_id]
    used = resources.sum_resources(claim.capacity for claim in launched)
    generation = node_class.metadata.generation if node_class else 0
    usage = f"{len(launched)} " + " ".join(f"{key}={amount}" for key, amount in sorted(used.items()))
    return ObservedNodePool(
        generation=pool.generation,
        usage=short_hash(usage),
        node_class=pool.node_class,
        node_class_ready=_readiness_text(node_class),
        class_generation=generation,
        registered=0 if healthy_at == (pool.generation, generation) else sum(one.registered for one in claims),
        stamps=foreign_stamps(pool.hash_version, claims, labels.NODEPOOL_HASH_VERSION),
        deleting=pool.deleting,
        pause=pauses[0],
        cluster_pause=pauses[1],
        rules=rules.disruption if rules else None,
        rollout=rules.rollout if rules else None,
        freed=freed,
        unread=unread,
        **_static_capacity_fields(pool, claims, static_capacity),
    )


def _static_capacity_fields(pool: NodePoolFact, claims: tuple[NodeClaimFact, ...], gate: bool) -> dict[str, Any]:
    if not pool.static:
        return {}
    if not gate:
        return {"static": "off"}
    terminating = sum(claim.deleting for claim in claims)
    replaced = sum(bool(claim.disrupted_by) and not claim.deleting for claim in claims)
    active = len(claims) - terminating - replaced
    return {
        "static": "on",
        "replicas": pool.replicas,
        "existing": count_nodes(pool.replicas, active=active, replaced=replaced),
        "terminating": terminating,
    }


def nodeclass_digest(node_class: EC2NodeClass, claims: Iterable[NodeClaimFact]) -> ObservedNodeClass:
    """The number of NodeClaims is included only while the class is being deleted, since the deletion waits for it."""
    claims, meta = tuple(claims), node_class.metadata
    own = meta.annotations.get(labels.NODECLASS_HASH_VERSION, "")
    return ObservedNodeClass(
        generation=meta.generation,
        deleting=meta.is_deleting,
        claims=len(claims) if meta.is_deleting else 0,
        stamps="" if meta.is_deleting else foreign_stamps(own, claims, labels.NODECLASS_HASH_VERSION),
    )


def foreign_stamps(own: str, claims: Iterable[NodeClaimFact], annotation: str) -> str:
    """The versions of the static hash other than Tenure's, on an object and its NodeClaims."""
    versions = {own, *(one.annotations.get(annotation, "") for one in claims if not one.deleting)}
    return ", ".join(sorted(versions - {"", HASH_VERSION}))[:60]


def hash_observation(observed: Message) -> str:
    """A short hash of an observation without the fields that are not compared. Equal digests have equal hashes."""
    return short_hash(observed.model_dump_json(exclude=UNCOMPARED))


def short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _readiness_text(node_class: EC2NodeClass | None) -> str:
    if node_class is None:
        return "NotFound"
    if node_class.metadata.is_deleting:
        return "Terminating"
    ready = node_class.condition(labels.READY)
    return f"{ready.status} {ready.reason} {ready.message}".strip()[:100] if ready else "Unknown"
