"""Settings of the controller, and the kinds that a feature gate adds to the watched ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tenure.apis.feature_gates import FeatureGate
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import CAPACITY_BUFFERS, LIFECYCLE_POLICIES, NODE_OVERLAYS, POD_TEMPLATES, Resource
from tenure.model.errors import BadInput, Fault
from tenure.model.node_health import RepairMode
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.workflow_states import BatchWindow
from tenure.policy.policy_features import PolicyFeatures
from tenure.scheduling.settings import PlanSettings

KARPENTER_LEASE: Final = "karpenter-leader-election"


@dataclass(frozen=True)
class ControllerSettings:
    cluster: str
    deadlines: Deadlines = field(default_factory=Deadlines)
    window: BatchWindow = field(default_factory=BatchWindow)
    planning: PlanSettings = field(default_factory=PlanSettings)
    policy_features: PolicyFeatures = field(default_factory=PolicyFeatures)
    nominate_pods: bool = False
    """Tell kube-scheduler where pods with pod affinity, spread or host ports are expected."""
    namespace: str = "tenure"
    """The worker's namespace; its annotation pauses the whole cluster."""
    karpenter_lease: str = KARPENTER_LEASE
    """Karpenter's leader lease; empty switches the check off."""
    gates: frozenset[str] = frozenset()
    """The enabled feature gates."""
    legacy_node_repair: bool = False

    @property
    def repair_mode(self) -> RepairMode | None:
        """None if the gate NodeRepair is off."""
        if FeatureGate.NODE_REPAIR not in self.gates:
            return None
        return "legacy" if self.legacy_node_repair else "replace"


_KINDS: Final[Mapping[FeatureGate, Sequence[Resource]]] = {
    FeatureGate.NODE_OVERLAY: (NODE_OVERLAYS,),
    FeatureGate.CAPACITY_BUFFER: (CAPACITY_BUFFERS, POD_TEMPLATES),
}


def gated_kinds(gates: Collection[str]) -> list[Resource]:
    """Additional kinds to watch while these gates are on."""
    return [kind for gate, found in _KINDS.items() if gate in gates for kind in found]


async def check(client: KubeClient, gates: Mapping[str, bool]) -> None:
    """Raises BadInput for a watched kind that cannot be listed: it would block every plan."""
    await _check_readable(client, LIFECYCLE_POLICIES)
    for gate, found in _KINDS.items():
        for kind in found if gates[gate] else ():
            await _check_readable(client, kind, f"{gate.example}: ", ", or switch the gate off")


async def _check_readable(client: KubeClient, kind: Resource, why: str = "", else_do: str = "") -> None:
    try:
        await client.request("GET", kind.path(), params={"limit": "1"})
    except Fault as fault:
        raise BadInput(
            f"{why}{kind.plural} ({kind.api_version}) cannot be listed: {fault.message}; "
            f"kubectl apply -f deploy/crds -f deploy/rbac{else_do}"
        ) from fault
