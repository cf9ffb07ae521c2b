"""The feature gates: source of the settings, docs/reference/settings.md, the chart's schema and `tenure adopt`.

Names and defaults are Karpenter's (reference 1.15), except DRANeuron, which Karpenter does not have.
"""

from enum import StrEnum
from typing import Self


class FeatureGate(StrEnum):
    """The value is the gate's name. `description` is Markdown with links relative to docs/reference/."""

    default: bool
    description: str
    variable: str
    since: str

    def __new__(
        cls, name: str, default: bool, description: str, variable: str = "FEATURE_GATES", since: str = "0.1.0"
    ) -> Self:
        gate = str.__new__(cls, name)
        gate._value_ = name
        gate.default, gate.description, gate.variable, gate.since = default, description, variable, since
        return gate

    @property
    def example(self) -> str:
        """The setting that enables the gate."""
        return f"{self.variable}={self.value}=true"

    NODE_REPAIR = "NodeRepair", False, "[replace nodes that stay unhealthy](../disruption/repair.md)"
    RESERVED_CAPACITY = "ReservedCapacity", True, "[launch into capacity reservations](../provisioning/reservations.md)"
    SPOT_TO_SPOT = "SpotToSpotConsolidation", False, "replace a spot node by a cheaper spot node"
    NODE_OVERLAY = "NodeOverlay", False, "[adjust prices and capacity of instance types](../provisioning/overlays.md)"
    STATIC_CAPACITY = "StaticCapacity", False, "[NodePools of a fixed size](../provisioning/static-pools.md)"
    TERMINATE_FIRST_DRIFT = (
        "TerminateFirstDrift",
        False,
        "[delete a drifted node before its replacement launches](../provisioning/static-pools.md#drift), if "
        "`limits.nodes` or a capacity reservation leaves no room for it",
    )
    POD_DELETION_COST = (
        "PodDeletionCostManagement",
        False,
        "[scale ReplicaSets down on the nodes that disruption removes first](../disruption/deletion-cost.md); needs "
        "`patch` on `pods` ([optional permissions](../operating/security.md#optional-permissions))",
    )
    TERMINATE_FIRST_REPAIR = (
        "TerminateFirstRepair",
        False,
        "[delete an unhealthy node before its replacement launches](../disruption/repair.md#replacement), if "
        "`limits.nodes` or a capacity reservation leaves no room for it",
    )
    CAPACITY_BUFFER = "CapacityBuffer", False, "[keep room for pods that do not exist yet](../provisioning/buffers.md)"
    NODECLASS_CEL = (
        "NodeClassCEL",
        False,
        "[kubelet amounts by instance type](../provisioning/node-classes.md#amounts-by-instance-type)",
        "AWS_FEATURE_GATES",
    )
    DRA_NVIDIA_GPU = (
        "DRANVIDIAGPU",
        False,
        "[launch nodes for ResourceClaims](../provisioning/dra.md#new-nodes) on NVIDIA GPUs; needs "
        "`IGNORE_DRA_REQUESTS=false`",
        "AWS_FEATURE_GATES",
    )
    DRA_EFA = (
        "DRAEFA",
        False,
        "[launch nodes for ResourceClaims](../provisioning/dra.md#new-nodes) on EFA interfaces; needs "
        "`IGNORE_DRA_REQUESTS=false`",
        "AWS_FEATURE_GATES",
    )
    DRA_NEURON = (
        "DRANeuron",
        False,
        "[launch nodes for ResourceClaims](../provisioning/dra.md#new-nodes) on Neuron devices; needs "
        "`IGNORE_DRA_REQUESTS=false`; not in Karpenter",
        "AWS_FEATURE_GATES",
    )
    REBOOT_FOR_REPAIR = (
        "RebootForRepair",
        False,
        "[reboot nodes with GPU errors that a reboot fixes](../disruption/repair.md#reboots); needs `NodeRepair` and "
        "`deploy/iam/node-repair.json`",
        "AWS_FEATURE_GATES",
    )


def gate_defaults(variable: str) -> dict[str, bool]:
    """Defaults of the gates of one environment variable, by gate name."""
    return {gate.value: gate.default for gate in FeatureGate if gate.variable == variable}
