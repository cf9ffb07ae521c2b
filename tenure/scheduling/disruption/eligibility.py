"""Reasons that block the disruption of a node (reference 4.2, 4.5, 4.6), PodDisruptionBudgets included.

All reasons are reported, so that a user who removes one sees the next.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.durations import DurationError, format_duration, parse_duration
from tenure.apis.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, INSTANCE_TYPE, ZONE
from tenure.model.blockers import INELIGIBILITIES
from tenure.model.disruption.decision import METHODS, Cause, Ineligibility, Method
from tenure.model.extra_capacity import VIRTUAL_PREFIX
from tenure.model.facts import NodeClaimFact, NodeFact, NodePoolFact, PodFact
from tenure.model.instance_types import InstanceType
from tenure.scheduling.disruption.blocked_nodes import format_timestamp
from tenure.scheduling.nodepool_template import NodePoolTemplate, RejectionReason
from tenure.scheduling.pod_disruption_budgets import PodDisruptionBudgets
from tenure.scheduling.pods import do_not_disrupt_until, is_do_not_disrupt
from tenure.scheduling.snapshot import Storage
from tenure.scheduling.volumes import find_unknown_volume_field

_CONSOLIDATION_METHODS: Final[tuple[Method, ...]] = ("Empty", "Underutilized")
_VOLUNTARY_METHODS: Final[tuple[Method, ...]] = (*_CONSOLIDATION_METHODS, "Drifted")
"""All but repair and expiration, which only few reasons block."""
_GRACEFUL_METHODS: Final = _CONSOLIDATION_METHODS
"""Methods that wait for pods that may not be evicted. Drift does so only without a terminationGracePeriod."""


def lifecycle_exclusions(nodeclaim: NodeClaimFact, node: NodeFact | None, *, busy: bool) -> Iterator[Ineligibility]:
    """Blockers that follow from its lifecycle."""
    if nodeclaim.deleting or nodeclaim.instance_terminating or (node is not None and node.deleting):
        yield _build_exclusion("Deleting", "it is being deleted", METHODS)
    if busy:
        yield _build_exclusion("InProgress", "it is part of a disruption in progress", METHODS)
    if nodeclaim.rebooting:
        yield _build_exclusion("InProgress", "its instance is being rebooted", METHODS)
    if node is None:
        missing = "its Node is missing" if nodeclaim.registered else "it has no Node yet"
        yield _build_exclusion("NoNode", missing, METHODS)
    elif not nodeclaim.initialized:
        yield _build_exclusion("NotInitialized", "its node is not initialized yet", (*_VOLUNTARY_METHODS, "Expired"))


def nomination_exclusions(
    nodeclaim: NodeClaimFact, node: NodeFact | None, nominated: frozenset[str], expected_names: Sequence[str]
) -> Iterator[Ineligibility]:
    """Blockers that follow from pods expected on the node. Repair of a node that never initialized ignores them
    (reference 1.15, section 3.3)."""
    methods = METHODS if nodeclaim.initialized else _VOLUNTARY_METHODS
    if nodeclaim.name in nominated or (node is not None and node.name in nominated):
        yield _build_exclusion("Nominated", "pending pods are nominated to it", methods)
    elif expected_names:
        more = f" and {len(expected_names) - 1} more" if len(expected_names) > 1 else ""
        yield _build_exclusion("Nominated", f"pod {expected_names[0]}{more} is expected on it", methods)


def nodepool_exclusions(
    nodeclaim: NodeClaimFact, pool: NodePoolFact | None, template: NodePoolTemplate | RejectionReason | None
) -> Iterator[Ineligibility]:
    """Blockers that follow from its NodePool: missing, static (drift is possible), or without a valid template."""
    if pool is None:
        message = f"NodePool {nodeclaim.pool} not found: {INELIGIBILITIES['NoPool'].remedy}"
        yield _build_exclusion("NoPool", message, METHODS)
        return
    if pool.static:
        yield _build_exclusion("StaticPool", f"NodePool {pool.name} is static", _CONSOLIDATION_METHODS)
    if isinstance(template, RejectionReason) or template is None:
        yield _build_exclusion("PoolClosed", f"NodePool {pool.name}: {template or 'it can launch no node'}", METHODS)


def age_exclusions(nodeclaim: NodeClaimFact, youngest: timedelta | None, now: datetime) -> Iterator[Ineligibility]:
    if youngest is not None and now < (until := nodeclaim.created + youngest):
        message = f"it is younger than {format_duration(youngest)}, until {format_timestamp(until)}"
        yield _build_exclusion("TooYoung", message, until=until)


def consolidate_after_exclusions(
    nodeclaim: NodeClaimFact, pool: NodePoolFact | None, now: datetime
) -> Iterator[Ineligibility]:
    """consolidateAfter and consolidationPolicy."""
    if pool is None:
        return
    if pool.consolidation_policy == "WhenEmpty":
        message = f"consolidationPolicy of NodePool {pool.name} is WhenEmpty, and pods run on it"
        yield _build_exclusion("Policy", message, ("Underutilized",))
    try:
        after = parse_duration(pool.consolidate_after)
    except DurationError:
        after = timedelta.max
    if after == timedelta.max or not pool.consolidation_policy:
        yield _build_exclusion(
            "PolicyUnknown", f"NodePool {pool.name} has no valid consolidateAfter", _CONSOLIDATION_METHODS
        )
    elif after is None:
        yield _build_exclusion("Never", f"consolidateAfter of NodePool {pool.name} is Never", _CONSOLIDATION_METHODS)
    elif (until := consolidate_after_end(nodeclaim, after)) > now:
        message = f"consolidateAfter {pool.consolidate_after} of NodePool {pool.name} ends at {format_timestamp(until)}"
        yield _build_exclusion("Resting", message, _CONSOLIDATION_METHODS, until)


def consolidate_after_end(nodeclaim: NodeClaimFact, after: timedelta) -> datetime:
    """When consolidateAfter ends, counted from the last pod event or initialization (reference 3.9)."""
    return (nodeclaim.last_pod_event or nodeclaim.initialized_at or nodeclaim.created) + after


def is_within_consolidate_after(nodeclaim: NodeClaimFact, pool: NodePoolFact | None, now: datetime) -> bool:
    """Nodes within consolidateAfter receive no pods of other consolidated nodes (reference 2.7)."""
    try:
        after = parse_duration(pool.consolidate_after) if pool is not None and pool.consolidate_after else None
    except DurationError:
        return False
    return after is not None and consolidate_after_end(nodeclaim, after) > now


def node_exclusions(node: NodeFact | None) -> Iterator[Ineligibility]:
    """Lifecycle conditions of another controller, and the annotation do-not-disrupt on the Node. As in Karpenter, only
    `true` has an effect."""
    if node and node.maintained_by_others:
        yield _build_exclusion("NodeMaintenance", node.maintained_by_others, METHODS)
    if node and node.annotations.get(DO_NOT_DISRUPT) == "true":
        yield _build_exclusion("NodeDoNotDisrupt", f"the Node has the annotation {DO_NOT_DISRUPT}: true")


def pod_exclusions(
    nodeclaim: NodeClaimFact, bound: Iterable[PodFact], budgets: PodDisruptionBudgets, storage: Storage, now: datetime
) -> Iterator[Ineligibility]:
    """Pods that may not be evicted, and pods that Tenure cannot plan. The former do not block drift of a NodeClaim with
    a terminationGracePeriod, after which they are deleted (reference 3.15), nor repair with a bound of its own."""
    methods = _GRACEFUL_METHODS
    if not nodeclaim.termination_grace_period:
        is_bounded = nodeclaim.repair_due is not None and nodeclaim.repair_due.grace is not None
        methods = (*methods, "Drifted") if is_bounded else (*methods, "Drifted", "Unhealthy")
    for pod in sorted(bound, key=lambda one: (one.namespace, one.name)):
        is_running = not (pod.deleting or pod.is_finished)
        unplannable = pod.unplannable or find_unknown_volume_field(pod, storage)
        if unplannable and is_running and not (pod.daemonset or pod.mirror):
            yield _build_exclusion("PodUnplannable", f"pod {pod.namespace}/{pod.name}: {unplannable}")
        elif is_running and is_do_not_disrupt(pod, now):
            until = do_not_disrupt_until(pod)
            message = f"pod {pod.namespace}/{pod.name} has the annotation {DO_NOT_DISRUPT}: {pod.do_not_disrupt}"
            yield _build_exclusion("PodDoNotDisrupt", f"{message}{_format_end(until)}", methods, until)
        budget_reason = budgets.rejection_reason(pod)
        if budget_reason:
            budget_count = len(budgets.selecting_budgets(pod))
            cause: Cause = "MultiplePodDisruptionBudgets" if budget_count > 1 else "PodDisruptionBudget"
            yield _build_exclusion(cause, budget_reason, methods)


def capacity_buffer_exclusions(virtual: Sequence[PodFact]) -> Iterator[Ineligibility]:
    """An empty node with headroom for a CapacityBuffer stays."""
    if virtual:
        first = virtual[0]
        buffer = first.name.removeprefix(VIRTUAL_PREFIX).rpartition("-")[0]
        message = f"it holds capacity for {len(virtual)} pods of CapacityBuffer {first.namespace}/{buffer}"
        yield _build_exclusion("CapacityBuffer", message, ("Empty",))


def price_exclusions(
    labels: Mapping[str, str],
    template: NodePoolTemplate | RejectionReason | None,
    instance_type: InstanceType | None,
    price: float,
) -> Iterator[Ineligibility]:
    """Missing labels, instance type or price, without which prices cannot be compared. Without a template the instance
    types are unknown, and `nodepool_exclusions` states the reason."""
    if not isinstance(template, NodePoolTemplate):
        return
    only: tuple[Method, ...] = ("Underutilized",)
    name = labels.get(INSTANCE_TYPE, "")
    if instance_type is None:
        message = f"its instance type {name} is not in the catalogue" if name else f"it has no label {INSTANCE_TYPE}"
        yield _build_exclusion("NoInstanceType", message, only)
    for key, cause in _REQUIRED_LABELS:
        if not labels.get(key):
            yield _build_exclusion(cause, f"it has no label {key}", only)
    if instance_type is not None and not price and all(labels.get(key) for key, _ in _REQUIRED_LABELS):
        where = f"{name} as {labels[CAPACITY_TYPE]} in {labels[ZONE]}"
        yield _build_exclusion("NoPrice", f"no price is known for {where}", only)


_REQUIRED_LABELS: Final[tuple[tuple[str, Cause], ...]] = ((CAPACITY_TYPE, "NoCapacityType"), (ZONE, "NoZone"))


def _build_exclusion(
    cause: Cause, message: str, methods: tuple[Method, ...] = _VOLUNTARY_METHODS, until: datetime | None = None
) -> Ineligibility:
    return Ineligibility(cause=cause, message=message, methods=methods, until=until)


def _format_end(until: datetime | None) -> str:
    return f", until {format_timestamp(until)}" if until else ""
