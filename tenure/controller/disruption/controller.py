"""Decides voluntary disruption and creates the replacements of commands, with one planner pass at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog
from temporalio.common import MetricMeter

from activities.ports.core import Claims, Events
from tenure.apis.feature_gates import FeatureGate
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nominations
from tenure.controller.disruption.cached_budgets import NodePoolBudgets
from tenure.controller.disruption.replacements import (
    Replacements,
    in_flight_command,
    next_wake_time,
    proposals_by_id,
    rejection_reason,
    to_proposal,
)
from tenure.controller.planning.planner_process import PlannerClient
from tenure.model.base import format_number
from tenure.model.disruption.commands import (
    ActivePause,
    CommandBackoff,
    DisruptionDecision,
    DisruptionDecisionRequest,
    InFlightCommand,
    Proposal,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.disruption.decision import (
    Command,
    Decision,
    DisruptionBudgets,
    DisruptionRequest,
    DisruptionSettings,
    Ineligibility,
)
from tenure.model.errors import Fault, Preempted
from tenure.model.nodeclaim.expiry import find_static_replacement_time
from tenure.scheduling.disruption.blocked_nodes import blocking_reasons, nodepools_in_backoff

log = structlog.get_logger(__name__)

RETRY_AFTER: Final = timedelta(seconds=10)
"""After a pass that could not run."""
CONTINUE_AFTER: Final = timedelta(seconds=2)
"""After a pass that did not reach all candidates: pending pods are planned in between."""
MAX_SIMULATIONS: Final = 120
"""Per pass. Over 500 nodes these take one to two seconds."""
MAX_CANDIDATES: Final = 100
PREEMPTION_LIMIT: Final = timedelta(seconds=10)
"""After this time a requested pass runs to its end, so that pods which keep arriving do not stop disruption."""
ROUNDING: Final = 1e-6
"""US dollars per hour."""


def make_disruption_settings(gates: Collection[str]) -> DisruptionSettings:
    """`gates`: the enabled feature gates."""
    return DisruptionSettings(
        spot_to_spot=FeatureGate.SPOT_TO_SPOT in gates,
        terminate_first_drift=FeatureGate.TERMINATE_FIRST_DRIFT in gates,
        terminate_first_repair=FeatureGate.TERMINATE_FIRST_REPAIR in gates,
        most_simulations=MAX_SIMULATIONS,
        most_candidates=MAX_CANDIDATES,
    )


@dataclass(frozen=True, slots=True)
class DisruptionPass:
    at: datetime
    decision: Decision | None = None
    blocked: str = ""
    """Why there is no decision."""
    seconds: float = 0.0
    disruption_changes: int = 0
    allowed_disruptions: DisruptionBudgets = field(default_factory=DisruptionBudgets)
    consuming: Mapping[str, int] = field(default_factory=dict)
    """Nodes that consume budgets, by NodePool."""


class DisruptionController:
    """`paused`: pauses by annotations; `early_evicted`: nodes that are evicted before AWS reclaims them. `on_passed`
    receives every pass with a decision."""

    def __init__(
        self,
        *,
        cache: ClusterCache,
        planner_client: PlannerClient,
        nominations: Nominations,
        not_ready: NotReadyTracker,
        budgets: NodePoolBudgets,
        claims: Claims,
        events: Events,
        settings: DisruptionSettings,
        not_ready_grace: timedelta,
        not_ready_grace_periods: Callable[[], Mapping[str, timedelta]],
        expiry_jitters: Callable[[], Mapping[str, float]] = dict,
        now: Callable[[], datetime],
        paused: Callable[[datetime], Sequence[ActivePause]] = lambda now: (),
        early_evicted: Callable[[datetime], Sequence[ActivePause]] = lambda now: (),
        on_passed: Callable[[DisruptionPass, Decision], None] = lambda disruption_pass, decision: None,
        meter: MetricMeter = MetricMeter.noop,
    ) -> None:
        self._cache, self._planner_client, self._nominations = cache, planner_client, nominations
        self._not_ready, self._budgets, self._paused, self._early_evicted = not_ready, budgets, paused, early_evicted
        self._on_passed = on_passed
        self.last_pass_seconds = 0.0
        self._replacements = Replacements(
            cache=cache,
            claims=claims,
            events=events,
            nominations=nominations,
            meter=meter,
            now=now,
            check_lease=planner_client.check_lease,
        )
        self._settings, self._grace, self._now = settings, not_ready_grace, now
        self._not_ready_grace_periods, self._expiry_jitters = not_ready_grace_periods, expiry_jitters
        self._commands: dict[str, Command] = {}
        """By proposal ID: commands of the last pass, and commands in flight."""
        self._launched: dict[str, InFlightCommand] = {}
        """By proposal ID: commands whose replacements were created since the last pass was requested."""
        self._disruption_changes = -1
        self._last_request = DisruptionDecisionRequest()

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        """Run one pass, which changes nothing in the cluster. Raises TryLater when no planner is available."""
        self._last_request, self._launched = request, {}
        disruption_pass = await self.evaluate(request)
        decision, now = disruption_pass.decision, disruption_pass.at
        if decision is None:
            return DisruptionDecision(
                blocked=disruption_pass.blocked, first=request.first, next_pass_at=now + RETRY_AFTER
            )
        found = proposals_by_id(decision)
        self._store_commands(found, request.under_way)
        self.last_pass_seconds = disruption_pass.seconds
        self._on_passed(disruption_pass, decision)
        first = self._remaining_candidates(decision, request.first, disruption_pass.disruption_changes)
        log.info(
            "disruption decided",
            proposals=len(found),
            nodes=len(decision.nodes),
            simulations=decision.simulations,
            unreached=len(first),
            took=round(disruption_pass.seconds, 3),
        )
        return DisruptionDecision(
            proposals=tuple(to_proposal(name, command) for name, command in found.items()),
            first=first,
            next_pass_at=now + CONTINUE_AFTER
            if first
            else next_wake_time(decision, self._wake_times(request, decision, now), now),
            eligible=sum(bool(one.eligible) for one in decision.nodes),
            excluded=sum(bool(one.excluded) for one in decision.nodes),
        )

    async def evaluate(self, decide_request: DisruptionDecisionRequest | None = None) -> DisruptionPass:
        """Run a pass without storing its commands; `decide_request` None repeats the last request. Raises TryLater.

        Plans of pods preempt the pass within `PREEMPTION_LIMIT`."""
        effective_request, preemptible_until = decide_request or self._last_request, self._now() + PREEMPTION_LIMIT
        while True:
            with suppress(Preempted):
                return await self._run_pass(effective_request, preemptible=self._now() < preemptible_until)

    async def _run_pass(self, effective_request: DisruptionDecisionRequest, *, preemptible: bool) -> DisruptionPass:
        async with self._planner_client.background_lock, self._planner_client.lock:
            process = await self._planner_client.sync()
            now, disruption_changes = self._now(), self._cache.planner_changes.disruption_changes
            if blocked_reason := self._planner_client.blocked_reason():
                return DisruptionPass(at=now, blocked=blocked_reason)
            request = await self._build_request(effective_request.under_way, now)
            updates = self._request_updates(effective_request, now) | {"preemptible": preemptible}
            request = request.model_copy(update=updates)
            if preemptible and self._planner_client.waiting_plans:
                raise Preempted
            try:
                decision, seconds = await process.disrupt(request)
            except Fault:
                await self._planner_client.close()
                raise
        return DisruptionPass(
            at=now,
            decision=decision,
            seconds=seconds,
            disruption_changes=disruption_changes,
            allowed_disruptions=request.allowed_disruptions,
            consuming=self._budgets.count_consuming(_disrupted_uids(effective_request.under_way)),
        )

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult:
        """Create the replacements of a proposal, if it would still be decided. A repeated request returns the earlier
        result. Raises TryLater."""
        proposal = replace_request.proposal
        async with self._planner_client.background_lock, self._planner_client.lock:
            earlier = await self._replacements.find_existing(replace_request.plan_id)
            if earlier is not None:
                return earlier
            process = await self._planner_client.sync()
            if blocked_reason := self._planner_client.blocked_reason():
                return ReplacementResult(outcome="not now", why=blocked_reason)
            names = tuple(one.claim for one in proposal.candidates)
            request = await self._build_request(self._other_commands(replace_request), self._now())
            # The candidates have permits, so budgets were checked before.
            ineligible = self._ineligible_nodes((), (), request.now)
            updates = {
                "only": names,
                "reason": proposal.reason,
                "allowed_disruptions": DisruptionBudgets(),
                "ineligible": ineligible,
            }
            try:
                decision, _ = await process.disrupt(request.model_copy(update=updates))
                command = next(iter(decision.commands), None)
                why = (
                    _worsened_reason(proposal, command)
                    if command
                    else rejection_reason(decision, names, proposal.reason)
                )
                if command is None or why:
                    return ReplacementResult(outcome="stale", why=why)
                result = await self._replacements.create_all(replace_request, command, process)
            except Fault:
                await self._planner_client.close()
                raise
        if result.outcome == "made":
            self._commands[proposal.id] = command.model_copy(update={"claims": result.claims})
            self._launched[proposal.id] = InFlightCommand(proposal=proposal, claims=result.claims)
        return result

    def _other_commands(self, request: ReplacementRequest) -> tuple[InFlightCommand, ...]:
        """Commands other than this one: those in flight when it began, which may be long ago, and later ones."""
        in_flight = (*request.under_way, *self._last_request.under_way, *self._launched.values())
        known = {one.proposal.id: one for one in in_flight if one.proposal.id != request.proposal.id}
        return tuple(known.values())

    async def _build_request(self, under_way: Sequence[InFlightCommand], now: datetime) -> DisruptionRequest:
        planning_inputs = await self._planner_client.read_planning_inputs(now)
        return DisruptionRequest(
            now=now,
            nominated=tuple(self._nomination_expiries(now)),
            under_way=tuple(in_flight_command(one, self._commands) for one in under_way),
            allowed_disruptions=self._budgets.allowed_disruptions(_disrupted_uids(under_way), now),
            settings=self._settings,
            unavailable=planning_inputs.unavailable,
            reservations=dict(planning_inputs.reservations),
            not_ready_grace=self._grace,
            not_ready_grace_by_pool=dict(self._not_ready_grace_periods()),
            expiry_jitter_by_pool=dict(self._expiry_jitters()),
        )

    def _request_updates(self, request: DisruptionDecisionRequest, now: datetime) -> dict[str, object]:
        ineligible = self._ineligible_nodes((*request.blockers, *self._early_evicted(now)), request.backoffs, now)
        return {"ineligible": ineligible, "unsold": nodepools_in_backoff(request.backoffs, now), "first": request.first}

    def _ineligible_nodes(
        self, holds: Sequence[ActivePause], backoffs: Sequence[CommandBackoff], now: datetime
    ) -> dict[str, tuple[Ineligibility, ...]]:
        claims = self._cache.nodeclaims
        node_of = {name: nodes[0].name for name, one in claims.items() if (nodes := self._cache.nodes_of(one))}
        return blocking_reasons(claims, node_of, (*holds, *self._paused(now)), backoffs, now)

    def _nomination_expiries(self, now: datetime) -> dict[str, datetime | None]:
        """When the last nomination to each NodeClaim ends; None without a known end."""
        found = {}
        for name, claim in self._cache.nodeclaims.items():
            if self._nominations.is_expecting(name):
                ends = self._not_ready.last_expiry(claim, self._nominations, now)
                if ends is None or now < ends:
                    found[name] = ends
        return found

    def _wake_times(
        self, request: DisruptionDecisionRequest, decision: Decision, now: datetime
    ) -> list[datetime | None]:
        """Times at which a decision may change, apart from the `until` of each verdict."""
        has_rejected = any(one.eligible and one.rejected for one in decision.nodes)
        holds = (*request.blockers, *self._paused(now), *self._early_evicted(now))
        ends = (*(one.until for one in request.backoffs), *(one.until for one in holds))
        return [
            *ends,
            *self._nomination_expiries(now).values(),
            *self._static_replacement_times(),
            self._budgets.next_opening(now) if has_rejected else None,
            self._planner_client.all_available_at(now) if has_rejected else None,
        ]

    def _static_replacement_times(self) -> Iterator[datetime | None]:
        """When static NodePools may replace their nodes before they expire."""
        jitters = self._expiry_jitters()
        for one in self._cache.nodeclaims.values():
            view = self._cache.nodepools.get(one.pool)
            if view is not None and view.fact.static:
                yield find_static_replacement_time(one, jitters)

    def _store_commands(self, found: Mapping[str, Command], under_way: Sequence[InFlightCommand]) -> None:
        busy = {one.proposal.id for one in under_way}
        in_flight = {name: one for name, one in self._commands.items() if name in busy}
        self._commands = {**found, **in_flight}

    def _remaining_candidates(
        self, decision: Decision, before: Sequence[str], disruption_changes: int
    ) -> tuple[str, ...]:
        """Without a change, only candidates that no pass of this round has reached, so that the round ends."""
        changed, self._disruption_changes = disruption_changes != self._disruption_changes, disruption_changes
        if changed or not before:
            return decision.unreached
        return tuple(one for one in decision.unreached if one in before)


def _disrupted_uids(under_way: Sequence[InFlightCommand]) -> set[str]:
    return {one.claim_uid for each in under_way for one in each.proposal.candidates}


def _worsened_reason(proposal: Proposal, command: Command) -> str:
    """Why the command is worse than its proposal; empty if it is not. A higher price counts for Underutilized, and for
    any reason when the number of replacements changed."""
    if command.price_after <= proposal.price_after + ROUNDING:
        return ""
    costs = f"would cost {format_number(command.price_after)} $/h now instead of {format_number(proposal.price_after)}"
    if len(command.replacements) != proposal.replacements:
        return f"its {len(command.replacements)} replacements {costs}, and {proposal.replacements} were proposed"
    return f"its replacements {costs}" if proposal.reason == "Underutilized" else ""
