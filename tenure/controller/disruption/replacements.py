"""Converts the planner's commands to proposals of workflows, and creates the NodeClaims that replace candidates.

The host stores each complete command by its proposal ID. The plan ID determines the names of the replacements; either
all of them are created or none. No Provisioning plan contains them, so they join launch groups of similar NodeClaims.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog
from temporalio.common import MetricMeter

from activities.ports.core import Claims, Events, publish_event_on
from tenure.apis import labels
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.nodeclaim_factory import claim_names, count_created, within_limits
from tenure.controller.planning.planner_process import PlannerProcess
from tenure.kube.facts.objects import nodeclaim_fact
from tenure.model.disruption.commands import InFlightCommand, Proposal, ReplacementRequest, ReplacementResult
from tenure.model.disruption.decision import Command, CommandCandidate, Decision, Method, NodeVerdict
from tenure.model.errors import Fault
from tenure.model.facts import NodeClaimFact
from tenure.model.nodeclaim.names import make_nodeclaim_name
from tenure.model.plan import PlannedNodeClaim
from tenure.scheduling.nodeclaim_template import build_nodeclaim
from tenure.scheduling.snapshot import Change

EXECUTED_METHODS: Final[frozenset[Method]] = frozenset({"Unhealthy", "Expired", "Drifted", "Underutilized"})
"""Empty nodes request their permits themselves."""
MAX_PROPOSALS: Final = 100
"""Per pass: workflows have them in their state."""
_ID_LENGTH: Final = 12
_MAX_MESSAGE_LENGTH: Final = 300
"""Characters of a rejection reason."""


def proposal_id(reason: Method, candidates: Iterable[CommandCandidate]) -> str:
    """An ID derived from the nodes and the reason. A repeated proposal has the same ID."""
    text = "/".join((reason, *sorted(one.claim_uid for one in candidates)))
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]


def proposals_by_id(decision: Decision) -> dict[str, Command]:
    found = [one for one in decision.commands if one.reason in EXECUTED_METHODS][:MAX_PROPOSALS]
    return {proposal_id(one.reason, one.candidates): one for one in found}


def to_proposal(name: str, command: Command) -> Proposal:
    """After a deletion without a replacement, the NodePool launches the missing node itself."""
    launching = command.candidates if command.terminate_first else command.replacements
    return Proposal(
        id=name,
        reason=command.reason,
        kind=command.kind,
        candidates=command.candidates,
        replacements=len(command.replacements),
        replacement_pools=tuple(sorted({one.pool for one in launching})),
        price_before=command.price_before,
        price_after=command.price_after,
        terminate_first=command.terminate_first,
        why=command.why,
    )


def in_flight_command(one: InFlightCommand, known: Mapping[str, Command]) -> Command:
    """The command as decided. If another process decided it, it has no moves, and the planner computes them again."""
    command = known.get(one.proposal.id)
    if command is not None and one.claims in ((), command.claims):
        return command
    proposal = one.proposal
    return Command(
        reason=proposal.reason,
        kind=proposal.kind,
        candidates=proposal.candidates,
        claims=one.claims,
        price_before=proposal.price_before,
        price_after=proposal.price_after,
        terminate_first=proposal.terminate_first,
        why=proposal.why,
    )


def rejection_reason(decision: Decision, names: Sequence[str], reason: Method) -> str:
    """Text that explains why these NodeClaims no longer qualify together for this reason."""
    verdicts = {one.claim: one for one in decision.nodes}
    deleted = [name for name in names if name not in verdicts]
    if deleted:
        return f"NodeClaim {deleted[0]} is gone"
    found = ((one, _ineligibility_reason(one, reason)) for one in map(verdicts.__getitem__, names))
    details = [f"{one.node or one.claim}: {detail}" for one, detail in found if detail]
    return ("; ".join(details) or "the decision no longer holds")[:_MAX_MESSAGE_LENGTH]


def _ineligibility_reason(one: NodeVerdict, reason: Method) -> str:
    return next(
        (ineligibility.message for ineligibility in one.excluded if reason in ineligibility.methods), ""
    ) or next(iter(one.rejected), "")


def next_wake_time(decision: Decision, times: Iterable[datetime | None], now: datetime) -> datetime | None:
    ends = [ineligibility.until for one in decision.nodes for ineligibility in one.excluded]
    return min((one for one in (*ends, *times) if one is not None and now < one), default=None)


log = structlog.get_logger(__name__)


class Replacements:
    def __init__(
        self,
        *,
        cache: ClusterCache,
        claims: Claims,
        events: Events,
        nominations: Nominations,
        meter: MetricMeter,
        now: Callable[[], datetime],
        check_lease: Callable[[], None],
    ) -> None:
        """`check_lease`: of the PlannerClient."""
        self._cache, self._claims, self._events, self._check_lease = cache, claims, events, check_lease
        self._nominations, self._meter, self._now = nominations, meter, now

    async def find_existing(self, plan_id: str) -> ReplacementResult | None:
        """The result of an earlier attempt, by any process; None if there was none. Deletes an incomplete set."""
        found = [one for one in self._cache.nodeclaims.values() if one.annotations.get(labels.PLAN) == plan_id]
        if not found:
            return None
        alive = [one for one in found if not one.deleting]
        # Text, since anyone may edit an annotation. A set that no replacement confirms is incomplete.
        numbers = {one.annotations.get(labels.REPLACEMENTS, "") for one in found}
        if alive and str(len(alive)) in numbers:
            return ReplacementResult(outcome="made", claims=tuple(_in_order(alive, plan_id)))
        for one in alive:
            await self._claims.delete(one.name, one.uid)
        why = f"only {len(alive)} of {' or '.join(sorted(numbers))} replacements were created"
        return ReplacementResult(outcome="stale", why=why[:_MAX_MESSAGE_LENGTH])

    async def create_all(
        self, request: ReplacementRequest, command: Command, process: PlannerProcess
    ) -> ReplacementResult:
        """Raises TryLater when the planner fails."""
        allowed, rejected = await within_limits(command.replacements, self._cache, self._claims)
        if len(allowed) < len(command.replacements):
            return ReplacementResult(
                outcome="stale", why=rejected[0].reason if rejected else "the NodePool's limits are reached"
            )
        names = claim_names(request.plan_id, allowed)
        planned = dict(zip(names, allowed, strict=True))
        await process.commit(planned, now=self._now())
        fault = await self._create(request, planned)
        if fault is not None:
            await process.apply([Change(kind="claim", key=name, fact=None) for name in names])
            return ReplacementResult(outcome="not now", why=f"a replacement could not be created: {fault}")
        expected = {pod: name for name, claim in planned.items() for pod in claim.pods}
        before = {found.target for pod in expected if (found := self._nominations.nomination_of(pod))}
        self._nominations.nominate(expected, self._now())
        for name in {*names, *before}:
            self._cache.requeue_nodeclaim(name)
        log.info("replacements created", workflow=request.workflow_id, claims=names)
        return ReplacementResult(outcome="made", claims=tuple(names))

    async def _create(self, request: ReplacementRequest, planned: Mapping[str, PlannedNodeClaim]) -> Fault | None:
        """Returns the first fault, after deleting the replacements that were created; None on success."""
        made: list[NodeClaimFact] = []

        async def create(name: str, claim: PlannedNodeClaim) -> None:
            nodeclaim = build_nodeclaim(
                claim, name=name, plan_id=request.plan_id, replaces=request.workflow_id, replacements=len(planned)
            )
            self._check_lease()
            found = await self._claims.create(nodeclaim)
            count_created(self._meter, found, request.proposal.reason)
            made.append(nodeclaim_fact(found.to_object()))

        results = await asyncio.gather(*(create(*one) for one in planned.items()), return_exceptions=True)
        faults = [one for one in results if isinstance(one, BaseException)]
        if not faults:
            for one in made:
                self._cache.assume_nodeclaim(one)
                for reason, message in (
                    ("DisruptionLaunching", f"Launching NodeClaim: {request.proposal.reason}"),
                    ("DisruptionWaitingReadiness", "Waiting on readiness to continue disruption"),
                ):
                    await publish_event_on(self._events, "NodeClaim", one, reason, message)
            return None
        unknown = next((one for one in faults if not isinstance(one, Fault)), None)
        for one in made:
            await self._claims.delete(one.name, one.uid)
        if unknown is not None:
            raise unknown
        return next(one for one in faults if isinstance(one, Fault))


def _in_order(found: Sequence[NodeClaimFact], plan_id: str) -> list[str]:
    positions = {
        make_nodeclaim_name(one.pool, plan_id, position): position for one in found for position in range(len(found))
    }
    return sorted((one.name for one in found), key=lambda name: positions.get(name, len(found)))
