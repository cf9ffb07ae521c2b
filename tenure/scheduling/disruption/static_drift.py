"""Replacement of drifted nodes of static NodePools (reference 1.15, sections 4 and 5.1).

The replacement has the NodePool's template, without a simulation: pods do not decide on the size of the pool. It needs
a free node under `limits.nodes`, and capacity that can be launched. Otherwise, the gate TerminateFirstDrift allows to
delete the drifted node first. The NodePool then launches the missing node. A node under the limit that becomes free
when a terminating node is gone is waited for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tenure.apis.feature_gates import FeatureGate
from tenure.apis.labels import CAPACITY_RESERVATION_ID
from tenure.apis.resources import NODES
from tenure.model.disruption.decision import Command, TerminateFirstReason
from tenure.model.facts import NodePoolFact
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.replacement import Replacement
from tenure.scheduling.nodeclaim_builder import build_template_nodeclaim
from tenure.scheduling.nodepool_template import NodePoolTemplate, RejectionReason, ReservationTracker
from tenure.scheduling.snapshot import ClusterFacts

_GATE_OFF = f"the gate {FeatureGate.TERMINATE_FIRST_DRIFT}, which deletes the node first, is off"


@dataclass(slots=True)
class StaticReplacements:
    """`under_way`: commands whose replacements may not exist yet."""

    facts: ClusterFacts
    templates: Mapping[str, NodePoolTemplate | RejectionReason]
    reservation_tracker: ReservationTracker
    under_way: Sequence[Command]
    terminate_first: bool
    _planned: Counter[str] = field(init=False)
    """Replacements that do not exist yet, by NodePool."""
    _removed: Counter[str] = field(default_factory=Counter)
    """Nodes of the commands of this pass, by NodePool."""

    def __post_init__(self) -> None:
        self._planned = Counter(
            one.pool for command in self.under_way if not command.claims for one in command.replacements
        )

    def find(self, one: Candidate, pool: NodePoolFact) -> Replacement | RejectionReason:
        """One NodeClaim, or none if the node must be deleted first. Does not reserve the node under the limit."""
        template = self.templates[pool.name]
        if isinstance(template, RejectionReason):
            return template
        if not pool.ready:
            return RejectionReason(f"NodePool {pool.name} is not ready")
        if why := self._surplus(pool):
            return RejectionReason(why)
        if reservations := self._full_reservations(template):
            names = ", ".join(reservations)
            why = f"NodePool {pool.name} launches only into capacity reservations, and they are full: {names}"
            if one.nodeclaim.labels.get(CAPACITY_RESERVATION_ID) not in reservations:
                return RejectionReason(f"{why}; the node uses none of them")
            return self._delete_first("no-reserved-capacity", why)
        limit, used = pool.limits.get(NODES), self._count_nodes(pool)
        if limit is not None and used >= limit:
            why = f"limits.nodes={limit} of NodePool {pool.name} allows no further node: it has {used}"
            if limit > self._count_remaining(one, pool):
                return RejectionReason(f"{why}, of which some are terminating or being replaced")
            return self._delete_first("static-at-limit", why)
        why = f"replaces drifted node {one.node_name}: one of spec.replicas={pool.replicas}, regardless of pods"
        return Replacement((build_template_nodeclaim(pool, why),), {}, one.price, one.price)

    def apply_command(self, pool: str, replacement: Replacement) -> None:
        """Count a command of this pass, which replaces one node."""
        self._planned[pool] += len(replacement.nodeclaims)
        self._removed[pool] += 1

    def holds_full_reservation(self, one: Candidate) -> bool:
        """Whether the node may be deleted first, since it uses one of the full reservations of its NodePool."""
        template = self.templates.get(one.nodeclaim.pool)
        if one.pool is None or not one.pool.static or not isinstance(template, NodePoolTemplate):
            return False
        return one.nodeclaim.labels.get(CAPACITY_RESERVATION_ID) in self._full_reservations(template)

    def _delete_first(self, reason: TerminateFirstReason, why: str) -> Replacement | RejectionReason:
        if not self.terminate_first:
            return RejectionReason(f"{why}; {_GATE_OFF}")
        return Replacement((), {}, 0.0, 0.0, reason)

    def _surplus(self, pool: NodePoolFact) -> str:
        """Why the NodePool must shrink first. A node counts no longer while a command replaces it."""
        nodeclaims = (one for one in self.facts.nodeclaims.values() if one.pool == pool.name and not one.deleting)
        active = sum(not one.disrupted_by for one in nodeclaims)
        return f"NodePool {pool.name} has {active} nodes for spec.replicas={pool.replicas}" * (active > pool.replicas)

    def _count_nodes(self, pool: NodePoolFact) -> int:
        """A terminating node counts until it is gone."""
        existing = sum(one.pool == pool.name for one in self.facts.nodeclaims.values())
        return existing + self._planned[pool.name]

    def _count_remaining(self, one: Candidate, pool: NodePoolFact) -> int:
        """Nodes after all commands in flight, with this candidate."""
        nodeclaims = (each for each in self.facts.nodeclaims.values() if each.pool == pool.name and not each.deleting)
        active = sum(not each.disrupted_by or each.uid == one.nodeclaim.uid for each in nodeclaims)
        return active + self._planned[pool.name] - self._removed[pool.name]

    def _full_reservations(self, template: NodePoolTemplate) -> frozenset[str]:
        """The reservations of the template's offerings; empty if one of them, or other capacity, can be launched."""
        table = template.table
        possible = table.offerings_with(template.requirements)
        possible = possible & table.types_with(template.requirements)[table.offering_rows]
        if not possible.any() or not table.reserved[possible].all():
            return frozenset()
        reservations = frozenset(table.reservations[possible])
        has_capacity = any(self.reservation_tracker.remaining(one) > 0 for one in reservations)
        return frozenset() if has_capacity else reservations
