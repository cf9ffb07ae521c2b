"""From the planner's commands to what the Cluster workflow is told of them, and back. Pure.

The host keeps each command whole, by its proposal's id; workflows know the short form.

NodeClaims that replace nodes which go: made under names that their plan's id determines, all of them or none.

`disrupting.py` makes them once the planner has said again that the nodes may go. No plan of Provisioning knows of them,
so they launch together with others that are alike.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog

from activities.ports.core import Claims, Events
from tenure.apis import labels
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import Nominations
from tenure.controller.metrics.planner import Births
from tenure.controller.planning.nodeclaim_factory import claim_names, node_claim, within_limits
from tenure.controller.planning.planner_process import PlannerProcess
from tenure.kube.facts.objects import claim_fact
from tenure.model.disruption.commands import Proposal, ReplaceAsked, Replaced, UnderWay
from tenure.model.disruption.planning import Command, Decision, Leaving, Method, NodeVerdict
from tenure.model.errors import Fault
from tenure.model.facts import ClaimFact
from tenure.model.nodeclaim_naming import claim_name
from tenure.model.provisioning import PlannedClaim
from tenure.scheduling.snapshot import Change

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


log = structlog.get_logger(__name__)


class Replacements:
    def __init__(
        self,
        *,
        caches: Caches,
        claims: Claims,
        events: Events,
        nominations: Nominations,
        births: Births,
        now: Callable[[], datetime],
    ) -> None:
        self._caches, self._claims, self._events = caches, claims, events
        self._nominations, self._births, self._now = nominations, births, now

    async def made(self, plan_id: str, number: int) -> Replaced | None:
        """What an earlier try made, here or elsewhere; None when there was none. Some of them alone are taken back.
        `number`: how many there were to be, where an earlier version did not write it on them."""
        found = [one for one in self._caches.claims.values() if one.annotations.get(labels.PLAN) == plan_id]
        if not found:
            return None
        alive = [one for one in found if not one.deleting]
        number = next((int(one.annotations[labels.REPLACEMENTS]) for one in found if _counted(one)), number)
        if len(alive) == number:
            return Replaced(outcome="made", claims=tuple(_in_order(alive, plan_id)))
        for one in alive:
            await self._claims.delete(one.name, one.uid)
        return Replaced(outcome="stale", why=f"only {len(alive)} of {number} replacements were made")

    async def make(self, asked: ReplaceAsked, command: Command, process: PlannerProcess) -> Replaced:
        """All of them. Raises TryLater when the planner fails."""
        allowed, refused = await within_limits(command.replacements, self._caches, self._claims)
        if len(allowed) < len(command.replacements):
            return Replaced(outcome="stale", why=refused[0].reason if refused else "the NodePool's limits are reached")
        names = claim_names(asked.plan_id, allowed)
        planned = dict(zip(names, allowed, strict=True))
        await process.commit(planned, now=self._now())
        fault = await self._create(asked, planned)
        if fault is not None:
            await process.apply([Change(kind="claim", key=name, fact=None) for name in names])
            return Replaced(outcome="not now", why=f"a replacement could not be made: {fault}")
        expected = {pod: name for name, claim in planned.items() for pod in claim.pods}
        before = {found.target for pod in expected if (found := self._nominations.of(pod))}
        self._nominations.renew(expected, self._now())
        for name in {*names, *before}:
            self._caches.touch_claim(name)
        log.info("replacements made", workflow=asked.workflow_id, claims=names)
        return Replaced(outcome="made", claims=tuple(names))

    async def _create(self, asked: ReplaceAsked, planned: Mapping[str, PlannedClaim]) -> Fault | None:
        """The fault by which one could not be made; then the others are taken back."""
        made: list[ClaimFact] = []

        async def create(name: str, claim: PlannedClaim) -> None:
            wanted = node_claim(
                claim, name=name, plan_id=asked.plan_id, replaces=asked.workflow_id, replacements=len(planned)
            )
            found = await self._claims.create(wanted)
            self._births.count(found, asked.proposal.reason)
            made.append(claim_fact(found.to_object()))

        answers = await asyncio.gather(*(create(*one) for one in planned.items()), return_exceptions=True)
        faults = [one for one in answers if isinstance(one, BaseException)]
        if not faults:
            for one in made:
                self._caches.expect(one)
                await self._say(one, "DisruptionLaunching", f"Launching NodeClaim: {asked.proposal.reason}")
                await self._say(one, "DisruptionWaitingReadiness", "Waiting on readiness to continue disruption")
            return None
        unknown = next((one for one in faults if not isinstance(one, Fault)), None)
        for one in made:
            await self._claims.delete(one.name, one.uid)
        if unknown is not None:
            raise unknown
        return next(one for one in faults if isinstance(one, Fault))

    async def _say(self, one: ClaimFact, reason: str, message: str) -> None:
        """On a replacement, as Karpenter does (reference 5.2)."""
        await self._events.publish(kind="NodeClaim", name=one.name, uid=one.uid, reason=reason, message=message)


def _counted(claim: ClaimFact) -> bool:
    return claim.annotations.get(labels.REPLACEMENTS, "").isdecimal()


def _in_order(found: Sequence[ClaimFact], plan_id: str) -> list[str]:
    """By their places in the command."""
    places = {claim_name(one.pool, plan_id, place): place for one in found for place in range(len(found))}
    return sorted((one.name for one in found), key=lambda name: places.get(name, len(found)))
