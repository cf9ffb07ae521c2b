"""Validation of NodeOverlays: each must be valid and must not conflict with others (reference 2.21)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tenure.apis.labels import CONFLICT, RUNTIME_VALIDATION
from tenure.model.base import Value
from tenure.model.instance_types import InstanceType
from tenure.model.invalid_objects import Guard, no_guard
from tenure.model.nodeoverlays import OverlayFact, OverlayReach, find_overlay_problem, sort_by_precedence


class OverlayValidation(Value):
    """Why an overlay is invalid; both are empty for a valid one."""

    reason: str = ""
    message: str = ""


ACCEPTED = OverlayValidation()


@dataclass(frozen=True)
class OverlayTarget:
    """The instance types of a pool, and the labels of its nodes, to which overlays apply."""

    labels: Mapping[str, str]
    types: Sequence[InstanceType]


@dataclass(frozen=True)
class EvaluatedOverlays:
    accepted: tuple[OverlayFact, ...] = ()
    """Highest precedence first."""
    validations: Mapping[str, OverlayValidation] = field(default_factory=dict)
    """Of all overlays, by name."""


_UNREADABLE: Final = OverlayValidation(
    reason=RUNTIME_VALIDATION, message="it cannot be evaluated: see the event InvalidObject"
)


def evaluate_overlays(
    overlays: Iterable[OverlayFact], targets: Sequence[OverlayTarget], guard: Guard = no_guard
) -> EvaluatedOverlays:
    """Reject an overlay as a whole if an earlier one of the same weight sets the same values."""
    conflicts = _OverlayConflicts(targets)
    accepted: list[OverlayFact] = []
    validations: dict[str, OverlayValidation] = {}
    for one in sort_by_precedence(overlays):
        validations[one.name] = _UNREADABLE
        with guard(one, ""):
            problem = find_overlay_problem(one)
            validations[one.name] = (
                OverlayValidation(reason=RUNTIME_VALIDATION, message=problem) if problem else conflicts.add(one)
            )
        if validations[one.name] == ACCEPTED:
            accepted.append(one)
    return EvaluatedOverlays(tuple(accepted), validations)


class _OverlayConflicts:
    """Owners of values: by target and type, the price of each offering and each added resource."""

    def __init__(self, targets: Sequence[OverlayTarget]) -> None:
        self._targets = targets
        self._overlay_by_setting: dict[tuple[int, str, int | str], OverlayFact] = {}

    def add(self, overlay: OverlayFact) -> OverlayValidation:
        """Record the overlay's values, unless it conflicts with an earlier overlay."""
        entries: list[tuple[int, str, int | str]] = []
        for number, target in enumerate(self._targets):
            reach = OverlayReach(overlay, target.labels)
            for instance_type in target.types if reach.possible else ():
                reached = reach.offering_indexes(instance_type)
                if not reached:
                    continue
                adjustments: list[int | str] = [*(reached if overlay.changes_price else ()), *overlay.capacity]
                for adjusted in adjustments:
                    existing = self._overlay_by_setting.get((number, instance_type.name, adjusted))
                    if existing is None:
                        entries.append((number, instance_type.name, adjusted))
                    elif existing.weight == overlay.weight:
                        return describe_conflict(overlay, existing, instance_type, adjusted)
        self._overlay_by_setting.update(dict.fromkeys(entries, overlay))
        return ACCEPTED


def describe_conflict(
    overlay: OverlayFact, existing: OverlayFact, instance_type: InstanceType, adjusted: int | str
) -> OverlayValidation:
    if isinstance(adjusted, int):
        offering = instance_type.offerings[adjusted]
        about = f"the price of {instance_type.name} ({offering.capacity_type}) in {offering.zone}"
    else:
        about = f"how much {adjusted} {instance_type.name} has"
    return OverlayValidation(
        reason=CONFLICT,
        message=f"NodeOverlay {existing.name} has the same weight {overlay.weight} and also sets {about}; "
        "change the weight of one, or make their requirements disjoint",
    )
