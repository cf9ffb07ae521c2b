"""Voluntary disruption in the process that hosts the watch: what could go now, and replacements for what shall.

The Cluster workflow asks `decide` through `host.py`; workflows of commands ask `replace` before they take a node away.
It asks the planner that `planning.py` plans with, one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog
from temporalio.common import MetricMeter

from activities.ports.core import Claims, Events
from tenure.controller.cache.availability import Away
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import Nominations
from tenure.controller.disruption.budgets import Allowing
from tenure.controller.disruption.replacements import (
    Replacements,
    command_under_way,
    next_moment,
    proposal,
    proposals,
    refusal,
)
from tenure.controller.metrics.planner import Births
from tenure.controller.planning.planner_process import Filling
from tenure.model.disruption.commands import (
    Bounced,
    DecideAsked,
    Decided,
    Hold,
    Proposal,
    ReplaceAsked,
    Replaced,
    UnderWay,
)
from tenure.model.disruption.planning import (
    Allowances,
    Command,
    Decision,
    DisruptionRequest,
    DisruptionSettings,
    Exclusion,
)
from tenure.model.errors import Fault
from tenure.scheduling.disruption.blocked_nodes import kept_by, unsold

log = structlog.get_logger(__name__)

LOOK_AGAIN: Final = timedelta(seconds=10)
"""After a pass that could not be made."""
GO_ON: Final = timedelta(seconds=2)
"""After a pass that did not reach all: pods that wait are planned in between."""
MOST_SIMULATIONS: Final = 120
"""Of one pass over 500 nodes: one to two seconds, for which no pod is planned."""
MOST_CANDIDATES: Final = 100
ROUNDING: Final = 1e-6
"""US dollars an hour."""


def settings(*, spot_to_spot: bool) -> DisruptionSettings:
    """Of every pass."""
    return DisruptionSettings(
        spot_to_spot=spot_to_spot, most_simulations=MOST_SIMULATIONS, most_candidates=MOST_CANDIDATES
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """A pass."""

    at: datetime
    decision: Decision | None = None
    blocked: str = ""
    """Why there is none."""
    seconds: float = 0.0
    stirs: int = 0
    allowances: Allowances = field(default_factory=Allowances)
    consuming: Mapping[str, int] = field(default_factory=dict)
    """Nodes that use budgets up, by NodePool."""


class Disrupting:
    """`paused`: what people hold up by annotations, which no workflow says; `evacuated`: what AWS takes back. `passed`
    is told of every pass, `decided` of what it found."""

    def __init__(
        self,
        *,
        caches: Caches,
        filling: Filling,
        nominations: Nominations,
        away: Away,
        allowing: Allowing,
        claims: Claims,
        events: Events,
        settings: DisruptionSettings,
        not_ready_grace: timedelta,
        graces: Callable[[], Mapping[str, timedelta]],
        now: Callable[[], datetime],
        paused: Callable[[datetime], Sequence[Hold]] = lambda now: (),
        evacuated: Callable[[datetime], Sequence[Hold]] = lambda now: (),
        decided: Callable[[Decision], None] = lambda decision: None,
        passed: Callable[[Seen], None] = lambda seen: None,
        births: Births | None = None,
    ) -> None:
        self._caches, self._filling, self._nominations = caches, filling, nominations
        self._away, self._allowing, self._paused, self._evacuated = away, allowing, paused, evacuated
        self._decided, self._passed = decided, passed
        self._replacements = Replacements(
            caches=caches,
            claims=claims,
            events=events,
            nominations=nominations,
            births=births or Births(MetricMeter.noop),
            now=now,
        )
        self._settings, self._grace, self._graces, self._now = settings, not_ready_grace, graces, now
        self._commands: dict[str, Command] = {}
        """By proposal id: those of the last pass, and those under way."""
        self._made: dict[str, UnderWay] = {}
        """Likewise: those that made their replacements since the last pass was asked for."""
        self._stirs = -1
        self._asked = DecideAsked()

    async def decide(self, asked: DecideAsked) -> Decided:
        """One pass. Changes nothing. Raises TryLater when there is no planner to be had."""
        self._asked, self._made = asked, {}
        seen = await self.look(asked)
        decision, now = seen.decision, seen.at
        if decision is None:
            return Decided(blocked=seen.blocked, first=asked.first, again=now + LOOK_AGAIN)
        found = proposals(decision)
        self._remember(found, asked.under_way)
        self._decided(decision)
        self._passed(seen)
        first = self._unreached(decision, asked.first, seen.stirs)
        log.info(
            "disruption decided",
            proposals=len(found),
            nodes=len(decision.nodes),
            simulations=decision.simulations,
            unreached=len(first),
            took=round(seen.seconds, 3),
        )
        return Decided(
            proposals=tuple(proposal(name, command) for name, command in found.items()),
            first=first,
            again=now + GO_ON if first else next_moment(decision, self._moments(asked, decision, now), now),
            eligible=sum(bool(one.eligible) for one in decision.nodes),
            excluded=sum(bool(one.excluded) for one in decision.nodes),
        )

    async def look(self, asked: DecideAsked | None = None) -> Seen:
        """A pass that nobody is told of; with None as it was asked last. Raises TryLater."""
        told = asked or self._asked
        async with self._filling.patience, self._filling.lock:
            process = await self._filling.fill()
            now, stirs = self._now(), self._caches.changes.stirs
            if doubt := self._filling.doubt():
                return Seen(at=now, blocked=doubt)
            request = await self._request(told.under_way, now)
            request = request.model_copy(update=self._told(told, now))
            try:
                decision, seconds = await process.disrupt(request)
            except Fault:
                await self._filling.close()
                raise
        return Seen(
            at=now,
            decision=decision,
            seconds=seconds,
            stirs=stirs,
            allowances=request.allowances,
            consuming=self._allowing.consuming(_going(told.under_way)),
        )

    async def replace(self, asked: ReplaceAsked) -> Replaced:
        """The replacements of a proposal, if it would still be decided so. A repeat answers with what it made. Raises
        TryLater."""
        wanted = asked.proposal
        async with self._filling.patience, self._filling.lock:
            earlier = await self._replacements.made(asked.plan_id, wanted.replacements)
            if earlier is not None:
                return earlier
            process = await self._filling.fill()
            if doubt := self._filling.doubt():
                return Replaced(outcome="not now", why=doubt)
            names = tuple(one.claim for one in wanted.candidates)
            request = await self._request(self._others(asked), self._now())
            # Its nodes have their permits, so that budgets were asked already.
            kept = self._kept((), (), request.now)
            told = {"only": names, "reason": wanted.reason, "allowances": Allowances(), "kept": kept}
            try:
                decision, _ = await process.disrupt(request.model_copy(update=told))
                command = next(iter(decision.commands), None)
                why = _changed(wanted, command) if command else refusal(decision, names, wanted.reason)
                if command is None or why:
                    return Replaced(outcome="stale", why=why)
                answer = await self._replacements.make(asked, command, process)
            except Fault:
                await self._filling.close()
                raise
        if answer.outcome == "made":
            self._commands[wanted.id] = command.model_copy(update={"claims": answer.claims})
            self._made[wanted.id] = UnderWay(proposal=wanted, claims=answer.claims)
        return answer

    def _others(self, asked: ReplaceAsked) -> tuple[UnderWay, ...]:
        """Commands beside this one: those that were under way when it began, which may be long ago, and those that
        have begun since."""
        told = (*asked.under_way, *self._asked.under_way, *self._made.values())
        known = {one.proposal.id: one for one in told if one.proposal.id != asked.proposal.id}
        return tuple(known.values())

    async def _request(self, under_way: Sequence[UnderWay], now: datetime) -> DisruptionRequest:
        goods = await self._filling.goods(now)
        return DisruptionRequest(
            now=now,
            nominated=tuple(self._lapses(now)),
            under_way=tuple(command_under_way(one, self._commands) for one in under_way),
            allowances=self._allowing.allowances(_going(under_way), now),
            settings=self._settings,
            unavailable=goods.unavailable,
            reservations=dict(goods.reservations),
            not_ready_grace=self._grace,
            pool_graces=dict(self._graces()),
        )

    def _told(self, asked: DecideAsked, now: datetime) -> dict[str, object]:
        """What the Cluster workflow says beyond what the cluster shows."""
        kept = self._kept((*asked.holds, *self._evacuated(now)), asked.bounced, now)
        return {"kept": kept, "unsold": unsold(asked.bounced, now), "first": asked.first}

    def _kept(
        self, holds: Sequence[Hold], bounced: Sequence[Bounced], now: datetime
    ) -> dict[str, tuple[Exclusion, ...]]:
        claims = self._caches.claims
        node_of = {name: nodes[0].name for name, one in claims.items() if (nodes := self._caches.nodes_of(one))}
        return kept_by(claims, node_of, (*holds, *self._paused(now)), bounced, now)

    def _lapses(self, now: datetime) -> dict[str, datetime | None]:
        """NodeClaims that pods are expected on, with the end of that; None: no end in sight."""
        found = {}
        for name, claim in self._caches.claims.items():
            if self._nominations.expected(name):
                ends = self._away.lapse(claim, self._nominations, now)
                if ends is None or now < ends:
                    found[name] = ends
        return found

    def _moments(self, asked: DecideAsked, decision: Decision, now: datetime) -> list[datetime | None]:
        """When time changes something that no verdict has a moment for."""
        kept_back = any(one.eligible and one.rejected for one in decision.nodes)
        holds = (*asked.holds, *self._paused(now), *self._evacuated(now))
        ends = (*(one.until for one in asked.bounced), *(one.until for one in holds))
        return [*ends, *self._lapses(now).values(), self._allowing.reopens(now) if kept_back else None]

    def _remember(self, found: Mapping[str, Command], under_way: Sequence[UnderWay]) -> None:
        busy = {one.proposal.id for one in under_way}
        kept = {name: one for name, one in self._commands.items() if name in busy}
        self._commands = {**found, **kept}

    def _unreached(self, decision: Decision, before: Sequence[str], stirs: int) -> tuple[str, ...]:
        """While nothing changes, only those that no pass of this round has reached: then the round ends."""
        changed, self._stirs = stirs != self._stirs, stirs
        if changed or not before:
            return decision.unreached
        return tuple(one for one in decision.unreached if one in before)


def _going(under_way: Sequence[UnderWay]) -> set[str]:
    """UIDs of NodeClaims that commands take away."""
    return {one.claim_uid for each in under_way for one in each.proposal.candidates}


def _changed(wanted: Proposal, command: Command) -> str:
    """What is worse now than it was proposed; empty when nothing is. Drift is replaced whatever that costs now, by as
    many nodes as were proposed; by others only where they cost no more."""
    if command.price_after <= wanted.price_after + ROUNDING:
        return ""
    costs = f"would cost {command.price_after:.4g} $/h now instead of {wanted.price_after:.4g}"
    if len(command.replacements) != wanted.replacements:
        return f"its {len(command.replacements)} replacements {costs}, and {wanted.replacements} were proposed"
    return f"its replacements {costs}" if wanted.reason == "Underutilized" else ""
