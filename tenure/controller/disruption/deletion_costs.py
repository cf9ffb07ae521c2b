"""Writes the deletion costs of pods after a disruption pass (gate PodDeletionCostManagement).

The ReplicaSet controller deletes the pods with the lowest cost first. A cycle writes MAX_NODES nodes at most, as many
as Karpenter in the same time. Nodes that are being disrupted do not count.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog

from activities.runtime import call_for_each
from tenure import metrics
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.metrics import GaugeFamily, Meter
from tenure.model.disruption.decision import DisruptionBudgets, NodeVerdict
from tenure.model.errors import Fault, Forbidden
from tenure.model.facts import PodFact
from tenure.model.invalid_objects import ObjectKey
from tenure.model.provider_results import CostedPod, DeletionCostWrite
from tenure.scheduling.disruption.deletion_cost import TERMINATING_COST, CostedNode, decide_deletion_costs

log = structlog.get_logger(__name__)

CYCLE_SECONDS: Final = 10.0
MAX_NODES: Final = 8
"""Per cycle. Karpenter writes 50 nodes in a minute (reference 1.15, 6.1)."""
DENIED_SECONDS: Final = 60.0
"""Pause after a cycle with a pod that Tenure may not patch."""
NODES_AT_ONCE: Final = 200
MAX_CONCURRENT_NODES: Final = 2
MAX_CONCURRENT_WRITES: Final = 4
"""Per node."""
_SYSTEM_NAMESPACE: Final = "kube-system"
_MOVABLE_OWNERS: Final = frozenset({"ReplicaSet", "Job", "DaemonSet"})
_STEP: Final = "deletion cost"


class DeletionCostPort(Protocol):
    """`kube.pods` implements it."""

    async def list_costed(self, node_name: str) -> Sequence[CostedPod]: ...

    async def write_deletion_cost(self, pod: CostedPod, cost: int | None) -> DeletionCostWrite: ...


class DeletionCostWriter:
    """Call `update` after each pass; run `run` in a task."""

    def __init__(self, cache: ClusterCache, port: DeletionCostPort, meter: Meter) -> None:
        self._cache, self._port = cache, port
        self._writes = metrics.POD_DELETION_COST_WRITES.bind(meter)
        self._pending = GaugeFamily(metrics.POD_DELETION_COST_NODES_PENDING, meter)
        self._verdicts: Mapping[str, NodeVerdict] = {}
        """Of the last pass, by NodeClaim."""
        self._budgets = DisruptionBudgets()
        self._failed: set[str] = set()
        """NodeClaims whose last write failed: written after the others."""
        self._denied: Forbidden | None = None
        """The last refusal of this cycle."""
        self._updated = asyncio.Event()

    def update(self, verdicts: Sequence[NodeVerdict], budgets: DisruptionBudgets) -> None:
        self._verdicts, self._budgets = {one.claim: one for one in verdicts}, budgets
        self._updated.set()

    async def run(self) -> None:
        try:
            while True:
                await self._updated.wait()
                self._updated.clear()
                if await self.write():
                    self._updated.set()
                await asyncio.sleep(self.pause_seconds())
        finally:
            self._pending.record({})

    async def write(self) -> int:
        """One cycle. Returns the number of nodes whose costs are not written yet."""
        self._denied, verdicts = None, self._verdicts
        due = await self._due_costs(verdicts)
        terminating = [name for name, cost in due.items() if cost == TERMINATING_COST]
        others = sorted((name for name in due if due[name] != TERMINATING_COST), key=self._failed.__contains__)
        now = [*terminating, *others[:MAX_NODES]]
        written = await call_for_each(
            now, lambda name: self._write_node(verdicts[name], due[name]), at_once=MAX_CONCURRENT_NODES
        )
        failed = {name for name, is_written in zip(now, written, strict=True) if not is_written}
        self._failed = (self._failed & due.keys()) - {*now} | failed
        remaining = [*failed, *others[MAX_NODES:]]
        self._pending.record(Counter((verdicts[name].pool,) for name in remaining))
        return len(remaining)

    def pause_seconds(self) -> float:
        """A missing permission is not tried with all pods at once."""
        if self._denied is None:
            return CYCLE_SECONDS
        log.error(
            "deletion costs are not written: apply deploy/rbac/optional/PodDeletionCostManagement.yaml, or switch the "
            "gate PodDeletionCostManagement off",
            fault=self._denied.message,
        )
        return DENIED_SECONDS

    async def _due_costs(self, verdicts: Mapping[str, NodeVerdict]) -> dict[str, int | None]:
        """By NodeClaim, the cost that some pod of its node does not have; in the order in which to write them. 50,000
        pods take 0.1 s, which must not delay other tasks."""
        pods, nodes = dict[str, list[PodFact]](), list[CostedNode]()
        for number, (name, one) in enumerate(verdicts.items()):
            if number % NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if found := self._costed_pods(one.node):
                pods[name] = found
                nodes.append(self._describe_node(one, found))
        costs = decide_deletion_costs(nodes, self._budgets)
        return {name: cost for name, cost in costs.items() if any(pod.written_cost != cost for pod in pods[name])}

    def _costed_pods(self, node: str) -> list[PodFact]:
        found = self._cache.occupancy.pods_on(node).values()
        return [
            one
            for one in found
            if one.owner_kind == "ReplicaSet" and not (one.is_finished or one.deleting or one.has_foreign_cost)
        ]

    def _describe_node(self, verdict: NodeVerdict, pods: Sequence[PodFact]) -> CostedNode:
        claim, node = self._cache.nodeclaims.get(verdict.claim), self._cache.nodes.get(verdict.node)
        written = Counter(one.written_cost for one in pods if one.written_cost is not None).most_common(1)
        return CostedNode(
            verdict,
            is_drifted=claim is not None and bool(claim.drifted),
            is_disrupted=node is not None and node.being_disrupted,
            has_pinning_pods=any(map(_is_pinning, self._cache.occupancy.pods_on(verdict.node).values())),
            written=written[0][0] if written else None,
        )

    async def _write_node(self, one: NodeVerdict, cost: int | None) -> bool:
        """Whether all pods of the node have the cost now."""
        results: list[DeletionCostWrite] = ["error"]
        with self._cache.invalid_objects.guard(ObjectKey(NODE_CLAIMS.kind, one.claim, step=_STEP)):
            try:
                pods = await self._port.list_costed(one.node)
                results = await call_for_each(
                    pods, lambda pod: self._write_pod(pod, cost), at_once=MAX_CONCURRENT_WRITES
                )
            except Fault as fault:
                log.warning("deletion costs not written", nodeclaim=one.claim, fault=str(fault))
        return not {"error", "skipped_conflict"} & {*results}

    async def _write_pod(self, pod: CostedPod, cost: int | None) -> DeletionCostWrite:
        result: DeletionCostWrite = "error"
        try:
            result = await self._port.write_deletion_cost(pod, cost)
        except Fault as fault:
            if isinstance(fault, Forbidden):
                self._denied = fault
            log.warning("deletion cost not written", pod=f"{pod.namespace}/{pod.name}", fault=str(fault))
        self._writes.record(result=result)
        return result


def _is_pinning(pod: PodFact) -> bool:
    """A pod that moves only by eviction and that no ReplicaSet, Job or DaemonSet controls (reference 1.15, 6.1)."""
    is_movable = pod.owner_kind in _MOVABLE_OWNERS or pod.mirror or pod.namespace == _SYSTEM_NAMESPACE
    return not (is_movable or pod.is_finished)
