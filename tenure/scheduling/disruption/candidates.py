"""Each NodeClaim with the disruption methods that apply and everything that blocks them (reference 4.2)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from tenure.model.disruption.decision import (
    METHODS,
    CommandCandidate,
    DisruptionRequest,
    Ineligibility,
    Method,
    NodeVerdict,
)
from tenure.model.facts import NodeClaimFact, NodeFact, NodePoolFact, PodFact
from tenure.model.instance_types import InstanceType
from tenure.model.invalid_objects import Guard, no_guard
from tenure.model.nodeclaim.expiry import find_static_replacement_time
from tenure.scheduling.disruption import eligibility
from tenure.scheduling.disruption.cost import disruption_cost_of, offering_price
from tenure.scheduling.nodepool_template import NodePoolTemplate, RejectionReason
from tenure.scheduling.pod_disruption_budgets import PodDisruptionBudgets
from tenure.scheduling.pods import is_recreated_elsewhere, is_reschedulable
from tenure.scheduling.snapshot import ClusterFacts
from tenure.scheduling.volumes import find_unknown_volume_field


@dataclass(frozen=True, slots=True)
class Candidate:
    """One NodeClaim with its node, pods and prices."""

    nodeclaim: NodeClaimFact
    node: NodeFact | None
    pool: NodePoolFact | None
    instance_type: InstanceType | None
    pods: tuple[PodFact, ...]
    """Pods that must move to another node, and virtual pods of CapacityBuffers."""
    verdict: NodeVerdict
    repair_pods: tuple[PodFact, ...] = ()
    """Pods that repair moves, also those that may not be evicted now. Only if its repair is due."""

    def for_method(self, method: Method) -> "Candidate":
        """The candidate with the pods that the method moves."""
        return replace(self, pods=self.repair_pods) if method == "Unhealthy" else self

    @property
    def node_name(self) -> str:
        """The name of the node; of the claim while it has no node."""
        return self.node.name if self.node else self.nodeclaim.name

    @property
    def is_static(self) -> bool:
        """Whether its NodePool is static."""
        return self.pool is not None and self.pool.static

    @property
    def price(self) -> float:
        return self.verdict.price

    @property
    def cost(self) -> float:
        return self.verdict.cost

    def is_eligible_for(self, method: Method) -> bool:
        return method in self.verdict.eligible

    def to_command_candidate(self) -> CommandCandidate:
        return CommandCandidate(
            node=self.node_name,
            claim=self.nodeclaim.name,
            claim_uid=self.nodeclaim.uid,
            pool=self.nodeclaim.pool,
            instance_type=self.instance_type.name if self.instance_type else "",
            zone=self.verdict.zone,
            capacity_type=self.verdict.capacity_type,
            price=self.price,
            cost=self.cost,
        )


def ignore_preemption() -> None:
    """The check of a pass that runs to its end."""


@dataclass(frozen=True)
class CandidateEvaluator:
    """Shared inputs to evaluate all candidates."""

    facts: ClusterFacts
    templates: Mapping[str, NodePoolTemplate | RejectionReason]
    request: DisruptionRequest
    expected: Mapping[str, Sequence[PodFact]]
    """Pending pods by the existing node they are placed on, including virtual pods of CapacityBuffers."""
    virtual: frozenset[str]
    """UIDs of virtual pods."""
    guard: Guard = no_guard
    check_preempted: Callable[[], None] = ignore_preemption
    pod_budgets: PodDisruptionBudgets = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pod_budgets", PodDisruptionBudgets(self.facts.pod_budgets.values()))

    def evaluate_all(self) -> list[Candidate]:
        """Every NodeClaim of a NodePool, by name. One that raises an error is no candidate. Raises `Preempted`."""
        busy = {one.claim for command in self.request.under_way for one in command.candidates}
        nominated = frozenset(self.request.nominated)
        candidates = []
        for _, nodeclaim in sorted(self.facts.nodeclaims.items()):
            self.check_preempted()
            if nodeclaim.pool:
                with self.guard(nodeclaim, "candidate"):
                    candidates.append(self._evaluate(nodeclaim, nodeclaim.name in busy, nominated))
        return candidates

    def _evaluate(self, nodeclaim: NodeClaimFact, busy: bool, nominated: frozenset[str]) -> Candidate:
        facts, now = self.facts, self.request.now
        node, pool = facts.node_of(nodeclaim), facts.pools.get(nodeclaim.pool)
        bound = tuple(facts.bound_to(node.name)) if node else ()
        expected = self.expected.get(node.name if node else nodeclaim.name, ())
        pods = tuple(
            one for one in bound if is_reschedulable(one, now) and not self.pod_budgets.never_allows_eviction(one)
        )
        labels = {**nodeclaim.labels, **(node.labels if node else {})}
        template = self.templates.get(nodeclaim.pool)
        instance_type = _find_instance_type(template, labels)
        expected_names = [one.name for one in expected if one.uid not in self.virtual]
        applicable = _applicable_methods(nodeclaim, node, empty=not pods, expiring=self._is_expiring(nodeclaim, pool))
        virtual = tuple(one for one in expected if one.uid in self.virtual)
        checks: list[Callable[[], Iterator[Ineligibility]]] = [
            lambda: eligibility.lifecycle_exclusions(nodeclaim, node, busy=busy),
            lambda: iter(self.request.ineligible.get(nodeclaim.name, ())),
            lambda: eligibility.nomination_exclusions(nodeclaim, node, nominated, expected_names),
            lambda: eligibility.nodepool_exclusions(nodeclaim, pool, template),
            lambda: eligibility.age_exclusions(
                nodeclaim, self.request.allowed_disruptions.youngest.get(nodeclaim.pool), now
            ),
            lambda: eligibility.consolidate_after_exclusions(nodeclaim, pool, now),
            lambda: eligibility.node_exclusions(node),
            lambda: eligibility.pod_exclusions(nodeclaim, bound, self.pod_budgets, facts.storage, now),
            lambda: eligibility.capacity_buffer_exclusions(virtual),
            lambda: eligibility.price_exclusions(
                labels, template, instance_type, offering_price(labels, instance_type)
            ),
        ]
        exclusions = [one for run_check in checks for one in run_check() if set(one.methods) & set(applicable)]
        blocked_methods = {method for one in exclusions for method in one.methods}
        verdict = NodeVerdict(
            claim=nodeclaim.name,
            node=node.name if node else "",
            pool=nodeclaim.pool,
            capacity_type=labels.get(CAPACITY_TYPE, ""),
            zone=labels.get(ZONE, ""),
            price=offering_price(labels, instance_type),
            cost=disruption_cost_of(pods),
            pods=len(pods),
            eligible=tuple(one for one in applicable if one not in blocked_methods),
            excluded=tuple(exclusions),
        )
        # Headroom that a CapacityBuffer needs must be found elsewhere, too.
        is_repaired = "Unhealthy" in applicable
        repaired = self._pods_moved_by_repair(bound) if is_repaired else ()
        return Candidate(nodeclaim, node, pool, instance_type, (*pods, *virtual), verdict, (*repaired, *virtual))

    def _is_expiring(self, nodeclaim: NodeClaimFact, pool: NodePoolFact | None) -> bool:
        if pool is None or not pool.static:
            return False
        at = find_static_replacement_time(nodeclaim, self.request.expiry_jitter_by_pool)
        return at is not None and self.request.now >= at

    def _pods_moved_by_repair(self, bound: Sequence[PodFact]) -> tuple[PodFact, ...]:
        """Pods that cannot be planned do not prevent repair (reference 1.15, section 3.6)."""
        return tuple(
            one
            for one in bound
            if is_recreated_elsewhere(one)
            and not (one.unplannable or find_unknown_volume_field(one, self.facts.storage))
        )


def _find_instance_type(
    template: NodePoolTemplate | RejectionReason | None, labels: Mapping[str, str]
) -> InstanceType | None:
    if not isinstance(template, NodePoolTemplate):
        return None
    row = template.table.rows.get(labels.get(INSTANCE_TYPE, ""))
    return None if row is None else template.table.types[row]


def is_repair_due(nodeclaim: NodeClaimFact, node: NodeFact | None) -> bool:
    due = nodeclaim.repair_due
    return due is not None and node is not None and due.counts(node.conditions)


def _applicable_methods(
    nodeclaim: NodeClaimFact, node: NodeFact | None, *, empty: bool, expiring: bool
) -> tuple[Method, ...]:
    """The methods that apply to the node, blockers aside."""
    applicable = {"Empty" if empty else "Underutilized"}
    applicable |= {"Expired"} if expiring else set()
    applicable |= {"Drifted"} if nodeclaim.drifted else set()
    applicable |= {"Unhealthy"} if is_repair_due(nodeclaim, node) else set()
    return tuple(one for one in METHODS if one in applicable)


def repair_order(one: Candidate) -> tuple[datetime, float, str]:
    """By waiting time and priority, then by disruption cost (reference 1.15, section 3.4)."""
    due = one.nodeclaim.repair_due
    return due.order_at if due else one.nodeclaim.created, one.cost, one.node_name


def drift_order(one: Candidate) -> tuple[bool, datetime, str]:
    """Empty nodes first, then by the start of the drift (reference 4.8)."""
    return bool(one.pods), one.nodeclaim.drifted_at or one.nodeclaim.created, one.node_name
