"""Which NodeOverlays are heeded: those that make sense and agree with the others (reference 2.21).

`tenure/scheduling/offerings.py` judges them before plans are made; `tenure/controller/disruption/status.py` writes
the verdicts down.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenure.apis.labels import CONFLICT, NODEPOOL, RUNTIME_VALIDATION, WELL_KNOWN, nodeclass_label
from tenure.model.base import Value
from tenure.model.facts import PoolFact
from tenure.model.instance_types import InstanceType
from tenure.model.nodeoverlays import OverlayFact, Reach, by_precedence, problem_of


class Verdict(Value):
    """Why an overlay is not heeded; both empty: it is."""

    reason: str = ""
    message: str = ""


HEEDED = Verdict()


@dataclass(frozen=True)
class Ground:
    """What overlays may be laid over: the instance types of a pool, and what its nodes are labelled."""

    labels: Mapping[str, str]
    types: Sequence[InstanceType]


@dataclass(frozen=True)
class Judged:
    heeded: tuple[OverlayFact, ...] = ()
    """Those with most precedence first."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """By name, of all of them."""


def judge(overlays: Iterable[OverlayFact], grounds: Sequence[Ground]) -> Judged:
    """An overlay that sets what one of the same weight sets before it is refused as a whole."""
    book = _Book(grounds)
    heeded: list[OverlayFact] = []
    verdicts: dict[str, Verdict] = {}
    for one in by_precedence(overlays):
        problem = problem_of(one)
        if problem:
            verdicts[one.name] = Verdict(reason=RUNTIME_VALIDATION, message=problem)
            continue
        verdict = verdicts[one.name] = book.enter(one)
        if verdict == HEEDED:
            heeded.append(one)
    return Judged(tuple(heeded), verdicts)


def labels_of(pool: PoolFact) -> dict[str, str]:
    """What every node of the pool is labelled: its template's labels, and requirements that leave one value."""
    fixed = {
        one.key: one.values[0]
        for one in pool.requirements
        if one.operator == "In" and len(one.values) == 1 and one.key not in WELL_KNOWN
    }
    own = {NODEPOOL: pool.name, nodeclass_label(pool.node_class_group, pool.node_class_kind): pool.node_class}
    return {**fixed, **pool.template_labels, **own}


class _Book:
    """Who decides what: by ground and type, the price of each offering and each added resource."""

    def __init__(self, grounds: Sequence[Ground]) -> None:
        self._grounds = grounds
        self._deciding: dict[tuple[int, str, int | str], OverlayFact] = {}

    def enter(self, overlay: OverlayFact) -> Verdict:
        """Written down only where it is in conflict with none."""
        entries: list[tuple[int, str, int | str]] = []
        for number, ground in enumerate(self._grounds):
            reach = Reach(overlay, ground.labels)
            for kind in ground.types if reach.possible else ():
                reached = reach.offerings(kind)
                if not reached:
                    continue
                things: list[int | str] = [*(reached if overlay.changes_price else ()), *overlay.capacity]
                for thing in things:
                    before = self._deciding.get((number, kind.name, thing))
                    if before is None:
                        entries.append((number, kind.name, thing))
                    elif before.weight == overlay.weight:
                        return _conflict(overlay, before, kind, thing)
        self._deciding.update(dict.fromkeys(entries, overlay))
        return HEEDED


def _conflict(overlay: OverlayFact, before: OverlayFact, kind: InstanceType, thing: int | str) -> Verdict:
    if isinstance(thing, int):
        offering = kind.offerings[thing]
        about = f"the price of {kind.name} ({offering.capacity_type}) in {offering.zone}"
    else:
        about = f"how much {thing} {kind.name} has"
    return Verdict(
        reason=CONFLICT,
        message=f"NodeOverlay {before.name} has the same weight {overlay.weight} and says {about} too; "
        "give one of them another weight, or requirements that keep them apart",
    )
