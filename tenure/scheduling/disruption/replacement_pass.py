"""Replacement of unhealthy and of drifted nodes, one command each (reference 4.8; 1.15, section 3).

Unhealthy nodes go first, by waiting time and priority. Drifted nodes follow, empty ones first, then by age of the
drift. A blocked node does not delay others. Pods of unhealthy and drifted nodes move to other such nodes only if no
other node fits. With the gate of the method, a node in a capacity reservation is deleted first if only its own place in
the reservation is left for its pods (reference 1.15, section 5.2).
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tenure.apis.labels import CAPACITY_RESERVATION_ID
from tenure.model.disruption.decision import Command
from tenure.scheduling.disruption.budget_usage import BudgetTracker
from tenure.scheduling.disruption.candidates import Candidate, drift_order, repair_order
from tenure.scheduling.disruption.cluster_snapshot import ClusterSnapshot
from tenure.scheduling.disruption.commands import COMMAND_KINDS, build_command
from tenure.scheduling.disruption.replacement import Replacement, get_worst_prices
from tenure.scheduling.disruption.simulation import Simulation, simulate_removal
from tenure.scheduling.disruption.static_replacements import StaticReplacements
from tenure.scheduling.nodepool_template import RejectionReason

_ANY_PRICE = float("inf")
ReplacementMethod = Literal["Unhealthy", "Expired", "Drifted"]
"""Only static NodePools replace nodes before they expire."""


@dataclass(slots=True)
class ReplacementPass:
    """One pass over the candidates for one method."""

    snapshot: ClusterSnapshot
    budget_tracker: BudgetTracker
    static: StaticReplacements
    method: ReplacementMethod
    most_simulations: int
    terminate_first: bool
    """The gate of the method."""
    simulations: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)

    def find_commands(self, candidates: Iterable[Candidate], first: Collection[str] = ()) -> Iterator[Command]:
        """`first`: names of NodeClaims that earlier passes did not reach. The caller applies each command before it
        requests the next."""
        for one in sorted(candidates, key=lambda one: self._order(one, first)):
            reason = self.budget_tracker.rejection_reason(one, self.method)
            if not reason and one.node_name in self.snapshot.receivers:
                reason = "pods of disrupted nodes are expected there"
            if reason:
                self.rejected[one.nodeclaim.name] = reason
            elif self.simulations >= self.most_simulations:
                self.unreached.append(one.nodeclaim.name)
            else:
                one = one.for_method(self.method)
                replacement = self.find_replacement(one)
                if isinstance(replacement, RejectionReason):
                    self.rejected[one.nodeclaim.name] = replacement
                else:
                    self.static.apply_command(one, replacement)
                    yield build_command(self.method, COMMAND_KINDS[self.method], (one,), replacement)

    def _order(self, one: Candidate, first: Collection[str]) -> tuple[object, ...]:
        if self.method == "Unhealthy":
            return one.nodeclaim.name not in first, repair_order(one)
        return one.nodeclaim.name not in first, not self.static.holds_full_reservation(one), drift_order(one)

    def find_replacement(self, one: Candidate) -> Replacement | RejectionReason:
        """The cheapest replacement, whatever it costs."""
        if one.pool is not None and one.is_static:
            return self.static.find(one, one.pool, self.method, terminate_first=self.terminate_first)
        if not one.pods:
            return Replacement((), {}, 0.0, 0.0)
        self.simulations += 1
        found = simulate_removal(self.snapshot, (one,), self.method, ceiling=_ANY_PRICE)
        if not found.attempts:
            self.simulations += 1
            found = simulate_removal(self.snapshot, (one,), ceiling=_ANY_PRICE)
        if not found.attempts and (reservation := self._reservation_to_free(one)):
            self.simulations += 1
            freed = simulate_removal(self.snapshot, (one,), ceiling=_ANY_PRICE, freed_reservation=reservation)
            if freed.attempts:
                return Replacement((), dict(freed.attempts[0].packing.nominations), 0.0, 0.0, "no-reserved-capacity")
        return self._cheapest_replacement(found)

    def _reservation_to_free(self, one: Candidate) -> str:
        """The reservation in which the node's deletion frees a place; empty without the gate, and while another node of
        the NodePool starts."""
        if not self.terminate_first or self.static.find_starting(one):
            return ""
        return one.nodeclaim.labels.get(CAPACITY_RESERVATION_ID, "")

    def _cheapest_replacement(self, found: Simulation) -> Replacement | RejectionReason:
        if not found.attempts:
            return RejectionReason(f"cannot be disrupted: {found.problem}")
        attempt = min(
            found.attempts, key=lambda candidate_attempt: candidate_attempt.cost(self.snapshot.pass_settings.node_cost)
        )
        nodeclaims, price, at_most = [], 0.0, 0.0
        for number in range(len(attempt.packing.node_arrays.new_nodes)):
            nodeclaim = attempt.planned_nodeclaims.build(number)
            if isinstance(nodeclaim, RejectionReason):
                return RejectionReason(f"cannot be disrupted: {nodeclaim}")
            nodeclaims.append(nodeclaim)
            price += attempt.planned_nodeclaims.cheapest_price(number)
            draft = attempt.planned_nodeclaims.draft(number)
            at_most += float(get_worst_prices(draft, self.snapshot)[draft.rows].max())
        return Replacement(tuple(nodeclaims), dict(attempt.packing.nominations), price, at_most)
