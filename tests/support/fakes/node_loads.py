"""Loads of nodes, from the pods of `FakePods`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tenure.model.extra_capacity import MovedPod, NodeLoad
from tests.support.fakes.faulty import FaultInjectable
from tests.support.fakes.kubernetes import FakePods


@dataclass
class FakeLoads(FaultInjectable):
    pods: FakePods
    weights: dict[str, MovedPod] = field(default_factory=dict)
    """Eviction costs by pod name; other pods have the default cost."""

    async def on_nodes(self, names: Collection[str], *, now: datetime) -> Mapping[str, NodeLoad]:
        return {name: self._on(name) for name in names}

    def _on(self, node: str) -> NodeLoad:
        pods = self.pods.by_node.get(node, [])
        moved = tuple(self.weights.get(pod.name, MovedPod()) for pod in pods if pod.reschedulable)
        return NodeLoad(moved=moved, protected=any(pod.protected for pod in pods))
