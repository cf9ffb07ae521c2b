"""What changed since the planner was last told: the latest form of every object, once, in the order of the changes."""

from collections.abc import Callable, Mapping
from datetime import datetime

from model.facts import ClaimFact
from scheduling.facts import Change, Fact, Kind


class Changes:
    def __init__(self) -> None:
        self._waiting: dict[tuple[Kind, str], Change] = {}

    def note(self, kind: Kind, key: str, fact: Fact | None) -> None:
        # A later change of an object replaces an earlier one and goes last, so order holds between kinds.
        self._waiting.pop((kind, key), None)
        self._waiting[kind, key] = change(kind, key, fact)

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
