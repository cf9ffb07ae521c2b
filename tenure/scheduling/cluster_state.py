"""What the planner process holds and does: facts in, plans out.

`tenure/controller/planning/planner_process.py` runs one of these in a process of its own, feeds it changes, asks for
plans, creates the
NodeClaims and tells it their names. Nothing here reads a clock or touches the outside.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.labels import NODEPOOL
from tenure.apis.resources import NODES, add
from tenure.model.discovered_capacity import Learnt
from tenure.model.disruption.planning import Decision, DisruptionRequest
from tenure.model.facts import ClaimFact, NodeFact, PodFact
from tenure.model.instance_types import Catalogue, ReservationRoom, UnavailableOffering
from tenure.model.provisioning import Plan, PlannedClaim, Unplaced
from tenure.scheduling.disruption.decision import Situation, decide
from tenure.scheduling.existing_nodes import Homes, homes
from tenure.scheduling.nodeoverlays import Verdict
from tenure.scheduling.nodepool_template import Offer, Refusal, Rooms, Template, by_preference
from tenure.scheduling.offerings import Market, largest_capacity, least_overhead
from tenure.scheduling.packing.packer import unplaced
from tenure.scheduling.packing.planning_pass import Ground, Wishes, plan
from tenure.scheduling.packing.pod_requirements import Shape, shape_of
from tenure.scheduling.pods import invalid, is_reschedulable, provisionable, shuns_pools
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change, Facts, Ledger, claim_as_learnt

__all__ = ["Change", "ClusterState"]

_GRACE: Final = timedelta(minutes=5)
_Graces = tuple[timedelta, Mapping[str, timedelta]]
"""How long NotReady nodes are waited for: usually, and by NodePool where it is another time."""


def without_virtual(plan: Plan, virtual: Collection[str]) -> Plan:
    """Pods of CapacityBuffers are expected nowhere and told nothing: what is bought for them is bought, no more."""
    if not virtual:
        return plan
    real = [tuple(uid for uid in one.pods if uid not in virtual) for one in plan.claims]
    return plan.model_copy(
        update={
            "claims": tuple(one.model_copy(update={"pods": pods}) for one, pods in zip(plan.claims, real, strict=True)),
            "nominations": {uid: home for uid, home in plan.nominations.items() if uid not in virtual},
            "reserved": {uid: home for uid, home in plan.nominations.items() if uid in virtual},
            "unplaced": tuple(one for one in plan.unplaced if one.pod_uid not in virtual),
        }
    )


class ClusterState:
    """The cluster as planning knows it. One plan after the other; each `commit` is seen by the next."""

    def __init__(self, settings: PlanSettings | None = None) -> None:
        self.settings = settings or PlanSettings()
        self._facts = Facts()
        self._market = Market()
        self._ledger = Ledger()
        self._shapes: dict[str, Shape] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        """Take changes in, in the order in which they happened. Raises TypeError for a fact of the wrong kind."""
        for change in changes:
            self._facts.apply(change)
            self._invalidate(change)

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """The instance types and prices of every EC2NodeClass, replacing what was known."""
        self._market.set_catalogue(catalogue)

    def heed(self, learnt: Learnt, specs: Mapping[str, str]) -> None:
        """What nodes have shown of their machines: counts from the next plan on. `specs` by EC2NodeClass."""
        self._market.heed(learnt, specs)

    def commit(self, claims: Mapping[str, PlannedClaim], *, now: datetime) -> None:
        """NodeClaims by name that are created from a plan: they count from now on.

        They count until the claim is seen by `apply`, or for 60 s when it never is.
        """
        self._ledger.commit(claims, now)

    def provision(
        self,
        *,
        now: datetime,
        unavailable: Iterable[UnavailableOffering] = (),
        not_ready_grace: timedelta = _GRACE,
        pool_graces: Mapping[str, timedelta] | None = None,
        reservations: Mapping[str, ReservationRoom] | None = None,
    ) -> Plan:
        """Where every pod that needs a node goes, and what is to be bought for it.

        `not_ready_grace` is how long a node that turned NotReady still counts as a home, and `pool_graces` the same for
        nodes of NodePools that have their own. The plan's `seconds` are left to the caller, who has a clock.
        """
        grace = (not_ready_grace, pool_graces or {})
        virtual = {pod.uid for pods in self._facts.virtual.values() for pod in pods}
        return without_virtual(self._plan_all(now, tuple(unavailable), grace, reservations or {}), virtual)

    def disrupt(self, request: DisruptionRequest) -> Decision:
        """Which nodes could go voluntarily and what would replace them. Pods that wait have their places first."""
        asked = request.now, request.unavailable, (request.not_ready_grace, request.pool_graces), request.reservations
        shaped = list(self._demand(request.now, []))
        ground, wishes = self._ground(*asked), self._wishes()
        found = plan(shaped, ground, wishes) if shaped else Plan()
        virtual = frozenset(pod.uid for pods in self._facts.virtual.values() for pod in pods)
        waiting = {pod.uid: pod for _, pod in shaped}
        return decide(Situation(ground, wishes, self._templates(), self._shape, found, waiting, virtual), request)

    def _plan_all(
        self,
        now: datetime,
        unavailable: tuple[UnavailableOffering, ...],
        grace: _Graces,
        reservations: Mapping[str, ReservationRoom],
    ) -> Plan:
        refused: list[Unplaced] = []
        shaped = list(self._demand(now, refused))
        if not shaped:
            return Plan(unplaced=tuple(refused))
        ground = self._ground(now, unavailable, grace, reservations)
        found = plan(shaped, ground, self._wishes())
        return found.model_copy(update={"unplaced": (*refused, *found.unplaced)})

    def _wishes(self) -> Wishes:
        settings = self.settings
        return Wishes(
            settings.preference_policy, settings.min_values_policy, settings.most_instance_types, settings.node_cost
        )

    def _demand(self, now: datetime, refused: list[Unplaced]) -> Iterator[tuple[Shape, PodFact]]:
        for pod in self._wanting(now):
            if shuns_pools(pod):
                continue
            reason = invalid(pod)
            if reason:
                refused.append(unplaced(pod, reason))
            else:
                yield self._shape(pod), pod

    def _wanting(self, now: datetime) -> Iterator[PodFact]:
        yield from provisionable(self._facts.homeless.values())
        for name in self._leaving():
            yield from (pod for pod in self._facts.bound_to(name) if is_reschedulable(pod, now))
        for pods in self._facts.virtual.values():
            yield from pods

    def _leaving(self) -> list[str]:
        """Nodes that are being removed."""
        names = {node.name for node in self._facts.nodes.values() if node.deleting}
        for claim in self._facts.claims.values():
            node = self._facts.node_of(claim) if claim.deleting or claim.instance_terminating else None
            names |= {node.name} if node else set()
        return sorted(names)

    def _ground(
        self,
        now: datetime,
        unavailable: tuple[UnavailableOffering, ...],
        grace: _Graces,
        reservations: Mapping[str, ReservationRoom],
    ) -> Ground:
        learnt = self._market.learnt
        claims = (*(claim_as_learnt(one, learnt) for one in self._facts.claims.values()), *self._ledger.unseen(now))
        templates = self._templates()
        overhead = {
            claim.name: least_overhead(template, claim)
            for claim in claims
            if not claim.launched and isinstance(template := templates.get(claim.pool), Template)
        }
        usual, by_pool = grace
        standing = homes(self._facts, claims, overhead, now=now, not_ready_grace=usual, pool_graces=by_pool)
        used = self._used(claims, templates)
        offers: list[Offer] = []
        rooms = Rooms(reservations, claims)
        closed: dict[str, Refusal] = {}
        for pool in by_preference(self._facts.pools.values()):
            template = templates[pool.name]
            if isinstance(template, Template):
                offers.append(self._market.offer(template, used.get(pool.name, {}), unavailable, now, rooms))
            else:
                closed[pool.name] = template
        found = Homes(standing)
        return Ground(self._facts, found, offers, closed, self._promised(found))

    def overlays(self) -> Mapping[str, Verdict]:
        """Which NodeOverlays are heeded, by name: what plans go by from now on."""
        return self._market.overlay(self._facts.overlays.values(), self._facts.pools.values())

    def _templates(self) -> dict[str, Template | Refusal]:
        self.overlays()
        daemons = [daemon for daemon in self._facts.daemons.values() if not invalid(daemon.pod)]
        return {pool.name: self._market.template(pool, daemons) for pool in self._facts.pools.values()}

    def _used(
        self, claims: Iterable[ClaimFact], templates: Mapping[str, Template | Refusal]
    ) -> dict[str, dict[str, int]]:
        """What each pool's nodes have. Those on their way out do not count (reference 2.16)."""
        used: dict[str, dict[str, int]] = {}
        for claim in claims:
            template = templates.get(claim.pool)
            if not claim.deleting and isinstance(template, Template):
                used[claim.pool] = add(used.get(claim.pool, {}), self._capacity(claim, template), {NODES: 1})
        for node in self._unclaimed():
            pool = node.labels[NODEPOOL]
            used[pool] = add(used.get(pool, {}), node.capacity or node.allocatable, {NODES: 1})
        return used

    def _unclaimed(self) -> Iterator[NodeFact]:
        """A pool's nodes whose NodeClaim is not there (any more)."""
        owned = {node.name for claim in self._facts.claims.values() if (node := self._facts.node_of(claim))}
        for node in self._facts.nodes.values():
            if NODEPOOL in node.labels and node.name not in owned and not node.deleting:
                yield node

    def _capacity(self, claim: ClaimFact, template: Template) -> Mapping[str, int]:
        node = self._facts.node_of(claim)
        known = claim.capacity or (node.capacity if node else {})
        return known or largest_capacity(template, claim)

    def _promised(self, standing: Homes) -> dict[str, str]:
        """Pods to the homes that were bought for them."""
        by_claim = {home.claim: home.name for home in standing.homes if home.claim}
        return {pod: by_claim[claim] for pod, claim in self._ledger.promises.items() if claim in by_claim}

    def _shape(self, pod: PodFact) -> Shape:
        known = self._shapes.get(pod.uid)
        if known is None:
            known = self._shapes[pod.uid] = shape_of(pod)
        return known

    def _invalidate(self, change: Change) -> None:
        match change.kind:
            case "pod":
                self._shapes.pop(change.key, None)
                if not isinstance(change.fact, PodFact) or change.fact.node_name or change.fact.finished:
                    self._ledger.forget_pod(change.key)
            case "claim":
                self._ledger.seen(change.key, change.fact if isinstance(change.fact, ClaimFact) else None)
            case "pool":
                self._market.forget(change.key)
                self._market.rejudge()
            case "daemonset":
                self._market.forget()
            case "buffer":
                gone = [uid for uid in self._shapes if uid.startswith(f"{change.key}-")]
                for uid in gone:
                    del self._shapes[uid]
            case "overlay":
                self._market.rejudge()
