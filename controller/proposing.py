"""From the planner's commands to what the Cluster workflow is told of them, and back. Pure.

The host keeps each command whole, by its proposal's id; workflows know the short form.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from model.disrupting import Proposal, UnderWay
from model.disruption import Command, Decision, Leaving, Method, NodeVerdict

CARRIED_OUT: Final[frozenset[Method]] = frozenset({"Drifted", "Underutilized"})
"""Empty nodes ask for their permits by themselves."""
MOST: Final = 100
"""Proposals of one pass: workflows carry them in their state."""
_ID: Final = 12
_SAID: Final = 300
"""Characters of what a refusal says."""


def proposal_id(reason: Method, candidates: Iterable[Leaving]) -> str:
    """Of the nodes and the reason: what is proposed again has the same."""
    said = "/".join((reason, *sorted(one.claim_uid for one in candidates)))
    return hashlib.sha256(said.encode()).hexdigest()[:_ID]


def proposals(decision: Decision) -> dict[str, Command]:
    """What would be carried out, by id, in order."""
    found = [one for one in decision.commands if one.reason in CARRIED_OUT][:MOST]
    return {proposal_id(one.reason, one.candidates): one for one in found}


def proposal(name: str, command: Command) -> Proposal:
    return Proposal(
        id=name,
        reason=command.reason,
        kind=command.kind,
        candidates=command.candidates,
        replacements=len(command.replacements),
        replacement_pools=tuple(sorted({one.pool for one in command.replacements})),
        price_before=command.price_before,
        price_after=command.price_after,
        why=command.why,
    )


def command_under_way(one: UnderWay, known: Mapping[str, Command]) -> Command:
    """As it was decided; without its moves where another process decided it, so that these are sought again."""
    command = known.get(one.proposal.id)
    if command is not None and one.claims in ((), command.claims):
        return command
    told = one.proposal
    return Command(
        reason=told.reason,
        kind=told.kind,
        candidates=told.candidates,
        claims=one.claims,
        price_before=told.price_before,
        price_after=told.price_after,
        why=told.why,
    )


def refusal(decision: Decision, names: Sequence[str], reason: Method) -> str:
    """Why these NodeClaims would not go together for this reason any more, in words."""
    verdicts = {one.claim: one for one in decision.nodes}
    gone = [name for name in names if name not in verdicts]
    if gone:
        return f"NodeClaim {gone[0]} is gone"
    found = ((one, _why(one, reason)) for one in map(verdicts.__getitem__, names))
    said = [f"{one.node or one.claim}: {words}" for one, words in found if words]
    return ("; ".join(said) or "it would not be decided like this any more")[:_SAID]


def _why(one: NodeVerdict, reason: Method) -> str:
    return next((said.words for said in one.excluded if reason in said.methods), "") or next(iter(one.rejected), "")


def next_moment(decision: Decision, moments: Iterable[datetime | None], now: datetime) -> datetime | None:
    """When time alone changes a verdict."""
    ends = [said.until for one in decision.nodes for said in one.excluded]
    return min((one for one in (*ends, *moments) if one is not None and now < one), default=None)
