"""The state of the planner process: facts in, plans out. It reads no clock and performs no I/O."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.labels import NODEPOOL
from tenure.apis.resources import NODES
from tenure.model.blockers import NODEPOOL_NOT_READY, POD_UNPLANNABLE
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.disruption.decision import Decision, DisruptionRequest
from tenure.model.facts import NodeClaimFact, NodeFact, PodFact
from tenure.model.instance_types import Catalogue, DevicesByNodeClass, ReservationHeadroom, UnavailableOffering
from tenure.model.plan import Plan, PlannedNodeClaim, UnschedulablePod
from tenure.scheduling.disruption.candidates import ignore_preemption
from tenure.scheduling.disruption.decision import DisruptionContext, decide_disruption
from tenure.scheduling.existing_nodes import ExistingNodes, NodeCache, build_existing_nodes
from tenure.scheduling.nodeoverlays import OverlayValidation
from tenure.scheduling.nodepool_template import NodePoolTemplate, Offer, RejectionReason, ReservationTracker
from tenure.scheduling.offerings import (
    Offerings,
    largest_capacity,
    prefer_linux,
    sort_by_weight,
    unlaunched_daemon_demand,
)
from tenure.scheduling.packing.planning_pass import PassInputs, PassSettings, plan_pods
from tenure.scheduling.packing.pod_requirements import PodShape, PodShapeCache
from tenure.scheduling.packing.rejections import unscheduled_pod
from tenure.scheduling.planner_guard import PlannerGuard
from tenure.scheduling.pods import validation_error
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change, ClusterFacts, CommittedNodeClaims, with_discovered_memory
from tenure.scheduling.unscheduled_pods import list_unscheduled_pods

__all__ = ["Change", "ClusterState"]

_NOT_READY: Final = RejectionReason("it is not ready: see its conditions", NODEPOOL_NOT_READY)
_STATIC: Final = RejectionReason("it is static and launches no nodes for pods", NODEPOOL_NOT_READY)
_DEFAULT_GRACE: Final = timedelta(minutes=5)
_GracePeriods = tuple[timedelta, Mapping[str, timedelta]]
"""How long pods wait for NotReady nodes: the default, and NodePools that differ."""


def strip_virtual_pods(plan: Plan, virtual: Collection[str]) -> Plan:
    """Separate the pods of CapacityBuffers, which get capacity but no nomination and no event."""
    if not virtual:
        return plan
    return plan.model_copy(
        update={
            "claims": tuple(_separate_virtual_pods(one, virtual) for one in plan.claims),
            "nominations": {uid: node_name for uid, node_name in plan.nominations.items() if uid not in virtual},
            "reserved": {uid: node_name for uid, node_name in plan.nominations.items() if uid in virtual},
            "unschedulable": tuple(one for one in plan.unschedulable if one.pod_uid not in virtual),
        }
    )


def _separate_virtual_pods(claim: PlannedNodeClaim, virtual: Collection[str]) -> PlannedNodeClaim:
    own = tuple(uid for uid in claim.pods if uid in virtual)
    return claim.model_copy(
        update={"pods": tuple(uid for uid in claim.pods if uid not in virtual), "virtual_pods": own}
    )


class ClusterState:
    """The cluster as the planner knows it. One plan at a time; the next one sees every `commit`."""

    def __init__(
        self, settings: PlanSettings | None = None, check_preempted: Callable[[], None] = ignore_preemption
    ) -> None:
        """`check_preempted`: called often during a preemptible request. Raises `Preempted` to end it."""
        self.settings, self._check_preempted = settings or PlanSettings(), check_preempted
        self._facts = ClusterFacts()
        self._pod_shapes = PodShapeCache()
        self.guard = PlannerGuard(self._pod_shapes)
        self._offerings = Offerings(self.guard.of)
        self._committed_nodeclaims = CommittedNodeClaims()
        self._node_cache = NodeCache()

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply changes in the order in which they happened. Raises TypeError for a fact of the wrong kind."""
        for change in filter(None, map(self.guard.check, changes)):
            daemon_revision = self._facts.daemon_pods.revision
            self._facts.apply(change)
            self._invalidate(change)
            if self._facts.daemon_pods.revision != daemon_revision:
                self._offerings.invalidate_templates()

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """Replace the instance types and prices of every EC2NodeClass."""
        self.guard.retry_faulty_pods()
        self._offerings.set_catalogue(catalogue)

    def set_devices(self, devices: DevicesByNodeClass) -> None:
        """Replace the DRA devices of all instance types."""
        self.guard.retry_faulty_pods()
        self._offerings.set_devices(devices)

    def apply_discovered_capacity(self, discovered: DiscoveredCapacity, specs: Mapping[str, str]) -> None:
        """Set the discovered capacity; the next plan uses it. `specs`: spec hashes by EC2NodeClass."""
        self._offerings.apply_discovered_capacity(discovered, specs)

    def commit(self, nodeclaims: Mapping[str, PlannedNodeClaim], *, now: datetime) -> None:
        """Count NodeClaims that are being created from a plan, by name.

        They count until `apply` receives them, or for 60 s if it never does.
        """
        self._committed_nodeclaims.add(nodeclaims, now)

    def provision(
        self,
        *,
        now: datetime,
        unavailable: Iterable[UnavailableOffering] = (),
        not_ready_grace: timedelta = _DEFAULT_GRACE,
        pool_graces: Mapping[str, timedelta] | None = None,
        reservations: Mapping[str, ReservationHeadroom] | None = None,
        launch_blockers: Mapping[str, str] | None = None,
    ) -> Plan:
        """Place every pod that needs a node, and choose the nodes to launch.

        `not_ready_grace`: how long a NotReady node keeps its pods and capacity; `pool_graces` overrides it by
        NodePool. `launch_blockers`: pod UID to the reason why no node may be launched for the pod. The caller has a
        clock and sets the plan's `seconds`.
        """
        grace = (not_ready_grace, pool_graces or {})
        virtual = {pod.uid for pods in self._facts.virtual.values() for pod in pods}
        rejected: list[UnschedulablePod] = []
        shaped_pods = list(self._shape_pending_pods(now, rejected))
        if not shaped_pods:
            return strip_virtual_pods(Plan(unschedulable=tuple(rejected)), virtual)
        inputs = self._build_pass_inputs(now, tuple(unavailable), grace, reservations or {})
        plan_result = self._plan_pods(shaped_pods, replace(inputs, launch_blockers=launch_blockers or {}), now)
        unschedulable = (*rejected, *plan_result.unschedulable)
        return strip_virtual_pods(plan_result.model_copy(update={"unschedulable": unschedulable}), virtual)

    def disrupt(self, request: DisruptionRequest) -> Decision:
        """Nodes eligible for voluntary disruption, and their replacements. Pending pods are placed first.

        Raises `Preempted`."""
        check_preempted = self._check_preempted if request.preemptible else ignore_preemption
        grace = (request.not_ready_grace, request.not_ready_grace_by_pool)
        check_preempted()
        shaped_pods = list(self._shape_pending_pods(request.now, []))
        inputs = self._build_pass_inputs(request.now, request.unavailable, grace, request.reservations)
        check_preempted()
        plan_result = self._plan_pods(shaped_pods, inputs, request.now, check_preempted) if shaped_pods else Plan()
        virtual = frozenset(pod.uid for pods in self._facts.virtual.values() for pod in pods)
        waiting = {pod.uid: pod for _, pod in shaped_pods}
        return decide_disruption(
            DisruptionContext(
                inputs,
                self._pass_settings(),
                self._build_templates(),
                self._pod_shapes.shape,
                plan_result,
                waiting,
                virtual,
                self.guard.of,
                check_preempted,
            ),
            request,
        )

    def _plan_pods(
        self,
        shaped_pods: list[tuple[PodShape, PodFact]],
        inputs: PassInputs,
        now: datetime,
        check_preempted: Callable[[], None] = ignore_preemption,
    ) -> Plan:
        def make_plan(pods: Sequence[tuple[PodShape, PodFact]]) -> Plan:
            check_preempted()
            return plan_pods(pods, inputs, self._pass_settings())

        return self.guard.plan(shaped_pods, make_plan, now)

    def _pass_settings(self) -> PassSettings:
        settings = self.settings
        return PassSettings(
            settings.preference_policy, settings.min_values_policy, settings.most_instance_types, settings.node_cost
        )

    def _shape_pending_pods(
        self, now: datetime, rejected: list[UnschedulablePod]
    ) -> Iterator[tuple[PodShape, PodFact]]:
        for pod in list_unscheduled_pods(self._facts, now):
            reason = self._pod_shapes.validation_error(pod)
            if reason:
                rejected.append(unscheduled_pod(pod, reason, POD_UNPLANNABLE))
            else:
                yield self._pod_shapes.shape(pod), pod

    def _build_pass_inputs(
        self,
        now: datetime,
        unavailable: tuple[UnavailableOffering, ...],
        grace: _GracePeriods,
        reservations: Mapping[str, ReservationHeadroom],
    ) -> PassInputs:
        discovered = self._offerings.discovered
        nodeclaims = (
            *(with_discovered_memory(one, discovered) for one in self._facts.nodeclaims.values()),
            *self._committed_nodeclaims.unobserved(now),
        )
        templates = self._build_templates()
        unlaunched_demand = {}
        for nodeclaim in nodeclaims:
            template = templates.get(nodeclaim.pool)
            if not nodeclaim.launched and isinstance(template, NodePoolTemplate):
                with self.guard.of(nodeclaim, "overhead"):
                    unlaunched_demand[nodeclaim.name] = unlaunched_daemon_demand(template, nodeclaim)
        default_grace, by_pool = grace
        nodes = build_existing_nodes(
            self._facts,
            nodeclaims,
            unlaunched_demand,
            now=now,
            not_ready_grace=default_grace,
            pool_graces=by_pool,
            guard=self.guard.of,
            cache=self._node_cache,
        )
        used = self._used_by_pool(nodeclaims, templates)
        offers: list[Offer] = []
        reservation_tracker = ReservationTracker(reservations, nodeclaims)
        closed: dict[str, RejectionReason] = {}
        for pool in sort_by_weight(self._facts.pools.values()):
            offer: NodePoolTemplate | Offer | RejectionReason = templates[pool.name] if pool.ready else _NOT_READY
            if isinstance(offer, NodePoolTemplate):
                offer = self._offerings.create_offer(
                    offer, used.get(pool.name, {}), unavailable, now, reservation_tracker
                )
            if isinstance(offer, Offer):
                offers.append(offer)
            else:
                closed[pool.name] = offer
        if not offers and not closed:
            closed = {pool.name: _STATIC for pool in self._facts.pools.values() if pool.static and not pool.deleting}
        existing_nodes = ExistingNodes(nodes)
        return PassInputs(
            self._facts, existing_nodes, prefer_linux(offers), closed, self._nodes_by_promised_pod(existing_nodes)
        )

    def overlay_validations(self) -> Mapping[str, OverlayValidation]:
        """The validation of each NodeOverlay, by name; plans use the valid ones from now on."""
        return self._offerings.evaluate_overlays(self._facts.overlays.values(), self._facts.pools.values())

    def _build_templates(self) -> dict[str, NodePoolTemplate | RejectionReason]:
        self.overlay_validations()
        daemons = [daemon for daemon in self._facts.daemons if not validation_error(daemon.pod)]
        return {pool.name: self._offerings.get_template(pool, daemons) for pool in self._facts.pools.values()}

    def _used_by_pool(
        self, nodeclaims: Iterable[NodeClaimFact], templates: Mapping[str, NodePoolTemplate | RejectionReason]
    ) -> Mapping[str, Mapping[str, int]]:
        """Capacity of each pool's nodes. Terminating nodes do not count (reference 2.16)."""
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for nodeclaim in nodeclaims:
            template = templates.get(nodeclaim.pool)
            if not nodeclaim.deleting and isinstance(template, NodePoolTemplate):
                capacity: Mapping[str, int] = {}
                with self.guard.of(nodeclaim, "usage"):
                    capacity = self._estimate_capacity(nodeclaim, template)
                used[nodeclaim.pool].update(capacity, **{NODES: 1})
        for node in self._nodes_without_nodeclaim():
            pool = node.labels[NODEPOOL]
            used[pool].update(node.capacity or node.allocatable, **{NODES: 1})
        return used

    def _nodes_without_nodeclaim(self) -> Iterator[NodeFact]:
        """Nodes of a pool whose NodeClaim does not exist (any more)."""
        owned = {node.name for nodeclaim in self._facts.nodeclaims.values() if (node := self._facts.node_of(nodeclaim))}
        owned |= self._facts.strangers()
        for node in self._facts.nodes.values():
            if NODEPOOL in node.labels and node.name not in owned and not node.deleting:
                yield node

    def _estimate_capacity(self, nodeclaim: NodeClaimFact, template: NodePoolTemplate) -> Mapping[str, int]:
        node = self._facts.node_of(nodeclaim)
        known = nodeclaim.capacity or (node.capacity if node else {})
        return known or largest_capacity(template, nodeclaim)

    def _nodes_by_promised_pod(self, existing_nodes: ExistingNodes) -> dict[str, str]:
        """Pod UID to the existing node that was launched for the pod."""
        by_nodeclaim = {node.nodeclaim: node.name for node in existing_nodes.nodes if node.nodeclaim}
        return {
            pod: by_nodeclaim[nodeclaim]
            for pod, nodeclaim in self._committed_nodeclaims.promised_nodeclaims.items()
            if nodeclaim in by_nodeclaim
        }

    def _invalidate(self, change: Change) -> None:
        if change.kind in ("pool", "daemonset", "overlay"):
            self.guard.retry_faulty_pods()
        match change.kind:
            case "pod":
                if not isinstance(change.fact, PodFact) or change.fact.node_name or change.fact.is_finished:
                    self._committed_nodeclaims.forget_pod(change.key)
            case "claim":
                self._committed_nodeclaims.observe(
                    change.key, change.fact if isinstance(change.fact, NodeClaimFact) else None
                )
            case "pool":
                self._offerings.invalidate_templates(change.key)
                self._offerings.invalidate_overlays()
            case "daemonset":
                self._offerings.invalidate_templates()
            case "buffer":
                self._pod_shapes.discard_prefix(f"{change.key}-")
            case "overlay":
                self._offerings.invalidate_overlays()
