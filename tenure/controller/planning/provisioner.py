"""One pass of planning: bring the planner up to date, plan, create the NodeClaims, remember who is expected where.

The Provisioning workflow asks for it through `host.py`, and freezes and launches the groups that it answers with.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import structlog
from temporalio.common import MetricMeter

from activities.ports.core import Claims, Events, Offerings
from activities.runtime import each
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import format_amount
from tenure.controller.cache.availability import Away, is_settled
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import Nominations
from tenure.controller.capacity_buffers import Buffers
from tenure.controller.disruption.status import OverlayVerdicts
from tenure.controller.metrics.planner import Births, PlanMeasures
from tenure.controller.planning.nodeclaim_factory import (
    claim_names,
    dealt,
    drafts,
    group_ids,
    node_claim,
    within_limits,
)
from tenure.controller.planning.planner_process import Filling, PlannerProcess
from tenure.controller.planning.replanning import Overruled, Sizes
from tenure.controller.signals.pending_pods import place_of, wanting
from tenure.kube.facts.objects import claim_fact
from tenure.model.errors import Fault
from tenure.model.provisioning import Plan, PlannedClaim, PlanOutcome, PlanRequest, Unplaced
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change

log = structlog.get_logger(__name__)

MOST_EVENTS: Final = 100
"""FailedScheduling events of one pass."""


class Planning:
    """Fills the planner process and owns it. `plan` is called for one request at a time; `feed` between plans."""

    def __init__(
        self,
        *,
        caches: Caches,
        nominations: Nominations,
        away: Away,
        claims: Claims,
        events: Events,
        offerings: Offerings,
        settings: PlanSettings,
        not_ready_grace: timedelta,
        now: Callable[[], datetime],
        verdicts: OverlayVerdicts | None = None,
        buffers: Buffers | None = None,
        measures: PlanMeasures | None = None,
        births: Births | None = None,
        graces: Callable[[], Mapping[str, timedelta]] = dict,
    ) -> None:
        """`graces`: by NodePool, where its nodes have another grace than `not_ready_grace`."""
        self.filling = Filling(
            caches=caches, offerings=offerings, events=events, settings=settings, now=now, verdicts=verdicts
        )
        self.catalogue, self.learning = self.filling.catalogue, self.filling.learning
        self._buffers, self._caches, self._nominations = buffers, caches, nominations
        self._measures = measures or PlanMeasures(MetricMeter.noop)
        self._births = births or Births(MetricMeter.noop)
        self._overruled = Overruled(caches, away, events)
        self._claims, self._events = claims, events
        self.sizes = Sizes(caches, nominations, self.learning, began=now())
        self._grace, self._graces, self._now = not_ready_grace, graces, now
        self.storm: Callable[[datetime], datetime | None] = lambda now: None
        """Until when so many nodes are taken back that what is bought is spread."""
        self.passes = 0

    async def close(self) -> None:
        await self.filling.close()

    async def feed(self) -> None:
        """Hand over what changed, so that little is left to do when a plan is asked for. Raises TryLater."""
        async with self.filling.lock:
            process = await self.filling.fill()
            if self._buffers and self._buffers.due(self.filling.moved):
                self.filling.moved = False
                await self._look(self._buffers, process)

    async def _look(self, buffers: Buffers, process: PlannerProcess) -> None:
        """At what stands, whatever can be bought."""
        grace, graces = self._grace, self._graces()
        try:
            await buffers.look(
                lambda: process.provision(
                    now=self._now(), unavailable=(), not_ready_grace=grace, pool_graces=graces, reservations={}
                )
            )
        except Fault:
            await self.close()
            raise

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """Raises TryLater when there is no planner to be had."""
        async with self.filling.lock:
            self.learning.heed(request.learnt)
            self.filling.marks = request.unavailable
            made = self._made_for(request.plan_id)
            if made:
                return await self._again(request.plan_id, made)
            process = await self.filling.fill()
            now = self._now()
            if doubt := self.filling.doubt():
                return PlanOutcome(plan_id=request.plan_id, blocked=doubt, planned_at=now)
            if not self._caches.buffers and not any(True for _ in wanting(self._caches, now)):
                self.passes += 1
                self._measures.nothing_pending()
                return PlanOutcome(plan_id=request.plan_id, planned_at=now)
            try:
                goods = await self.filling.goods(now)
                plan = await process.provision(
                    now=now,
                    unavailable=goods.unavailable,
                    not_ready_grace=self._grace,
                    pool_graces=self._graces(),
                    reservations=goods.reservations,
                )
                return await self._carry_out(request, plan, process)
            except Fault:
                await self.close()
                raise

    def _made_for(self, plan_id: str) -> list[str]:
        """A try of the same plan that was cut off, here or elsewhere, left these."""
        return [name for name, claim in self._caches.claims.items() if claim.annotations.get(labels.PLAN) == plan_id]

    async def _again(self, plan_id: str, names: Sequence[str]) -> PlanOutcome:
        found = await asyncio.gather(*(self._claims.get(name) for name in names))
        alive = [claim for claim in found if claim is not None]
        return PlanOutcome(plan_id=plan_id, drafts=drafts(alive), created=len(alive), planned_at=self._now())

    async def _carry_out(self, request: PlanRequest, plan: Plan, process: PlannerProcess) -> PlanOutcome:
        plan_id = request.plan_id
        allowed, refused = await within_limits(plan.claims, self._caches, self._claims)
        names = claim_names(plan_id, allowed)
        planned = dict(zip(names, allowed, strict=True))
        await process.commit(planned, now=self._now())
        made = await self._create(plan_id, planned, spread=self._storms(request))
        await self._take_back(process, set(names) - {claim.name for claim in made})
        left = self._expected_of(plan)
        answered = self._nominate(plan, {claim.name: planned[claim.name] for claim in made})
        unplaced = (*plan.unplaced, *refused)
        self._nominations.unplaced((one.pod_uid for one in unplaced), self._now())
        await self._say(answered, unplaced)
        await self._overruled.say({claim.pool for claim in allowed}, left, self._now())
        await self._say_short()
        self.passes += 1
        self._measures.planned(plan.seconds, len(unplaced))
        log.info(
            "planned",
            plan=plan_id,
            created=len(made),
            nominated=len(answered),
            unplaced=len(unplaced),
            took=plan.seconds,
        )
        return PlanOutcome(
            plan_id=plan_id,
            drafts=drafts(made),
            created=len(made),
            nominated=len(answered),
            unplaced=len(unplaced),
            planned_at=self._now(),
        )

    def _storms(self, request: PlanRequest) -> bool:
        """As far as is known here, or was known to the worker before."""
        now = self._now()
        return any(until is not None and now < until for until in (self.storm(now), request.storm))

    async def _create(self, plan_id: str, planned: Mapping[str, PlannedClaim], *, spread: bool) -> list[NodeClaim]:
        ones = list(planned.values())
        slices = dealt(ones, self._zones_of) if spread else [None] * len(ones)
        groups = group_ids(plan_id, ones, slices)
        launches = dict(zip(planned, zip(groups, slices, strict=True), strict=True))

        async def create(name: str) -> NodeClaim | None:
            group, part = launches[name]
            wanted = node_claim(planned[name], name=name, plan_id=plan_id, group_id=group, pool_slice=part)
            made = await self._made(wanted)
            if made is not None:
                self._births.count(made)
                self._caches.expect(claim_fact(made.to_object()))
            return made

        made = await each(planned, create)
        return [claim for claim in made if claim is not None]

    async def _made(self, wanted: NodeClaim) -> NodeClaim | None:
        """Also where its creation had no answer: without a launch group it would wait until its launch deadline."""
        try:
            return await self._claims.create(wanted)
        except Fault as fault:
            with suppress(Fault):
                if fault.retryable and (there := await self._claims.get(wanted.name)):
                    return there
            log.error("NodeClaim not created", name=wanted.name, fault=str(fault))
            return None

    def _zones_of(self, node_class: str) -> list[str]:
        known = self._caches.node_classes.get(node_class)
        return sorted({subnet.zone for subnet in known.status.subnets}) if known else []

    async def _take_back(self, process: PlannerProcess, names: set[str]) -> None:
        """What was announced and could not be created must not count as room."""
        if names:
            await process.apply([Change(kind="claim", key=name, fact=None) for name in sorted(names)])

    def _expected_of(self, plan: Plan) -> set[str]:
        """Where the pods of this plan were expected until now."""
        unplaced = (one.pod_uid for one in plan.unplaced)
        pods = (*plan.nominations, *(pod for claim in plan.claims for pod in claim.pods), *unplaced)
        return {found.target for pod in pods if (found := self._nominations.of(pod))}

    def _nominate(self, plan: Plan, made: Mapping[str, PlannedClaim]) -> dict[str, str]:
        """Pod UID to the Node or NodeClaim where it is expected now."""
        answered = {pod: place_of(target, self._caches) for pod, target in plan.nominations.items()}
        answered.update({pod: name for name, claim in made.items() for pod in claim.pods})
        # Some were bound or deleted while the plan was made, and nobody will say so again.
        here = {pod: place for pod, place in answered.items() if not is_settled(self._caches, pod)}
        self._nominations.renew(here, self._now())
        return answered

    async def _say(self, answered: Mapping[str, str], unplaced: Sequence[Unplaced]) -> None:
        for one in unplaced[:MOST_EVENTS]:
            await self._events.publish(
                kind="Pod",
                name=one.name,
                namespace=one.namespace,
                uid=one.pod_uid,
                reason="FailedScheduling",
                message=one.reason,
                warning=True,
            )
        for uid, target in answered.items():
            pod = self._caches.pods.get(uid)
            if pod is not None:
                await self._events.publish(
                    kind="Pod",
                    name=pod.name,
                    namespace=pod.namespace,
                    uid=uid,
                    reason="Nominated",
                    message=f"Pod should schedule on: {self._kind_of(target)}/{target}",
                )

    async def _say_short(self) -> None:
        """Nodes that are smaller than what was planned onto them."""
        for one in self.sizes.take()[:MOST_EVENTS]:
            await self._events.publish(
                kind="NodeClaim",
                name=one.claim,
                uid=one.uid,
                reason="SmallerThanPlanned",
                message=f"{one.place} has {format_amount(one.resource, one.has)} of {one.resource} for pods, and "
                f"{format_amount(one.resource, one.wanted)} were planned onto it: its pods are planned anew",
                warning=True,
            )

    def _kind_of(self, target: str) -> str:
        return "nodeclaim" if target in self._caches.claims else "node"
