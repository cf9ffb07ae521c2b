"""One plan: update the planner, plan, create the NodeClaims, and store on which node each pod is expected."""

import asyncio
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from temporalio.common import MetricMeter

from activities.ports.core import Claims, Events
from activities.runtime import call_for_each
from tenure import metrics
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import format_amount
from tenure.controller.cache.availability import NotReadyTracker, is_settled
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.capacity_buffers import CapacityBuffers
from tenure.controller.planning.nodeclaim_factory import (
    assign_shards,
    claim_names,
    count_created,
    group_ids,
    launch_drafts,
    pods_without_nodeclaim,
    within_limits,
)
from tenure.controller.planning.planner_process import PlannerClient, PlannerProcess
from tenure.controller.planning.pod_verdict_events import PodVerdictEvents
from tenure.controller.planning.provisioning_backoff import BackoffPass, BackoffTracker, SchedulerMessages, without_pods
from tenure.controller.planning.undersized_nodes import ExpiredGraceEvents, UndersizedNodes
from tenure.controller.signals.pending_pods import list_pods_needing_nodes
from tenure.kube.facts.objects import nodeclaim_fact
from tenure.model.errors import Fault
from tenure.model.plan import Plan, PlannedNodeClaim, PlanOutcome, PlanRequest
from tenure.scheduling.nodeclaim_template import build_nodeclaim
from tenure.scheduling.snapshot import Change

log = structlog.get_logger(__name__)

MAX_EVENTS: Final = 100
"""FailedScheduling events per plan, and SmallerThanPlanned events per synchronization of the planner."""


