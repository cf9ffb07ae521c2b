"""Pauses and backoffs after failed commands, which block the disruption of nodes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from tenure.model.disruption.commands import ActivePause, CommandBackoff
from tenure.model.disruption.decision import Ineligibility, Method
from tenure.model.facts import NodeClaimFact

_POD_MOVING_METHODS: Final[tuple[Method, ...]] = ("Unhealthy", "Expired", "Drifted", "Underutilized")
"""An empty node is eligible even if a larger command with it failed."""


def blocking_reasons(
    nodeclaims: Mapping[str, NodeClaimFact],
    node_of: Mapping[str, str],
    pauses: Sequence[ActivePause],
    backoffs: Sequence[CommandBackoff],
    now: datetime,
) -> dict[str, tuple[Ineligibility, ...]]:
    """By NodeClaim. `node_of`: the names of their nodes, since a pause may name the node or the NodeClaim."""
    active_pauses = [one for one in pauses if one.until is None or now < one.until]
    backoff_by_uid = {
        uid: one for one in sorted(backoffs, key=lambda one: one.until) if now < one.until for uid in one.claims
    }
    found: dict[str, tuple[Ineligibility, ...]] = {}
    for name, nodeclaim in nodeclaims.items():
        applying = (one for one in active_pauses if _pause_applies(one, nodeclaim, node_of.get(name, "")))
        reasons = list(dict.fromkeys(map(_pause_exclusion, applying)))
        if nodeclaim.uid in backoff_by_uid:
            reasons.append(_backoff_exclusion(backoff_by_uid[nodeclaim.uid]))
        if reasons:
            found[name] = tuple(reasons)
    return found


def nodepools_in_backoff(backoffs: Iterable[CommandBackoff], now: datetime) -> dict[str, str]:
    """NodePools whose replacements failed to initialize, with a text that has the end of the backoff and its cause."""
    return {
        one.pool: f"replacements of NodePool {one.pool} are not tried before {format_timestamp(one.until)}: "
        f"{_format_failures(one)}"
        for one in sorted(backoffs, key=lambda one: one.until)
        if one.pool and not one.claims and now < one.until
    }


def _pause_applies(pause: ActivePause, nodeclaim: NodeClaimFact, node: str) -> bool:
    match pause.scope:
        case "cluster":
            return True
        case "pool":
            return pause.name == nodeclaim.pool
        case "node":
            return pause.name in (node, nodeclaim.name)


def _pause_exclusion(pause: ActivePause) -> Ineligibility:
    scope = {"cluster": "the cluster", "pool": f"NodePool {pause.name}", "node": "it"}[pause.scope]
    message = f"{scope} is paused: {pause.why}" + (f", until {format_timestamp(pause.until)}" if pause.until else "")
    return Ineligibility(cause="Paused", message=message, until=pause.until)


def _backoff_exclusion(one: CommandBackoff) -> Ineligibility:
    message = f"its last disruption failed ({_format_failures(one)}): not retried before {format_timestamp(one.until)}"
    return Ineligibility(cause="Bounced", message=message, methods=_POD_MOVING_METHODS, until=one.until)


def _format_failures(one: CommandBackoff) -> str:
    return one.why if one.times < 2 else f"{one.times} times, last: {one.why}"


def format_timestamp(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
