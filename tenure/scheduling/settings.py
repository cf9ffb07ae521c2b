"""Settings of plans that do not depend on the cluster."""

from typing import Final, Literal

from tenure.model.base import Value

MAX_INSTANCE_TYPES: Final = 600
DEFAULT_NODE_COST: Final = 0.025
"""Root volume, image pulls and a monitoring license per host (docs/provisioning/node-cost.md)."""


class PlanSettings(Value):
    """Karpenter's PREFERENCE_POLICY and MIN_VALUES_POLICY, and the maximum of instance types per NodeClaim."""

    preference_policy: Literal["Respect", "Ignore"] = "Respect"
    min_values_policy: Literal["Strict", "BestEffort"] = "Strict"
    most_instance_types: int = MAX_INSTANCE_TYPES
    node_cost: float = DEFAULT_NODE_COST
    """US dollars per hour added to the price of each node; higher values favor fewer, larger nodes."""
