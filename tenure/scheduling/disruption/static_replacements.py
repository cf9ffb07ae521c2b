"""Replacement of unhealthy, expiring and drifted nodes of static NodePools (reference 1.15, sections 4 and 5.1).

The replacement has the NodePool's template, without a simulation: pods do not decide on the size of the pool. It needs
a free node under `limits.nodes`, and capacity that can be launched. Otherwise, the gate TerminateFirstDrift or
TerminateFirstRepair allows to delete the node first. The NodePool then launches the missing node, as it does when an
expiring node ends without a replacement. A node under the limit that becomes free when a terminating node is gone is
waited for.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

from tenure.apis.feature_gates import FeatureGate
from tenure.apis.labels import CAPACITY_RESERVATION_ID
from tenure.apis.resources import NODES
from tenure.model.disruption.decision import Command, Method, TerminateFirstReason
from tenure.model.facts import NodeClaimFact, NodePoolFact
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.replacement import Replacement
from tenure.scheduling.nodeclaim_template import plan_static_nodeclaim
from tenure.scheduling.nodepool_template import NodePoolTemplate, RejectionReason, ReservationTracker
from tenure.scheduling.snapshot import ClusterFacts

_ADJECTIVES: Final[Mapping[Method, str]] = {"Unhealthy": "unhealthy", "Expired": "expiring", "Drifted": "drifted"}
_GATES: Final[Mapping[Method, FeatureGate]] = {
    "Drifted": FeatureGate.TERMINATE_FIRST_DRIFT,
    "Unhealthy": FeatureGate.TERMINATE_FIRST_REPAIR,
}


@dataclass(slots=True)
class StaticReplacements:
    """`under_way`: commands whose replacements may not exist yet."""

    facts: InitVar[ClusterFacts]
    templates: Mapping[str, NodePoolTemplate | RejectionReason]
    reservation_tracker: ReservationTracker
    under_way: InitVar[Sequence[Command]]
    _by_pool: dict[str, list[NodeClaimFact]] = field(init=False)
    """All NodeClaims, also those that are being deleted."""
    _planned: Counter[str] = field(init=False)
    """Replacements that do not exist yet, by NodePool."""
    _replaced: set[str] = field(init=False)
    """UIDs of the NodeClaims of all commands, also of those that have not begun yet."""

    def __post_init__(self, facts: ClusterFacts, under_way: Sequence[Command]) -> None:
        self._by_pool = defaultdict(list)
        for one in facts.nodeclaims.values():
            self._by_pool[one.pool].append(one)
        self._planned = Counter(one.pool for command in under_way if not command.claims for one in command.replacements)
        self._replaced = {one.claim_uid for command in under_way for one in command.candidates}

    def find(
        self, one: Candidate, pool: NodePoolFact, method: Method, *, terminate_first: bool
    ) -> Replacement | RejectionReason:
        """One NodeClaim, or none if the node must be deleted first. Does not reserve the node under the limit."""
        template = self.templates[pool.name]
        if isinstance(template, RejectionReason):
            return template
        if not pool.ready:
            return RejectionReason(f"NodePool {pool.name} is not ready")
        if (remaining := self._count_remaining(one, pool)) != pool.replicas:
            return RejectionReason(f"NodePool {pool.name} has {remaining} nodes for spec.replicas={pool.replicas}")
        if reservations := self._full_reservations(template):
            names = ", ".join(sorted(reservations))
            why = f"NodePool {pool.name} launches only into capacity reservations, and they are full: {names}"
            if one.nodeclaim.labels.get(CAPACITY_RESERVATION_ID) not in reservations:
                return RejectionReason(f"{why}; the node uses none of them")
            return self._delete_first("no-reserved-capacity", one, why, method, allowed=terminate_first)
        limit, used = pool.limits.get(NODES), self._count_nodes(pool)
        if limit is not None and used >= limit:
            why = f"limits.nodes={limit} of NodePool {pool.name} allows no further node: it has {used}"
            if limit > remaining:
                return RejectionReason(f"{why}, of which some are terminating or being replaced")
            return self._delete_first("static-at-limit", one, why, method, allowed=terminate_first)
        replaced = f"{_ADJECTIVES[method]} node {one.node_name}"
        why = f"replaces {replaced}: one of spec.replicas={pool.replicas}, regardless of pods"
        return Replacement((plan_static_nodeclaim(pool, why),), {}, one.price, one.price)

    def apply_command(self, one: Candidate, replacement: Replacement) -> None:
        """Count a command of this pass, which replaces one node."""
        self._planned[one.nodeclaim.pool] += len(replacement.nodeclaims)
        self._replaced.add(one.nodeclaim.uid)

    def holds_full_reservation(self, one: Candidate) -> bool:
        """Whether the node may be deleted first, since it uses one of the full reservations of its NodePool."""
        reservation = one.nodeclaim.labels.get(CAPACITY_RESERVATION_ID)
        template = self.templates.get(one.nodeclaim.pool)
        if not reservation or not one.is_static or not isinstance(template, NodePoolTemplate):
            return False
        return reservation in self._full_reservations(template)

    def find_starting(self, candidate: Candidate) -> str:
        """Another NodeClaim of the NodePool that is not initialized yet; empty if there is none. No node is deleted
        first meanwhile, since the new nodes may fail."""
        nodeclaim = candidate.nodeclaim
        names = (one.name for one in self._existing(nodeclaim.pool) if not one.initialized and one.uid != nodeclaim.uid)
        return min(names, default="")

    def _delete_first(
        self, reason: TerminateFirstReason, one: Candidate, why: str, method: Method, *, allowed: bool
    ) -> Replacement | RejectionReason:
        if method == "Expired":
            return RejectionReason(f"{why}; its replacement is launched when it expires")
        if not allowed:
            return RejectionReason(f"{why}; the gate {_GATES[method]}, which deletes the node first, is off")
        if starting := self.find_starting(one):
            return RejectionReason(f"{why}; and NodeClaim {starting} is not initialized yet")
        return Replacement((), {}, 0.0, 0.0, reason)

    def _existing(self, pool: str) -> Iterator[NodeClaimFact]:
        return (one for one in self._by_pool[pool] if not one.deleting)

    def _count_nodes(self, pool: NodePoolFact) -> int:
        """A terminating node counts until it is gone."""
        return len(self._by_pool[pool.name]) + self._planned[pool.name]

    def _count_remaining(self, one: Candidate, pool: NodePoolFact) -> int:
        """Nodes after all commands, with this candidate."""
        remaining = sum(
            each.uid == one.nodeclaim.uid or not (each.disrupted_by or each.uid in self._replaced)
            for each in self._existing(pool.name)
        )
        return remaining + self._planned[pool.name]

    def _full_reservations(self, template: NodePoolTemplate) -> frozenset[str]:
        """The reservations of the template's offerings; empty if one of them, or other capacity, can be launched."""
        table = template.table
        possible = table.offerings_with(template.requirements)
        possible = possible & table.types_with(template.requirements)[table.offering_rows]
        if not possible.any() or not table.reserved[possible].all():
            return frozenset()
        reservations = frozenset(table.reservations[possible])
        # NodeClaims of a static NodePool name no reservation, so the tracker does not count those without an instance.
        unlaunched = sum(not one.launched for one in self._existing(template.pool.name))
        needed = unlaunched + self._planned[template.pool.name]
        available = sum(map(self.reservation_tracker.remaining, reservations))
        return frozenset() if available > needed else reservations
