"""What keeps nodes beyond what the cluster shows: pauses that people asked for, and moves that came to nothing.

`tenure/controller/disruption/controller.py` is told of both by the Cluster workflow, and hands on what comes of it
here.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from tenure.model.disruption.commands import Bounced, Hold
from tenure.model.disruption.planning import Exclusion, Method
from tenure.model.facts import ClaimFact

_MOVES: Final[tuple[Method, ...]] = ("Drifted", "Underutilized")
"""An empty node goes by itself, whatever came of a larger move."""


def kept_by(
    claims: Mapping[str, ClaimFact],
    node_of: Mapping[str, str],
    holds: Sequence[Hold],
    bounced: Sequence[Bounced],
    now: datetime,
) -> dict[str, tuple[Exclusion, ...]]:
    """By NodeClaim. `node_of` names their nodes, by which a node may be paused as well as by its NodeClaim."""
    held = [one for one in holds if one.until is None or now < one.until]
    moved = {uid: one for one in sorted(bounced, key=lambda one: one.until) if now < one.until for uid in one.claims}
    found: dict[str, tuple[Exclusion, ...]] = {}
    for name, claim in claims.items():
        said = [_paused(one) for one in held if _concerns(one, claim, node_of.get(name, ""))]
        if claim.uid in moved:
            said.append(_bounced(moved[claim.uid]))
        if said:
            found[name] = tuple(said)
    return found


def unsold(bounced: Iterable[Bounced], now: datetime) -> dict[str, str]:
    """NodePools whose replacements do not come up: nothing that needs one is tried before a moment. With the reason."""
    return {
        one.pool: f"replacements of NodePool {one.pool} are not tried before {_at(one.until)}: {_failures(one)}"
        for one in sorted(bounced, key=lambda one: one.until)
        if one.pool and not one.claims and now < one.until
    }


def _concerns(hold: Hold, claim: ClaimFact, node: str) -> bool:
    match hold.scope:
        case "cluster":
            return True
        case "pool":
            return hold.name == claim.pool
        case "node":
            return hold.name in (node, claim.name)


def _paused(hold: Hold) -> Exclusion:
    of = {"cluster": "the cluster", "pool": f"NodePool {hold.name}", "node": "it"}[hold.scope]
    words = f"{of} is paused: {hold.why}" + (f", until {_at(hold.until)}" if hold.until else "")
    return Exclusion(cause="Paused", words=words, until=hold.until)


def _bounced(one: Bounced) -> Exclusion:
    words = f"its last disruption came to nothing ({_failures(one)}): not tried before {_at(one.until)}"
    return Exclusion(cause="Bounced", words=words, methods=_MOVES, until=one.until)


def _failures(one: Bounced) -> str:
    return one.why if one.times < 2 else f"{one.times} times, last: {one.why}"


def _at(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
