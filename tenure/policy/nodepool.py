"""What can be wrong with a NodePool beyond what its CRD checks (reference 1.6), and whether its NodeClass is ready.

NodeRegistrationHealthy of a NodePool: unhealthy once two of its last four starts failed (reference 3.6).

A change of the NodePool or its NodeClass begins anew: what failed before may have been mended by it. Nothing is decided
by it here; it is for people and their alerts.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.nodeclaim_state import Phase
from tenure.model.observations import Registrations, StartEnded


def validate_node_pool(pool: NodePool) -> tuple[str, ...]:
    """Each error names the field, the value, and what to write instead."""
    template = pool.spec.template
    errors = [
        f"spec.template.metadata.labels[{key!r}]: the key is reserved; choose a domain of your own"
        for key in template.metadata.labels
        if labels.is_restricted(key) or key == labels.NODEPOOL
    ]
    errors += [
        f"spec.template.spec.requirements: key {one.key!r} is set by Tenure; leave it out"
        for one in template.spec.requirements
        if one.key == labels.NODEPOOL or labels.is_restricted(one.key)
    ]
    for one in template.spec.requirements:
        known = labels.WELL_KNOWN_VALUES.get(one.key)
        if known and one.operator == "In" and not known & set(one.values):
            errors.append(
                f"spec.template.spec.requirements: {one.key} In {sorted(one.values)} never holds; write {sorted(known)}"
            )
    pairs: set[tuple[str, str]] = set()
    for taint in (*template.spec.taints, *template.spec.startup_taints):
        if (taint.key, taint.effect) in pairs:
            errors.append(
                f"spec.template.spec: {taint.key}:{taint.effect} stands twice in taints and startupTaints; keep one"
            )
        pairs.add((taint.key, taint.effect))
    return tuple(errors)


def refuse_static(pool: NodePool) -> tuple[str, ...]:
    """The error of a static pool while the gate StaticCapacity is off: no node is made for it."""
    if pool.spec.replicas is None:
        return ()
    return (
        f"spec.replicas: {pool.spec.replicas}: no node is made for a static NodePool while the feature gate "
        "StaticCapacity is off; start the worker with FEATURE_GATES=StaticCapacity=true, or make a NodePool "
        "without replicas",
    )


def decide_node_class_ready(name: str, node_class: EC2NodeClass | None) -> tuple[str, str, str]:
    """Status, reason and message of the NodePool's condition NodeClassReady."""
    if node_class is None:
        return "False", labels.NODECLASS_NOT_FOUND, f"EC2NodeClass {name} is not there; create it or name another"
    if node_class.metadata.deleting:
        return "False", labels.NODECLASS_TERMINATING, f"EC2NodeClass {name} is being deleted"
    ready = next((one for one in node_class.status.conditions if one.type == labels.READY), None)
    if ready is None or ready.is_unknown:
        return "Unknown", labels.NODECLASS_READINESS_UNKNOWN, f"EC2NodeClass {name} is not resolved yet"
    return ready.status, ready.reason if ready.is_false else "", ready.message if ready.is_false else ""


KEPT: Final = 4
FAILURES: Final = 2
_NOBODYS_FAULT: Final = frozenset({labels.INSUFFICIENT_CAPACITY, "NodeClassNotReady", "NodeClaimGone"})
"""Launches that Karpenter gives up without counting them: the next try goes elsewhere, or waits."""


def counts(phase: Phase, reason: str, refused: str) -> bool:
    """Whether a NodeClaim that is given up says something of its pool. `refused`: what the launch was last refused
    for, where it was."""
    if phase is Phase.LAUNCH:
        return (refused or reason) not in _NOBODYS_FAULT
    return phase is Phase.REGISTRATION and reason == "RegistrationTimeout"


def renewed(known: Registrations, pool: NodePool, class_generation: int, now: datetime) -> Registrations:
    """For the pool as it is now. One that is first heard of begins with what its condition says."""
    generations = {"generation": pool.metadata.generation, "class_generation": class_generation}
    if not known.generation:
        seeded = _seeded(pool, class_generation)
        return added(known.model_copy(update=generations), seeded)
    if (known.generation, known.class_generation) == (pool.metadata.generation, class_generation):
        return known
    return Registrations(since=now, **generations)


def added(known: Registrations, ended: Iterable[StartEnded]) -> Registrations:
    """In the order in which they ended; said twice, an end counts once."""
    found = {one.uid: one for one in (*known.outcomes, *ended) if known.since is None or one.at >= known.since}
    latest = sorted(found.values(), key=lambda one: (one.at, one.uid))[-KEPT:]
    return known.model_copy(update={"outcomes": tuple(latest)})


def registered(pool: NodePool, claims: Iterable[NodeClaim]) -> list[StartEnded]:
    """Of live NodeClaims, those that made it. One that is older than the pool was another's of the same name."""
    born, found = pool.metadata.creation_timestamp, []
    for claim in claims:
        condition, made = claim.condition(labels.REGISTERED_CONDITION), claim.metadata.creation_timestamp
        ours = born is None or made is None or made >= born
        if ours and condition and condition.is_true and condition.last_transition_time:
            found.append(StartEnded(uid=claim.metadata.uid, at=condition.last_transition_time, registered=True))
    return found


def decide_healthy(known: Registrations) -> tuple[Literal["True", "False", "Unknown"], str, str]:
    """Status, reason and message."""
    failures = [one for one in known.outcomes if not one.registered]
    if len(failures) >= FAILURES:
        last = failures[-1]
        said = f"{len(failures)} of the last {len(known.outcomes)} NodeClaims failed to start, the last: {last.message}"
        return "False", last.reason or labels.REGISTRATION_FAILED, said
    return ("True", "", "") if known.outcomes else ("Unknown", "", "")


def _seeded(pool: NodePool, class_generation: int) -> list[StartEnded]:
    told = pool.condition(labels.NODE_REGISTRATION_HEALTHY)
    if told is None or told.last_transition_time is None or told.observed_generation != pool.metadata.generation:
        return []
    if pool.status.node_class_observed_generation != class_generation or told.status == "Unknown":
        return []
    one = StartEnded(uid="before-1", at=told.last_transition_time, registered=told.is_true)
    failed = {"reason": told.reason, "message": "before this workflow began"}
    return (
        [one] if told.is_true else [one.model_copy(update={**failed, "uid": uid}) for uid in ("before-1", "before-2")]
    )
