"""LifecyclePolicy (`tenure.sh/v1alpha1`): how long the phases of nodes' lives may take, and what follows then.

Tenure's own kind: Karpenter's stay as they are. A policy selects NodePools; without any, defaults hold everywhere.
"""

from typing import Annotated, Final

from model import labels
from model.kinds.lifecycle_rules import LifecycleRules
from model.kinds.meta import Condition, KubeModel, KubeObject
from model.kinds.schema import LABEL_VALUE, Crd, Rule


class PoolSelector(KubeModel):
    """Which NodePools a policy is for."""

    names: Annotated[
        tuple[str, ...],
        Crd("NodePools by name.", {"minItems": 1, "maxItems": 100}, items=Crd(schema={"minLength": 1})),
    ] = ()
    match_labels: Annotated[
        dict[str, str],
        Crd(
            "NodePools that carry all of these labels.",
            {"minProperties": 1, "maxProperties": 50},
            items=Crd(schema={"pattern": LABEL_VALUE}),
        ),
    ] = {}


_SELECTOR_RULES: Final = (
    Rule(
        "has(self.names) != has(self.matchLabels)",
        "nodePoolSelector chooses by one of the two: write 'names' or 'matchLabels'; for every NodePool leave "
        "nodePoolSelector out",
    ),
)


class LifecyclePolicySpec(LifecycleRules):
    """The NodePools, and what holds for them."""

    node_pool_selector: Annotated[
        PoolSelector | None,
        Crd(
            "Which NodePools. Unset: all. Where policies differ the more precise one counts, field by field: names "
            "before labels before all.",
            rules=_SELECTOR_RULES,
        ),
    ] = None

    @property
    def rules(self) -> LifecycleRules:
        """What holds for the NodePools, without which those are."""
        return LifecycleRules.model_validate(self.model_dump(exclude={"node_pool_selector", "nodePoolSelector"}))


class LifecyclePolicyStatus(KubeModel):
    """Whether it is heeded, and for whom."""

    conditions: Annotated[tuple[Condition, ...], Crd("Whether the policy is heeded, and why not.")] = ()
    node_pools: Annotated[tuple[str, ...], Crd("The NodePools for which it counts at present.")] = ()


class LifecyclePolicy(KubeObject):
    """How long the phases of nodes' lives may take, and what follows when they take longer."""

    api_version: str = labels.LIFECYCLEPOLICY_API_VERSION
    kind: str = "LifecyclePolicy"
    spec: Annotated[LifecyclePolicySpec, Crd(required=True)] = LifecyclePolicySpec()
    status: Annotated[LifecyclePolicyStatus, Crd()] = LifecyclePolicyStatus()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions
