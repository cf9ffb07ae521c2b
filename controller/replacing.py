"""NodeClaims that replace nodes which go: made under names that their plan's id determines, all of them or none.

`disrupting.py` makes them once the planner has said again that the nodes may go. No plan of Provisioning knows of them,
so they launch together with others that are alike.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import structlog

from activities.ports import Claims, Events
from controller.births import Births
from controller.caches import Caches
from controller.limits import within_limits
from controller.naming import claim_names, node_claim
from controller.nominations import Nominations
from controller.planner import PlannerProcess
from kube.facts import claim_fact
from model import labels
from model.disrupting import ReplaceAsked, Replaced
from model.disruption import Command
from model.facts import ClaimFact
from model.faults import Fault
from model.naming import claim_name
from model.plans import PlannedClaim
from scheduling.facts import Change

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
