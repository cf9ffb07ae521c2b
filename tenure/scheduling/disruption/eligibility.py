"""What keeps a node from being disrupted, cause by cause, in words (reference 4.2, 4.5, 4.6).

`candidates.py` asks all of them, so that whoever removes one obstacle knows the next.

PodDisruptionBudgets: whether they let a pod be evicted now.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.durations import DurationError, format_duration, parse_duration
from tenure.apis.labels import CAPACITY_TYPE, DISRUPTED_TAINT_KEY, DO_NOT_DISRUPT, INSTANCE_TYPE, NO_SCHEDULE, ZONE
from tenure.model.disruption.planning import Cause, Exclusion, Method
from tenure.model.extra_capacity import VIRTUAL_PREFIX
from tenure.model.facts import ClaimFact, NodeFact, PodBudgetFact, PodFact, PoolFact, Taint
from tenure.model.instance_types import InstanceType
from tenure.scheduling.nodepool_template import Refusal, Template
from tenure.scheduling.packing.topology import Census
from tenure.scheduling.pods import held_until, holds_its_node
from tenure.scheduling.taints import untolerated

_DISRUPTED: Final = Taint(key=DISRUPTED_TAINT_KEY, effect=NO_SCHEDULE)


class PodBudgets:
    """All of them, by namespace."""

    def __init__(self, budgets: Iterable[PodBudgetFact]) -> None:
        self._by_namespace: dict[str, list[tuple[Census, PodBudgetFact]]] = {}
        for one in sorted(budgets, key=lambda one: one.key):
            census = Census("", frozenset({one.namespace}), one.selector)
            self._by_namespace.setdefault(one.namespace, []).append((census, one))

    def of(self, pod: PodFact) -> tuple[PodBudgetFact, ...]:
        known = self._by_namespace.get(pod.namespace, ())
        return tuple(one for census, one in known if census.selects(pod.namespace, pod.labels))

    def never_lets(self, pod: PodFact) -> bool:
        """Some budget will not allow it, however long one waits (reference 2.2)."""
        return pod.namespace in self._by_namespace and any(one.never for one in self.of(pod))

    def refusal(self, pod: PodFact) -> str:
        """Why this pod cannot be evicted now, in words; empty when it can, or does not have to be (reference 4.2)."""
        if pod.namespace not in self._by_namespace or not _is_evicted(pod):
            return ""
        found = self.of(pod)
        said = f"pod {pod.namespace}/{pod.name}"
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            return f"{said} is selected by {len(found)} PodDisruptionBudgets ({names}), and then nothing may evict it"
        for one in found:
            if one.disruptions_allowed <= 0 and not (one.always_allow_unhealthy and pod.ready is False):
                return f"{said}: PodDisruptionBudget {one.key} allows no disruption now"
        return ""


def _is_evicted(pod: PodFact) -> bool:
    """Neither static pods nor those that tolerate the taint are, nor those that end by themselves."""
    if pod.mirror or pod.finished or pod.deleting:
        return False
    return untolerated(pod.tolerations, (_DISRUPTED,)) is not None


_CONSOLIDATION: Final[tuple[Method, ...]] = ("Empty", "Underutilized")
_GRACEFUL: Final = _CONSOLIDATION
"""Those that wait for pods which may not be evicted; drift does not, once the node has a terminationGracePeriod."""


def of_life(claim: ClaimFact, node: NodeFact | None, *, busy: bool) -> Iterator[Exclusion]:
    """Where it is in its life."""
    if claim.deleting or claim.instance_terminating or (node is not None and node.deleting):
        yield _because("Deleting", "it is being deleted")
    if busy:
        yield _because("InProgress", "it is part of a disruption that is under way")
    if node is None:
        yield _because("NoNode", "it has no Node yet")
    elif not claim.initialized:
        yield _because("NotInitialized", "its node is not initialized yet")


def of_expectation(
    claim: ClaimFact, node: NodeFact | None, nominated: frozenset[str], held: Sequence[str]
) -> Iterator[Exclusion]:
    """Pods that wait count on it."""
    if claim.name in nominated or (node is not None and node.name in nominated):
        yield _because("Nominated", "pods that wait were told to go there")
    elif held:
        more = f" and {len(held) - 1} more" if len(held) > 1 else ""
        yield _because("Nominated", f"pod {held[0]}{more} has its place there")


def of_pool(claim: ClaimFact, pool: PoolFact | None, template: Template | Refusal | None) -> Iterator[Exclusion]:
    """Whether its NodePool can say anything about it."""
    if pool is None:
        yield _because("NoPool", f"NodePool {claim.pool} is not there")
        return
    if pool.static:
        yield _because("StaticPool", f"NodePool {pool.name} is static: it keeps its number of nodes by itself")
    if isinstance(template, Refusal) or template is None:
        yield _because("PoolClosed", f"NodePool {pool.name}: {template or 'nothing can be bought from it'}")


def of_age(claim: ClaimFact, youngest: timedelta | None, now: datetime) -> Iterator[Exclusion]:
    if youngest is not None and now < (until := claim.created + youngest):
        words = f"it is younger than {format_duration(youngest)}, until {_at(until)}"
        yield _because("TooYoung", words, until=until)


def of_rest(claim: ClaimFact, pool: PoolFact | None, now: datetime) -> Iterator[Exclusion]:
    """consolidateAfter and consolidationPolicy."""
    if pool is None:
        return
    if pool.consolidation_policy == "WhenEmpty":
        words = f"consolidationPolicy of NodePool {pool.name} is WhenEmpty, and pods run on it"
        yield _because("Policy", words, ("Underutilized",))
    try:
        after = parse_duration(pool.consolidate_after)
    except DurationError:
        after = timedelta.max
    if after == timedelta.max or not pool.consolidation_policy:
        yield _because("PolicyUnknown", f"NodePool {pool.name} does not say when nodes may go", _CONSOLIDATION)
    elif after is None:
        yield _because("Never", f"consolidateAfter of NodePool {pool.name} is Never", _CONSOLIDATION)
    elif (until := rests_until(claim, after)) > now:
        words = f"consolidateAfter {pool.consolidate_after} of NodePool {pool.name} is over at {_at(until)}"
        yield _because("Resting", words, _CONSOLIDATION, until)


def rests_until(claim: ClaimFact, after: timedelta) -> datetime:
    """So long after the last pod came or left, or after it was initialized (reference 3.9)."""
    return (claim.last_pod_event or claim.initialized_at or claim.created) + after


def is_resting(claim: ClaimFact, pool: PoolFact | None, now: datetime) -> bool:
    """Nodes under consolidateAfter take no pods of other nodes that are consolidated (reference 2.7)."""
    try:
        after = parse_duration(pool.consolidate_after) if pool is not None and pool.consolidate_after else None
    except DurationError:
        return False
    return after is not None and rests_until(claim, after) > now


def of_node(node: NodeFact | None, now: datetime) -> Iterator[Exclusion]:
    """The annotation do-not-disrupt on the Node: `true`, or a duration since it was made."""
    said = node.annotations.get(DO_NOT_DISRUPT, "") if node else ""
    if said == "true":
        yield _because("NodeDoNotDisrupt", f"the Node has the annotation {DO_NOT_DISRUPT}: true")
    elif said and node and node.created:
        try:
            lasting = parse_duration(said)
        except DurationError:
            return
        if lasting is None or now < node.created + lasting:
            until = None if lasting is None else node.created + lasting
            words = f"the Node has the annotation {DO_NOT_DISRUPT}: {said}{_ends(until)}"
            yield _because("NodeDoNotDisrupt", words, until=until)


def of_pods(claim: ClaimFact, bound: Iterable[PodFact], budgets: PodBudgets, now: datetime) -> Iterator[Exclusion]:
    """Pods that may not be evicted. Drift may take the node all the same once its NodeClaim has a
    terminationGracePeriod: then they have an end (reference 3.15)."""
    methods: tuple[Method, ...] = _GRACEFUL if claim.termination_grace_period else (*_GRACEFUL, "Drifted")
    for pod in sorted(bound, key=lambda one: (one.namespace, one.name)):
        if not pod.deleting and not pod.finished and holds_its_node(pod, now):
            until = held_until(pod)
            said = f"pod {pod.namespace}/{pod.name} has the annotation {DO_NOT_DISRUPT}: {pod.do_not_disrupt}"
            yield _because("PodDoNotDisrupt", f"{said}{_ends(until)}", methods, until)
        refusal = budgets.refusal(pod)
        if refusal:
            yield _because("PodDisruptionBudget", refusal, methods)


def of_buffers(virtual: Sequence[PodFact]) -> Iterator[Exclusion]:
    """An empty node that is the room of a CapacityBuffer stays."""
    if virtual:
        first = virtual[0]
        buffer = first.name.removeprefix(VIRTUAL_PREFIX).rpartition("-")[0]
        words = f"it keeps room for {len(virtual)} pods of CapacityBuffer {first.namespace}/{buffer}"
        yield _because("CapacityBuffer", words, ("Empty",))


def of_market(marks: Mapping[str, str], kind: InstanceType | None, price: float) -> Iterator[Exclusion]:
    """What has to be known to compare prices."""
    only: tuple[Method, ...] = ("Underutilized",)
    name = marks.get(INSTANCE_TYPE, "")
    if kind is None:
        words = f"its instance type {name} is not in the catalogue" if name else f"it has no label {INSTANCE_TYPE}"
        yield _because("NoInstanceType", words, only)
    for key, cause in _NEEDED:
        if not marks.get(key):
            yield _because(cause, f"it has no label {key}", only)
    if kind is not None and not price and all(marks.get(key) for key, _ in _NEEDED):
        where = f"{name} as {marks[CAPACITY_TYPE]} in {marks[ZONE]}"
        yield _because("NoPrice", f"no price is known for {where}", only)


_NEEDED: Final[tuple[tuple[str, Cause], ...]] = ((CAPACITY_TYPE, "NoCapacityType"), (ZONE, "NoZone"))


def _because(
    cause: Cause, words: str, methods: tuple[Method, ...] = (*_CONSOLIDATION, "Drifted"), until: datetime | None = None
) -> Exclusion:
    return Exclusion(cause=cause, words=words, methods=methods, until=until)


def _ends(until: datetime | None) -> str:
    return f", until {_at(until)}" if until else ""


def _at(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
