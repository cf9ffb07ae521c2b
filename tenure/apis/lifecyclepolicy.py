"""LifecyclePolicy (`tenure.sh/v1alpha1`): phase deadlines and other rules for nodes of its NodePools.

The same models are read from the API server and sent to NodeClaim workflows. An unset field falls back to a less
specific policy, and then to the defaults in `tenure/policy/lifecycle/deadlines.py`.
"""

from typing import Annotated, Any, Final, Literal

from tenure.apis import labels
from tenure.apis.crd_schema import DURATION_SCHEMA, LABEL_VALUE, Crd, Rule
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules, RolloutRules
from tenure.apis.lifecyclepolicy_events import HookRules, InterruptionRules
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus

Overdue = Literal["alarm", "replace", "terminate"]
_ACTIONS: Final = (
    "Action when the deadline passes. alarm: it is kept until an operator acts; replace: its NodeClaim is "
    "deleted, the node is drained as usual, and its pods are rescheduled; terminate: its NodeClaim is deleted and "
    "nothing delays the termination of its instance."
)
_PERCENT: Final = r"^((100|[0-9]{1,2})%)$"
_INT_OR_PERCENT: Final = r"^((100|[0-9]{1,2})%|[0-9]+)$"


class PhaseRules(KubeModel):
    """Deadline of a phase, and the action when it passes."""

    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long the phase may take, such as 15m."""
    when_overdue: Annotated[Overdue | None, Crd(doc=_ACTIONS)] = None


class TerminationRules(KubeModel):
    """Termination is tried for as long as it takes: its deadline only raises the alarm."""

    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long EC2 may take to end the instance, such as 15m."""


class DrainRules(KubeModel):
    """Deadline of a drain, and the action when pods cannot be evicted."""

    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a drain may take before it is overdue, such as 1h."""
    when_blocked: Literal["wait", "escalate", "giveUp"] | None = None
    """Action when a PodDisruptionBudget or a do-not-disrupt pod has blocked the drain for 'blockedFor'. wait: no
    action; escalate: pods are deleted with their own grace period, regardless of blockers; giveUp: the node is
    uncordoned and kept if still possible. With giveUp, nodes are drained before their NodeClaim is deleted."""
    blocked_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a drain is held before that follows, such as 2h."""
    node_not_ready: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a drain waits for pods on a node that is not Ready: its kubelet is dead, and cannot end them. Unset:
    5m."""
    surge_single_replicas: bool | None = None
    """Before the only pod of a Deployment is evicted its rollout is restarted, so that the new pod is Ready before the
    old one goes; for 10m at most, then it is evicted as others are. In force while the worker's setting
    SURGE_SINGLE_REPLICAS is on."""


DRAIN_RULES: Final = (
    Rule(
        "!has(self.whenBlocked) || self.whenBlocked == 'wait' || has(self.blockedFor)",
        "drain.whenBlocked needs a time: write drain.blockedFor, such as blockedFor: 2h",
    ),
)


class ExpiryRules(KubeModel):
    """How a NodePool's `expireAfter` is kept."""

    jitter: Annotated[str | None, Crd({"pattern": _PERCENT})] = None
    """By how much of expireAfter a node may expire sooner, so that nodes born together do not go together."""
    under_budget: bool | None = None
    """An expired node asks its NodePool's disruption budgets before it goes."""


class RepairCondition(KubeModel):
    """A condition of a Node that means that it is unhealthy."""

    type: Annotated[str, Crd({"minLength": 1}, required=True)]
    """The Node's condition, such as Ready or KernelReady."""
    status: Annotated[Literal["True", "False", "Unknown"], Crd(required=True)]
    """Its status while the node is unhealthy."""
    toleration: Annotated[str, Crd(DURATION_SCHEMA, required=True)]
    """How long that is tolerated, such as 30m."""


