"""Settings of the controller, and the kinds that a feature gate adds to the watched ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tenure.apis.feature_gates import FeatureGate
from tenure.kube.client import resources
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import Resource
from tenure.kube.facts import default_spread
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
    plans_devices: bool = False
    """Plan pods with ResourceClaims onto Nodes whose devices ResourceSlices show."""
    default_constraints: tuple[Mapping[str, Any], ...] = ()
    """Default topology spread constraints, in the form of a pod's."""

    @property
    def repair_mode(self) -> RepairMode | None:
        """None if the gate NodeRepair is off."""
        if FeatureGate.NODE_REPAIR not in self.gates:
            return None
        if self.legacy_node_repair:
            return "legacy"
        return "reboot" if FeatureGate.REBOOT_FOR_REPAIR in self.gates else "replace"


_KINDS: Final[Mapping[FeatureGate, Sequence[Resource]]] = {
    FeatureGate.NODE_OVERLAY: (resources.NODE_OVERLAYS,),
    FeatureGate.CAPACITY_BUFFER: (resources.CAPACITY_BUFFERS, resources.POD_TEMPLATES),
}


SPREAD_KINDS: Final = tuple(resources.RESOURCES[kind] for kind in default_spread.KINDS)
"""Kinds to watch with default topology spread constraints."""


DEVICE_KINDS: Final = (
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.RESOURCE_CLAIMS,
    resources.RESOURCE_SLICES,
)
"""Kinds to watch with `plans_devices`."""


def gated_kinds(gates: Collection[str]) -> list[Resource]:
    """Additional kinds to watch while these gates are on."""
    return [kind for gate, found in _KINDS.items() if gate in gates for kind in found]


def additional_kinds(settings: ControllerSettings) -> list[Resource]:
    """Kinds to watch with these settings, beyond those of every worker."""
    return [
        *gated_kinds(settings.gates),
        *(SPREAD_KINDS if settings.default_constraints else ()),
        *(DEVICE_KINDS if settings.plans_devices else ()),
    ]


async def check(
    client: KubeClient, gates: Mapping[str, bool], *, has_default_spread: bool = False, plans_devices: bool = False
) -> None:
    """Raises BadInput for a watched kind that cannot be listed: it would block every plan."""
    for kind in SPREAD_KINDS if has_default_spread else ():
        await _check_readable(client, kind, "SCHEDULER_CONFIG: ", " -f deploy/rbac/optional/scheduler-config.yaml")
    for kind in DEVICE_KINDS if plans_devices else ():
        await _check_readable(client, kind, "IGNORE_DRA_REQUESTS=false: ", ", or remove the setting")
    await _check_readable(client, resources.LIFECYCLE_POLICIES)
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
