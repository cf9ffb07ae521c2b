"""How long pods wait for a node that is NotReady or missing, has a transient taint or lacks a requested device.

During the grace period the node's capacity counts and its pods wait; then they are rescheduled. The grace period is
cumulative, so that a flapping node does not keep its pods for ever. A stopped instance that a LifecyclePolicy waits
for has its own period.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from tenure.apis.labels import MAINTENANCE_UNTIL, NOT_READY_INTERVALS, NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY
from tenure.apis.resources import is_transient_taint, missing_resources
from tenure.model.base import parse_timestamp
from tenure.model.facts import NodeClaimFact, NodeFact, Taint
from tenure.model.node_health import NotReadyInterval, ongoing_since, parse_intervals

WINDOW_IN_GRACE_PERIODS: Final = 6
"""The window in which NotReady time counts, in grace periods: half an hour for a grace period of five minutes."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_NOT_READY_TAINT_KEYS: Final = {NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY}

NodePresence = Literal["here", "expected", "lost"]


def has_grace(nodeclaim: NodeClaimFact) -> bool:
    """Before initialization and during a reboot for repair, a deadline applies instead of the grace, except to a Node
    that disappeared."""
    return (nodeclaim.initialized and not nodeclaim.rebooting) or nodeclaim.node_missing_since is not None


class NotReadyGrace:
    """Used and remaining NotReady grace of one node. `nodeclaim`: its NodeClaim, if `has_grace`.

    `node` None: the registered Node of the NodeClaim is missing, which counts as NotReady.
    """

    def __init__(self, node: NodeFact | None, grace: timedelta, nodeclaim: NodeClaimFact | None = None) -> None:
        self._is_missing, self.length = node is None, grace
        node = node or NodeFact(name="", ready_changed=nodeclaim.node_missing_since if nodeclaim else None)
        self._node = node
        self._missing_resources = _missing_resources(node, nodeclaim) if nodeclaim else []
        self._startup_taint_names = set[str]()
        self._recorded_intervals: tuple[NotReadyInterval, ...] = ()
        self._not_ready_since: datetime | None = None
        self._maintenance_until: datetime | None = None
        # Almost every node is ready, and every plan evaluates thousands of them.
        if node.ready and not node.taints and not self._missing_resources:
            return
        if nodeclaim:
            self._startup_taint_names = {one.name for one in nodeclaim.startup_taints}
            self._recorded_intervals = parse_intervals(nodeclaim.annotations.get(NOT_READY_INTERVALS, ""))
            self._maintenance_until = parse_timestamp(nodeclaim.annotations.get(MAINTENANCE_UNTIL, ""))
        self._not_ready_since = self._interval_start(nodeclaim.initialized_at if nodeclaim else None)

    @property
    def not_ready_since(self) -> datetime | None:
        """The start of the current interval; None for a node whose presence is `here`."""
        return self._not_ready_since

    @property
    def describe_causes(self) -> str:
        """Text that names why pods cannot run on it."""
        if self._is_missing:
            return "NodeMissing"
        others = [taint.name for taint in self._transient_taints() if taint.key not in _NOT_READY_TAINT_KEYS]
        others += [f"{resource} is not allocatable" for resource in self._missing_resources]
        return ", ".join(["NotReady"] * (not self._node.ready or not others) + others)

    def presence(self, now: datetime) -> NodePresence:
        if self._not_ready_since is None:
            return "here"
        is_stopped = self._maintenance_until is not None and now < self._maintenance_until
        return "expected" if is_stopped or self.used_time(now) < self.length else "lost"

    def used_time(self, now: datetime) -> timedelta:
        """NotReady time within the window, including the current interval."""
        if self._not_ready_since is None:
            return timedelta()
        window_start = now - WINDOW_IN_GRACE_PERIODS * self.length
        return sum(
            (_overlap_duration(one, window_start, self._not_ready_since) for one in self._recorded_intervals),
            max(now - self._not_ready_since, timedelta()),
        )

    def interval_count(self, now: datetime) -> int:
        """The number of intervals in `used_time`."""
        window_start = now - WINDOW_IN_GRACE_PERIODS * self.length
        before = [
            one
            for one in self._recorded_intervals
            if self._not_ready_since and _overlap_duration(one, window_start, self._not_ready_since)
        ]
        return len(before) + (self._not_ready_since is not None)

    def earliest_end(self, now: datetime) -> datetime:
        """Earliest time at which the grace ends; it may move later as old intervals expire."""
        ends = now + max(self.length - self.used_time(now), timedelta())
        return max(ends, self._maintenance_until) if self._maintenance_until else ends

    def _interval_start(self, initialized: datetime | None) -> datetime | None:
        """The earliest current cause; an open recorded interval began no later."""
        node = self._node
        default = node.ready_changed or node.created or _EPOCH
        starts = [default] if not node.ready else []
        starts += [node.tainted.get(taint.name, default) for taint in self._transient_taints()]
        known = ongoing_since(self._recorded_intervals)
        starts += [node.missing.get(resource, known or default) for resource in self._missing_resources]
        if not starts:
            return None
        return max(min([*starts, known] if known else starts), initialized or _EPOCH)

    def _transient_taints(self) -> Iterable[Taint]:
        return (
            taint
            for taint in self._node.taints
            if is_transient_taint(taint.key) or taint.name in self._startup_taint_names
        )


def _missing_resources(node: NodeFact, nodeclaim: NodeClaimFact) -> list[str]:
    """Resources that its NodeClaim requests and the node lacks. Devices disappear for a while when the kubelet
    restarts."""
    return missing_resources(nodeclaim.requests, node.allocatable, ignored=nodeclaim.dra_resources)


def _overlap_duration(one: NotReadyInterval, since: datetime, until: datetime) -> timedelta:
    """The overlap of a closed interval with this time; zero for an open interval."""
    end = min(one.until, until) if one.until else until
    return max(end - max(one.since, since), timedelta()) if one.until else timedelta()
