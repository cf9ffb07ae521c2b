"""NodeRegistrationHealthy of a NodePool: unhealthy once two of its last four starts failed (reference 3.6).

A change of the NodePool or its NodeClass begins anew: what failed before may have been mended by it. Nothing is decided
by it here; it is for people and their alerts.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal

from model import labels
from model.kinds import NodeClaim, NodePool
from model.lifecycle import Phase
from model.registrations import Registrations, StartEnded

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