class RepairRules(KubeModel):
    """Repair of unhealthy nodes; requires the gate NodeRepair."""

    conditions: Annotated[tuple[RepairCondition, ...] | None, Crd({"maxItems": 50})] = None
    """The conditions that count; unset: Karpenter's. An empty list: none."""
    within: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """A condition that comes and goes counts with all the time that it lasted within this span; unset: only the present
    stretch counts."""
    steps: Annotated[tuple[Literal["reboot", "replace"], ...] | None, Crd({"minItems": 1, "maxItems": 5})] = None
    """Repair steps in order, each tried after the previous one has not helped; unset: replace."""
    reboot_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a reboot may take until the node is well again; then the next step. Unset: 10m."""
    drain: Literal["force", "graceful"] | None = None
    """force: pods are deleted at once, as Karpenter does; graceful: they are evicted while the node answers, until the
    time in 'drainFor' is over."""
    drain_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a graceful drain for repair may take, such as 30m."""
    max_unhealthy: Annotated[str | None, Crd({"pattern": _INT_OR_PERCENT})] = None
    """While more nodes of the NodePool than this are unhealthy none is repaired; unset: 20%."""


class LifecycleRules(KubeModel):
    """Lifecycle rules for nodes."""

    launch: PhaseRules | None = None
    """From the NodeClaim to its instance."""
    registration: PhaseRules | None = None
    """From the NodeClaim's birth until its Node has joined."""
    initialization: PhaseRules | None = None
    """From the Node's joining until pods may run there."""
    drain: Annotated[DrainRules | None, Crd(rules=DRAIN_RULES)] = None
    termination: TerminationRules | None = None
    not_ready_grace: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a node that is NotReady, or carries a taint that will pass, still counts as the home of its pods, such
    as 5m."""
    expiry: ExpiryRules | None = None
    repair: RepairRules | None = None
    disruption: DisruptionRules | None = None
    rollout: RolloutRules | None = None
    interruption: InterruptionRules | None = None
    hooks: HookRules | None = None

    def merged_over(self, other: "LifecycleRules") -> "LifecycleRules":
        """These rules, and where they are silent the other's, field by field."""
        return LifecycleRules.model_validate(_deep_merge(other.to_object(), self.to_object()))


def _deep_merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _deep_merge(below[key], value)
        for key, value in above.items()
        if _is_map(value) and _is_map(below.get(key))
    }
    return {**below, **above, **both}


def _is_map(value: object) -> bool:
    return isinstance(value, dict)


class PoolSelector(KubeModel):
    """Which NodePools a policy is for."""

    names: Annotated[tuple[str, ...], Crd({"minItems": 1, "maxItems": 100}, items=Crd(schema={"minLength": 1}))] = ()
    """NodePools by name."""
    match_labels: Annotated[
        dict[str, str], Crd({"minProperties": 1, "maxProperties": 50}, items=Crd(schema={"pattern": LABEL_VALUE}))
    ] = {}
    """NodePools that carry all of these labels."""


_SELECTOR_RULES: Final = (
    Rule(
        "has(self.names) != has(self.matchLabels)",
        "nodePoolSelector chooses by one of the two: write 'names' or 'matchLabels'; for every NodePool leave "
        "nodePoolSelector out",
    ),
)


class LifecyclePolicySpec(LifecycleRules):
    """The selected NodePools, and the rules for their nodes."""

    node_pool_selector: Annotated[PoolSelector | None, Crd(rules=_SELECTOR_RULES)] = None
    """Which NodePools. Unset: all. Where policies differ the more precise one counts, field by field: names before
    labels before all."""

    @property
    def rules(self) -> LifecycleRules:
        """The rules without the NodePool selection."""
        return LifecycleRules.model_validate(self.model_dump(exclude={"node_pool_selector", "nodePoolSelector"}))


class LifecyclePolicyStatus(KubeStatus):
    """Whether the policy is in effect, and for which NodePools."""

    conditions: tuple[Condition, ...] = ()
    """Whether the policy is in effect, and why not."""
    node_pools: tuple[str, ...] = ()
    """The NodePools for which it counts at present."""


class LifecyclePolicy(KubeObject):
    """Deadlines for the phases of nodes, and the actions when they pass."""

    api_version: str = labels.LIFECYCLEPOLICY_API_VERSION
    kind: str = "LifecyclePolicy"
    spec: Annotated[LifecyclePolicySpec, Crd(required=True)] = LifecyclePolicySpec()
    status: LifecyclePolicyStatus = LifecyclePolicyStatus()
