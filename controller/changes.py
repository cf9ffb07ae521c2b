"""What changed since the planner was last told: the latest form of every object, once, in the order of the changes.

And how much of it could matter for voluntary disruption, which `stirring.py` tells the Cluster workflow of.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from model.facts import ClaimFact, PodFact
from model.labels import CLUSTER_NAME_TAGGED, TAGGED
from scheduling.facts import Change, Fact, Kind

TAGS: Final = (TAGGED, CLUSTER_NAME_TAGGED)


class Changes:
    def __init__(self) -> None:
        self._waiting: dict[tuple[Kind, str], Change] = {}
        self.stirs = 0
        """Grows with every change that could matter for voluntary disruption."""
        self._moved: set[str] = set()

    def note(self, kind: Kind, key: str, fact: Fact | None, *, stirs: bool = True) -> None:
        self.stirs += stirs
        # A later change of an object replaces an earlier one and goes last, so order holds between kinds.
        self._waiting.pop((kind, key), None)
        self._waiting[kind, key] = change(kind, key, fact)

    def move(self, claim: ClaimFact) -> None:
        """A pod came to its node, left it, or changed there."""
        self._moved.add(claim.name)
        self.note("claim", claim.name, claim, stirs=False)

    def take_moved(self) -> set[str]:
        """NodeClaims for which `move` was called since."""
        moved, self._moved = self._moved, set()
        return moved

    def take(self, claim_of: Callable[[str], ClaimFact]) -> tuple[Change, ...]:
        """`claim_of` says how a NodeClaim is now, by name."""
        changes, self._waiting = tuple(self._waiting.values()), {}
        return tuple(
            change("claim", one.key, claim_of(one.key)) if one.kind == "claim" and one.fact else one for one in changes
        )


def change(kind: Kind, key: str, fact: Fact | None) -> Change:
    return Change.model_construct(kind=kind, key=key, fact=fact)


def everything(tables: Mapping[Kind, Mapping[str, Fact]]) -> tuple[Change, ...]:
    """All that is known, by kind and key."""
    return tuple(change(kind, key, fact) for kind, table in tables.items() for key, fact in table.items())


def timed(claim: ClaimFact, moved: datetime | None) -> ClaimFact:
    """With the last coming or going of a pod, where this process saw a later one than the NodeClaim tells."""
    if moved is None or (claim.last_pod_event is not None and moved <= claim.last_pod_event):
        return claim
    return claim.model_copy(update={"last_pod_event": moved})


def alters(old: ClaimFact | None, new: ClaimFact) -> bool:
    """Whether more is another than what Tenure wrote itself: when its pods moved, and that its instance is tagged."""
    if old is None:
        return True
    notes = {key: note for key, note in new.annotations.items() if key not in TAGS}
    notes |= {key: note for key, note in old.annotations.items() if key in TAGS}
    return new.model_copy(update={"last_pod_event": old.last_pod_event, "annotations": notes}) != old


def matters(old: PodFact | None, new: PodFact | None) -> bool:
    """Whether a pod that changed so may change what could go voluntarily. Its readiness does through its budgets."""
    return _weight(old) != _weight(new)


def _weight(pod: PodFact | None) -> object:
    if pod is None or ((pod.daemonset or pod.mirror) and not pod.do_not_disrupt):
        return None
    standing = (pod.node_name, pod.finished, pod.deleting, pod.do_not_disrupt, pod.priority, pod.deletion_cost)
    return standing, pod.requests, pod.labels
