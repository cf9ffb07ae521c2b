"""One pass of voluntary disruption: a verdict for every NodeClaim, and commands that are valid together.

Karpenter's methods in Karpenter's order (reference 4.1; 1.15, section 3.1): repair, empty nodes, drift, several
underutilized nodes, single ones. Before drift, static NodePools replace nodes that expire soon. Karpenter ends a pass
with the first command. Here each command is applied, and the search continues.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tenure.model.disruption.decision import Command, CommandKind, Decision, DisruptionRequest, Method, NodeVerdict
from tenure.model.facts import PodFact
from tenure.model.invalid_objects import Guard, no_guard
from tenure.model.plan import Plan
from tenure.scheduling.disruption.budget_usage import BudgetTracker
from tenure.scheduling.disruption.candidates import Candidate, CandidateEvaluator, ignore_preemption, is_repair_due
from tenure.scheduling.disruption.cluster_snapshot import ClusterSnapshot
from tenure.scheduling.disruption.commands import COMMAND_KINDS, apply_in_flight_command, build_command
from tenure.scheduling.disruption.consolidation import (
    Consolidation,
    add_rejection,
    compute_pool_totals,
    price_per_disruption_order,
)
from tenure.scheduling.disruption.eligibility import is_within_consolidate_after
from tenure.scheduling.disruption.replacement import Replacement
from tenure.scheduling.disruption.replacement_pass import ReplacementMethod, ReplacementPass
from tenure.scheduling.disruption.static_replacements import StaticReplacements
from tenure.scheduling.nodepool_template import NodePoolTemplate, RejectionReason, ReservationTracker
from tenure.scheduling.packing.planning_pass import PassInputs, PassSettings
from tenure.scheduling.packing.pod_requirements import PodShape


@dataclass(frozen=True)
class DisruptionContext:
    """The cluster of `tenure/scheduling/cluster_state.py`, and the plan for pending pods."""

    inputs: PassInputs
    pass_settings: PassSettings
    templates: Mapping[str, NodePoolTemplate | RejectionReason]
    get_shape: Callable[[PodFact], PodShape]
    plan: Plan
    waiting: Mapping[str, PodFact]
    """Pending pods by UID, including virtual pods of CapacityBuffers."""
    virtual: frozenset[str] = frozenset()
    guard: Guard = no_guard
    check_preempted: Callable[[], None] = ignore_preemption
    """Called before each node, each command in flight and each simulation. Raises `Preempted` to end the pass."""


def decide_disruption(context: DisruptionContext, request: DisruptionRequest) -> Decision:
    """A pure function of its arguments. Raises `Preempted`."""
    evaluator = CandidateEvaluator(
        context.inputs.facts,
        context.templates,
        request,
        _expected_pods_by_node(context),
        context.virtual,
        context.guard,
        context.check_preempted,
    )
    return _DisruptionPass(context, request, evaluator.evaluate_all()).run()


@dataclass(slots=True)
class _DisruptionPass:
    context: DisruptionContext
    request: DisruptionRequest
    candidates: list[Candidate]
    commands: list[Command] = field(default_factory=list)
    rejected: dict[str, list[str]] = field(default_factory=dict)
    snapshot: ClusterSnapshot = field(init=False)
    budget_tracker: BudgetTracker = field(init=False)
    static: StaticReplacements = field(init=False)
    numbers: dict[str, int] = field(init=False)
    """Indices of the candidates by node name."""

    def __post_init__(self) -> None:
        context, facts = self.context, self.context.inputs.facts
        self.numbers = {one.node_name: number for number, one in enumerate(self.candidates)}
        within_consolidate_after = [
            one.node_name
            for one in self.candidates
            if is_within_consolidate_after(one.nodeclaim, facts.pools.get(one.nodeclaim.pool), self.request.now)
        ]
        drifted = [one.node_name for one in self.candidates if one.nodeclaim.drifted]
        maintained = [one.node_name for one in self.candidates if one.node and one.node.maintenance]
        unhealthy = [one.node_name for one in self.candidates if is_repair_due(one.nodeclaim, one.node)]
        closed_nodes: dict[Method, list[str]] = {
            "Underutilized": [*within_consolidate_after, *maintained],
            "Drifted": [*drifted, *maintained],
            "Unhealthy": [*unhealthy, *maintained],
        }
        self.snapshot = ClusterSnapshot(
            context.inputs, context.pass_settings, context.get_shape, closed_nodes, context.check_preempted
        )
        self.snapshot.apply_plan(context.plan, context.waiting)
        self.snapshot.close_nodepools(self.request.unsold)
        self.budget_tracker = BudgetTracker(self.request.allowed_disruptions)
        self.static = StaticReplacements(
            facts,
            context.templates,
            ReservationTracker(self.request.reservations, facts.nodeclaims.values()),
            self.request.under_way,
        )
        for command in self.request.under_way:
            context.check_preempted()
            apply_in_flight_command(self.snapshot, command, self.candidates)

    def run(self) -> Decision:
        if self.request.only:
            return self._decide_requested()
        settings = self.request.settings
        # Blocked nodes of one method must not use all simulations if another method needs some.
        repair = self._run_replacement_pass("Unhealthy", settings.most_simulations // 2)
        self._decide_empty()
        self._run_replacement_pass("Expired", settings.most_simulations)
        is_shared = any(True for _ in self._eligible_candidates("Underutilized"))
        remaining = settings.most_simulations - repair.simulations
        drift = self._run_replacement_pass("Drifted", remaining // (2 if is_shared else 1))
        remaining_settings = settings.model_copy(update={"most_simulations": remaining - drift.simulations})
        consolidation = Consolidation(
            self.snapshot, self.budget_tracker, remaining_settings, compute_pool_totals(self.candidates)
        )
        multi_node_command = consolidation.find_multi_node(self._non_receiving_candidates("Underutilized"))
        if multi_node_command is not None:
            self._apply_command(multi_node_command)
        for command in consolidation.find_single_node(
            self._non_receiving_candidates("Underutilized"), self.request.first
        ):
            self._apply_command(command)
        for nodeclaim_name, reasons in consolidation.rejected.items():
            for reason in reasons:
                add_rejection(self.rejected, nodeclaim_name, reason)
        simulations = repair.simulations + drift.simulations + consolidation.simulations
        return self._build_decision(simulations, (*repair.unreached, *drift.unreached, *consolidation.unreached))

    def _run_replacement_pass(self, method: ReplacementMethod, most_simulations: int) -> ReplacementPass:
        found = self._build_replacement_pass(method, most_simulations)
        for command in found.find_commands(self._eligible_candidates(method), frozenset(self.request.first)):
            self._apply_command(command)
        for nodeclaim_name, reason in found.rejected.items():
            add_rejection(self.rejected, nodeclaim_name, reason)
        return found

    def _build_replacement_pass(self, method: ReplacementMethod, most_simulations: int) -> ReplacementPass:
        settings = self.request.settings
        gates = {"Drifted": settings.terminate_first_drift, "Unhealthy": settings.terminate_first_repair}
        terminate_first = gates.get(method, False)
        return ReplacementPass(
            self.snapshot, self.budget_tracker, self.static, method, most_simulations, terminate_first
        )

    def _build_decision(self, simulations: int, unreached: tuple[str, ...] = ()) -> Decision:
        disrupted = {one.claim for command in self.commands for one in command.candidates}
        return Decision(
            nodes=tuple(self._final_verdict(one, disrupted) for one in self.candidates),
            commands=tuple(strip_virtual_pods(one, self.context.virtual) for one in self.commands),
            unreached=unreached,
            simulations=simulations,
        )

    def _decide_requested(self) -> Decision:
        """Decide again on the requested NodeClaims together."""
        reason, requested = self.request.reason, frozenset(self.request.only)
        removals = [
            one.for_method(reason)
            for one in self.candidates
            if one.nodeclaim.name in requested and one.is_eligible_for(reason)
        ]
        if len(removals) < len(requested):
            return self._build_decision(0)
        result, simulations = self._evaluate(removals, reason)
        if isinstance(result, RejectionReason):
            for one in removals:
                add_rejection(self.rejected, one.nodeclaim.name, result)
        else:
            self._apply_command(build_command(reason, _command_kind(reason, removals), removals, result))
        return self._build_decision(simulations)

    def _evaluate(self, removals: Sequence[Candidate], reason: Method) -> tuple[Replacement | RejectionReason, int]:
        receiver = next((one.node_name for one in removals if one.node_name in self.snapshot.receivers), "")
        if receiver:
            return RejectionReason(f"pods of disrupted nodes are expected on {receiver}"), 0
        if reason in ("Unhealthy", "Expired", "Drifted") and len(removals) == 1:
            found = self._build_replacement_pass(reason, self.request.settings.most_simulations)
            return found.find_replacement(removals[0]), found.simulations
        consolidation = Consolidation(
            self.snapshot, self.budget_tracker, self.request.settings, compute_pool_totals(self.candidates)
        )
        return consolidation.evaluate(removals), consolidation.simulations

    def _decide_empty(self) -> None:
        """All empty nodes at once, as far as budgets allow (reference 4.5)."""
        ordered = sorted(self._eligible_candidates("Empty"), key=price_per_disruption_order)
        removals, rejected = self.budget_tracker.select_allowed(ordered, "Empty", len(ordered))
        for nodeclaim_name, reason in rejected.items():
            add_rejection(self.rejected, nodeclaim_name, reason)
        if removals:
            self._apply_command(build_command("Empty", "empty", removals, Replacement((), {}, 0.0, 0.0)))

    def _eligible_candidates(self, method: Method) -> Iterator[Candidate]:
        disrupted = {one.claim for command in self.commands for one in command.candidates}
        return (
            one for one in self.candidates if method in one.verdict.eligible and one.nodeclaim.name not in disrupted
        )

    def _non_receiving_candidates(self, method: Method) -> list[Candidate]:
        """Candidates that receive no pods of disrupted nodes. `find_single_node` reports those that do."""
        return [one for one in self._eligible_candidates(method) if one.node_name not in self.snapshot.receivers]

    def _apply_command(self, command: Command) -> None:
        numbers = sorted(self.numbers[name] for name in command.node_names)
        removals = [self.candidates[number].for_method(command.reason) for number in numbers]
        moves = {one.pod_uid: one.target for one in command.moves if one.target}
        self.snapshot.apply_removal(removals, moves, command.replacements)
        self.budget_tracker.count_disrupted(removals)
        self.commands.append(command)

    def _final_verdict(self, one: Candidate, disrupted: Collection[str]) -> NodeVerdict:
        rejections: Sequence[str] = () if one.nodeclaim.name in disrupted else self.rejected.get(one.nodeclaim.name, ())
        return one.verdict.model_copy(update={"rejected": tuple(rejections)}) if rejections else one.verdict


def _command_kind(reason: Method, removals: Sequence[Candidate]) -> CommandKind:
    if reason != "Underutilized":
        return COMMAND_KINDS[reason]
    return "single" if len(removals) == 1 else "multi"


def strip_virtual_pods(command: Command, virtual: Collection[str]) -> Command:
    """Drop the pods of CapacityBuffers, which need capacity but are not moved."""
    if not virtual:
        return command
    nodeclaims = [
        one.model_copy(update={"pods": tuple(uid for uid in one.pods if uid not in virtual)})
        for one in command.replacements
    ]
    moves = tuple(one for one in command.moves if one.pod_uid not in virtual)
    return command.model_copy(update={"replacements": tuple(nodeclaims), "moves": moves})


def _expected_pods_by_node(context: DisruptionContext) -> dict[str, list[PodFact]]:
    """Pending pods by the node on which the plan places them."""
    found: dict[str, list[PodFact]] = {}
    for uid, name in (*context.plan.nominations.items(), *context.plan.reserved.items()):
        if uid in context.waiting:
            found.setdefault(name, []).append(context.waiting[uid])
    return found