class Provisioner:
    """Owns the planner process and keeps it up to date. `plan` runs for one request at a time, `sync_planner` between
    plans."""

    def __init__(
        self,
        *,
        cache: ClusterCache,
        nominations: Nominations,
        not_ready: NotReadyTracker,
        expected_pods: ExpectedPods,
        verdict_events: PodVerdictEvents,
        planner_client: PlannerClient,
        claims: Claims,
        events: Events,
        not_ready_grace: timedelta,
        now: Callable[[], datetime],
        scheduler_messages: SchedulerMessages,
        buffers: CapacityBuffers | None = None,
        meter: metrics.Meter = MetricMeter.noop,
        not_ready_grace_periods: Callable[[], Mapping[str, timedelta]] = dict,
        burst_ends_at: Callable[[datetime], datetime | None] = lambda now: None,
    ) -> None:
        """`not_ready_grace_periods`: by NodePool, if they differ from `not_ready_grace`. `burst_ends_at`: end of the
        time in which new nodes are spread over offerings, because many nodes are interrupted."""
        self.planner_client, self.capacity_discovery = planner_client, planner_client.capacity_discovery
        self._buffers, self._cache, self._nominations = buffers, cache, nominations
        self._expected_pods = expected_pods
        self._meter, self._burst_ends_at = meter, burst_ends_at
        self._duration = metrics.SCHEDULER_SCHEDULING_DURATION.bind(meter)
        self._unschedulable_pods = metrics.SCHEDULER_UNSCHEDULABLE_PODS_COUNT.bind(meter)
        self._expired_grace_events = ExpiredGraceEvents(cache, not_ready, events)
        self._claims, self._events, self._verdict_events = claims, events, verdict_events
        self.undersized_nodes = UndersizedNodes(cache, nominations, self.capacity_discovery, began=now())
        self.backoff_tracker = BackoffTracker(cache, nominations, not_ready, scheduler_messages, meter, began=now())
        self._grace, self._not_ready_grace_periods, self._now = not_ready_grace, not_ready_grace_periods, now
        self.passes = 0

    async def close(self) -> None:
        await self.planner_client.close()
        self._unschedulable_pods.record(0, controller="provisioner")

    async def preload_planner(self) -> None:
        """Send the objects that are known so far. Raises TryLater."""
        async with self.planner_client.lock:
            await self.planner_client.preload()

    async def sync_planner(self) -> None:
        """Send changes to the planner, so that little remains to be done when a plan is requested. Raises TryLater.

        Shortfalls are reported here, since after a restart no plan may follow."""
        await self._publish_undersized()
        async with self.planner_client.lock:
            process = await self.planner_client.sync()
            if self._buffers and self._buffers.is_check_due(self.planner_client.has_changed):
                self.planner_client.has_changed = False
                await self._check_buffers(self._buffers, process)

    async def _check_buffers(self, buffers: CapacityBuffers, process: PlannerProcess) -> None:
        """Check buffers against existing nodes, without regard to unavailable offerings."""
        grace, not_ready_grace_periods = self._grace, self._not_ready_grace_periods()
        try:
            await buffers.check_headroom(
                lambda: process.provision(
                    now=self._now(),
                    unavailable=(),
                    not_ready_grace=grace,
                    pool_graces=not_ready_grace_periods,
                    reservations={},
                )
            )
        except Fault:
            await self.planner_client.close()
            raise

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """Raises TryLater when no planner is available."""
        async with self.planner_client.lock_for_plan():
            self.capacity_discovery.apply_stored(request.discovered)
            self.planner_client.unavailable_offerings = request.unavailable
            existing = self._find_existing(request.plan_id)
            if existing:
                return await self._resume_plan(request.plan_id, existing)
            if self.passes == 0:
                self._cache.restore_released(request.released)
            self._expected_pods.release_unbound(self._now())
            process = await self.planner_client.sync()
            now = self._now()
            self._nominations.blocked_reason = blocked_reason = self.planner_client.blocked_reason()
            if blocked_reason:
                return PlanOutcome(plan_id=request.plan_id, blocked=blocked_reason)
            if not self._cache.buffers and not any(True for _ in list_pods_needing_nodes(self._cache, now)):
                self.passes += 1
                self._unschedulable_pods.record(0, controller="provisioner")
                return PlanOutcome(
                    plan_id=request.plan_id,
                    backoffs=without_pods(request.backoffs),
                    released=self._cache.list_released(),
                )
            try:
                backoff = await self.backoff_tracker.begin(request.backoffs, now)
                planning_inputs = await self.planner_client.read_planning_inputs(now)
                plan = await process.provision(
                    now=now,
                    unavailable=planning_inputs.unavailable,
                    not_ready_grace=self._grace,
                    pool_graces=self._not_ready_grace_periods(),
                    reservations=planning_inputs.reservations,
                    launch_blockers=backoff.launch_blockers,
                )
                return await self._execute_plan(request, plan, process, backoff)
            except Fault:
                await self.planner_client.close()
                raise

    def _find_existing(self, plan_id: str) -> list[str]:
        return [name for name, claim in self._cache.nodeclaims.items() if claim.annotations.get(labels.PLAN) == plan_id]

    async def _resume_plan(self, plan_id: str, names: Sequence[str]) -> PlanOutcome:
        found = await asyncio.gather(*(self._claims.get(name) for name in names))
        alive = [claim for claim in found if claim is not None]
        return PlanOutcome(plan_id=plan_id, drafts=launch_drafts(alive), created=len(alive))

    async def _execute_plan(
        self, request: PlanRequest, plan: Plan, process: PlannerProcess, backoff: BackoffPass
    ) -> PlanOutcome:
        plan_id = request.plan_id
        allowed, rejected = await within_limits(plan.claims, self._cache, self._claims)
        backoffs = self.backoff_tracker.finish(backoff, plan, allowed)
        names = claim_names(plan_id, allowed)
        planned = dict(zip(names, allowed, strict=True))
        await process.commit(planned, now=self._now())
        made, faults = await self._create(plan_id, planned, backoff, spread=self._in_interruption_burst(request))
        await self._retract_nodeclaims(process, faults)
        if self._buffers:
            self._buffers.assign({pod: claim.name for claim in made for pod in planned[claim.name].virtual_pods})
        vacated = self._nominated_targets(plan)
        nominated = self._update_nominations(plan, {claim.name: planned[claim.name] for claim in made})
        for name, fault in faults.items():
            rejected += pods_without_nodeclaim(name, planned[name], fault, self._cache)
        unschedulable = (*plan.unschedulable, *rejected)
        self._nominations.remove_unschedulable(unschedulable, self._now())
        await self._verdict_events.publish([one.pod_uid for one in unschedulable[:MAX_EVENTS]])
        await self._verdict_events.publish(uid for uid in nominated if self._nominations.nomination_of(uid))
        await self._expired_grace_events.publish({claim.pool for claim in allowed}, vacated, self._now())
        self.passes += 1
        self._duration.record(plan.seconds, controller="provisioner")
        self._unschedulable_pods.record(len(unschedulable), controller="provisioner")
        log.info(
            "planned",
            plan=plan_id,
            created=len(made),
            nominated=len(nominated),
            unplaced=len(unschedulable),
            took=plan.seconds,
        )
        return PlanOutcome(
            plan_id=plan_id,
            drafts=launch_drafts(made),
            created=len(made),
            nominated=len(nominated),
            unschedulable=len(unschedulable),
            backoffs=backoffs,
            released=self._cache.list_released(),
        )

    def _in_interruption_burst(self, request: PlanRequest) -> bool:
        """As observed by this process, or by an earlier host according to the request."""
        now = self._now()
        return any(until is not None and now < until for until in (self._burst_ends_at(now), request.burst_ends_at))

    async def _create(
        self, plan_id: str, planned: Mapping[str, PlannedNodeClaim], backoff: BackoffPass, *, spread: bool
    ) -> tuple[list[NodeClaim], dict[str, Fault]]:
        """The created NodeClaims and, by name, why the others were not created. Raises TryLater."""
        ones = list(planned.values())
        shards = assign_shards(ones, self._zones_of) if spread else [None] * len(ones)
        groups = group_ids(plan_id, ones, shards)
        launches = dict(zip(planned, zip(groups, shards, strict=True), strict=True))
        faults: dict[str, Fault] = {}

        async def create(name: str) -> NodeClaim | None:
            group, shard = launches[name]
            nodeclaim = build_nodeclaim(
                planned[name],
                name=name,
                plan_id=plan_id,
                group_id=group,
                offering_shard=shard,
                pod_groups=self.backoff_tracker.annotation_of(planned[name], backoff.groups),
            )
            try:
                made = await self._create_nodeclaim(nodeclaim)
            except Fault as fault:
                log.error("NodeClaim not created", name=name, fault=str(fault))
                faults[name] = fault
                return None
            count_created(self._meter, made)
            self._cache.assume_nodeclaim(nodeclaim_fact(made.to_object()))
            return made

        made = [one for one in await call_for_each(planned, create) if one is not None]
        return made, faults

    async def _create_nodeclaim(self, nodeclaim: NodeClaim) -> NodeClaim:
        """A NodeClaim whose creation got no response is read: if it exists and were left out of its launch group, it
        would launch about a minute later. Raises Fault."""
        self.planner_client.check_lease()
        try:
            return await self._claims.create(nodeclaim)
        except Fault as fault:
            with suppress(Fault):
                if fault.retryable and (existing := await self._claims.get(nodeclaim.name)):
                    return existing
            raise

    def _zones_of(self, node_class: str) -> list[str]:
        known = self._cache.nodeclasses.get(node_class)
        return sorted({subnet.zone for subnet in known.status.subnets}) if known else []

    async def _retract_nodeclaims(self, process: PlannerProcess, names: Collection[str]) -> None:
        """NodeClaims that the planner knows but that were not created must not count as capacity."""
        if names:
            await process.apply([Change(kind="claim", key=name, fact=None) for name in sorted(names)])

    def _nominated_targets(self, plan: Plan) -> set[str]:
        unschedulable = (one.pod_uid for one in plan.unschedulable)
        pods = (*plan.nominations, *(pod for claim in plan.claims for pod in claim.pods), *unschedulable)
        return {found.target for pod in pods if (found := self._nominations.nomination_of(pod))}

    def _update_nominations(self, plan: Plan, made: Mapping[str, PlannedNodeClaim]) -> dict[str, str]:
        """Returns pod UID to the Node or NodeClaim on which the pod is now expected."""
        nominated = {pod: self._cache.nomination_target(target) for pod, target in plan.nominations.items()}
        nominated.update({pod: name for name, claim in made.items() for pod in claim.pods})
        # Some were bound or deleted during planning, and no later event will report that.
        unsettled = {pod: destination for pod, destination in nominated.items() if not is_settled(self._cache, pod)}
        now = self._now()
        is_first_pass = self.passes == 0
        since = self._expected_pods.nominated_since(unsettled, now) if is_first_pass else {}
        self._nominations.nominate(unsettled, now, since)
        self._nominations.forget_other_targets(ChainMap[str, Any](self._cache.nodeclaims, self._cache.nodes))
        if is_first_pass:
            self._expected_pods.release_unbound(now)
        return nominated

    async def _publish_undersized(self) -> None:
        """Publish events for nodes that are smaller than planned."""
        for one in self.undersized_nodes.drain_shortfalls()[:MAX_EVENTS]:
            await self._events.publish(
                kind="NodeClaim",
                name=one.claim,
                uid=one.uid,
                reason="SmallerThanPlanned",
                message=f"{one.subject} has {format_amount(one.resource, one.available)} of {one.resource} "
                "for pods, and "
                f"{format_amount(one.resource, one.required)} were planned onto it: its pods are rescheduled",
            )
