"""Karpenter's rules for status conditions: dependents of `Ready`, transition times and order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from tenure.apis import labels
from tenure.apis.meta import Condition

Status = Literal["True", "False", "Unknown"]
MAX_MESSAGE: Final = 4_096
"""Characters. The API server rejects a status with a message of more than 32,768."""
AWAITING_MESSAGE: Final = "object is awaiting reconciliation"

DEPENDENTS: Final[dict[str, tuple[str, ...]]] = {
    "NodePool": labels.NODEPOOL_CONDITIONS,
    "NodeClaim": labels.NODECLAIM_CONDITIONS,
    "EC2NodeClass": labels.NODECLASS_CONDITIONS,
    "NodeOverlay": labels.NODEOVERLAY_CONDITIONS,
    "LifecyclePolicy": labels.LIFECYCLEPOLICY_CONDITIONS,
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The object with the conditions. Its `Ready` is True while all `dependents` are True, and NodeMissing is not."""

    dependents: tuple[str, ...]
    generation: int = 0
    created: datetime | None = None
    deleting: bool = False


def initial_conditions(conditions: Sequence[Condition], subject: Subject, now: datetime) -> tuple[Condition, ...]:
    """Add `Ready` and its dependents as Unknown where they are missing.

    A deleting object gets its generation as the observed generation of every condition.
    """
    known = {one.type for one in conditions}
    result = tuple(conditions)
    for missing in (one for one in (labels.READY, *subject.dependents) if one not in known):
        result = _upsert(result, _awaiting_condition(missing, subject), subject, now)
    if subject.deleting:
        result = tuple(one.model_copy(update={"observed_generation": subject.generation}) for one in result)
    return result


def set_condition(
    conditions: Sequence[Condition],
    subject: Subject,
    condition_type: str,
    status: Status,
    *,
    now: datetime,
    reason: str = "",
    message: str = "",
) -> tuple[Condition, ...]:
    """Set one condition and recompute `Ready`; the result equals the input if nothing changes.

    Only a new status changes the transition time. The default reason is the type's name for True and
    `AwaitingReconciliation` for Unknown. Raises ValueError for False without a reason.
    """
    condition = Condition(
        type=condition_type,
        status=status,
        reason=reason or _default_reason(condition_type, status),
        message=message[:MAX_MESSAGE],
        observed_generation=subject.generation,
    )
    complete = initial_conditions(conditions, subject, now)
    return _with_root(_upsert(complete, condition, subject, now), subject, now)


def clear_condition(
    conditions: Sequence[Condition], subject: Subject, condition_type: str, *, now: datetime
) -> tuple[Condition, ...]:
    """Remove a condition, and sort the rest by type. Raises ValueError for `Ready` and its dependents."""
    if condition_type == labels.READY or condition_type in subject.dependents:
        raise ValueError(f"condition {condition_type}: Ready depends on it and it cannot be cleared, set it to Unknown")
    if all(one.type != condition_type for one in conditions):
        return tuple(conditions)
    rest = tuple(sorted((one for one in conditions if one.type != condition_type), key=lambda one: one.type))
    return _with_root(rest, subject, now) if condition_type == labels.NODE_MISSING else rest


def _default_reason(condition_type: str, status: Status) -> str:
    if status == "False":
        raise ValueError(f"condition {condition_type}: status False requires a reason")
    return condition_type if status == "True" else labels.AWAITING_RECONCILIATION


def _awaiting_condition(condition_type: str, subject: Subject) -> Condition:
    return Condition(
        type=condition_type,
        status="Unknown",
        reason=labels.AWAITING_RECONCILIATION,
        message=AWAITING_MESSAGE,
        observed_generation=subject.generation,
    )


def _upsert(
    conditions: Sequence[Condition], condition: Condition, subject: Subject, now: datetime
) -> tuple[Condition, ...]:
    old = next((one for one in conditions if one.type == condition.type), None)
    stamped = condition.model_copy(update={"last_transition_time": _transition_time(old, condition, subject, now)})
    if stamped == old:
        return tuple(conditions)
    others = [one for one in conditions if one.type != condition.type]
    return tuple(sorted([*others, stamped], key=_sort_key))


def _transition_time(old: Condition | None, new: Condition, subject: Subject, now: datetime) -> datetime:
    # A dependent exists from the start, so its first transition time is the object's creation.
    moved = now.replace(microsecond=0)
    if old is None:
        return (subject.created or moved) if new.type in subject.dependents else moved
    return moved if old.status != new.status else (old.last_transition_time or moved)


def _sort_key(condition: Condition) -> tuple[bool, float]:
    time = condition.last_transition_time
    return (condition.type == labels.READY, time.timestamp() if time else 0.0)


def _with_root(conditions: tuple[Condition, ...], subject: Subject, now: datetime) -> tuple[Condition, ...]:
    open_ones = _not_true(conditions, subject)
    if not open_ones:
        status: Status = "True"
        reason = labels.READY
    elif any(_is_failure(one) and one.observed_generation == subject.generation for one in open_ones):
        status, reason = "False", labels.UNHEALTHY_DEPENDENTS
    else:
        status, reason = "Unknown", labels.RECONCILING_DEPENDENTS
    root = Condition(
        type=labels.READY,
        status=status,
        reason=reason,
        message=", ".join(f"{one.type}={one.status}" for one in open_ones),
        observed_generation=subject.generation,
    )
    return _upsert(conditions, root, subject, now)


def _is_failure(condition: Condition) -> bool:
    return condition.is_true if condition.type == labels.NODE_MISSING else condition.is_false


def _not_true(conditions: Iterable[Condition], subject: Subject) -> list[Condition]:
    """Dependents that are not True at the current generation, and failures, latest transition first."""
    found = [
        one
        for one in conditions
        if (one.type in subject.dependents and not (one.is_true and one.observed_generation == subject.generation))
        or (one.type == labels.NODE_MISSING and one.is_true)
    ]
    # Reversed before the stable sort: of two transitions in the same second, the later one comes first.
    found.reverse()
    return sorted(found, key=lambda one: -_sort_key(one)[1])
