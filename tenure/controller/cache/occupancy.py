"""Occupancy of nodes: pods that need rescheduling, when the last one left, and the last arrival or departure.

Also the times at which taints of a Node appeared and its resources went missing."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from tenure.kube.facts.pod_drain import is_reschedulable
from tenure.model.facts import NodeFact, PodFact


class Occupancy:
    """Pods by node. Times are those at which the watch delivered the change."""

    def __init__(self) -> None:
        self._on_node: dict[str, dict[str, PodFact]] = {}
        self._counts: dict[str, int] = {}
        self._vacated_at: dict[str, datetime] = {}
        self._last_pod_events: dict[str, datetime] = {}

    def update_pod(self, old: PodFact | None, new: PodFact | None, now: datetime) -> tuple[str, ...]:
        """Apply a pod's change, and return the nodes that became occupied or empty."""
        touched = []
        for node in {pod.node_name for pod in (old, new) if pod is not None and pod.node_name}:
            before = old if old is not None and old.node_name == node else None
            after = new if new is not None and new.node_name == node else None
            self._update_pods(node, before, after)
            if self._update_count(node, before, after, now):
                touched.append(node)
        return tuple(touched)

    def pods_on(self, node: str) -> Mapping[str, PodFact]:
        return self._on_node.get(node, {})

    def is_occupied(self, node: str) -> bool:
        return self._counts.get(node, 0) > 0

    def vacated_at(self, node: str) -> datetime | None:
        """When the last reschedulable pod left; None if this process did not observe that."""
        return self._vacated_at.get(node)

    def last_pod_event(self, nodes: Iterable[str]) -> datetime | None:
        """When a reschedulable pod last arrived on or left one of these nodes; None without an observed event. A pod
        from before this process counts from its binding."""
        return max((self._last_pod_events[node] for node in nodes if node in self._last_pod_events), default=None)

    def forget_nodes(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._vacated_at.pop(node, None)
            self._last_pod_events.pop(node, None)

    def _update_pods(self, node: str, before: PodFact | None, after: PodFact | None) -> None:
        here = self._on_node.setdefault(node, {})
        if before is not None:
            here.pop(before.uid, None)
        if after is not None:
            here[after.uid] = after
        if not here:
            del self._on_node[node]

    def _update_count(self, node: str, before: PodFact | None, after: PodFact | None, now: datetime) -> bool:
        step = _reschedulable_count(after) - _reschedulable_count(before)
        if step == 0:
            return False
        arrived = after if step > 0 and before is None else None
        at = min((arrived and _arrived_at(arrived)) or now, now)
        last = self._last_pod_events.get(node)
        self._last_pod_events[node] = max(at, last) if last else at
        had = self._counts.get(node, 0)
        has = had + step
        if has > 0:
            self._counts[node] = has
        else:
            self._counts.pop(node, None)
            self._vacated_at[node] = now
        return (had > 0) != (has > 0)


def _arrived_at(pod: PodFact) -> datetime | None:
    """Its binding; its start if it has no condition PodScheduled, since it was created with the name of its node."""
    return pod.bound or pod.started


def _reschedulable_count(pod: PodFact | None) -> int:
    return int(pod is not None and is_reschedulable(pod))


def with_observed_times(new: NodeFact, old: NodeFact | None, now: datetime) -> NodeFact:
    """The Node with a start time for every taint, and for every resource that is not allocatable (any more). Few taints
    have a time and resources never do; for them, the time of observation counts."""
    before = old if old is not None and old.uid == new.uid else None
    known = before.tainted if before else {}
    taints = {one.name: new.tainted.get(one.name) or known.get(one.name) or now for one in new.taints}
    missing = _missing_since(new, before, now)
    if (taints, missing) == (new.tainted, new.missing):
        return new
    return new.model_copy(update={"tainted": taints, "missing": missing})


def _missing_since(new: NodeFact, before: NodeFact | None, now: datetime) -> dict[str, datetime]:
    had = {*before.allocatable, *before.missing} if before else set[str]()
    since = before.missing if before else {}
    return {key: since.get(key, now) for key in {*new.capacity, *had} if not new.allocatable.get(key)}


def concerns_pods(old: NodeFact | None, new: NodeFact | None) -> bool:
    """Whether the Node's change may affect where pods can be scheduled."""
    if old is None or new is None:
        return any(one is not None and one.deleting for one in (old, new))
    before, after = ((one.deleting, one.ready, one.taints, one.missing.keys()) for one in (old, new))
    return before != after
