"""LifecyclePolicy (`tenure.sh/v1alpha1`): phase deadlines and other rules for the nodes of its NodePools.

NodeClaim workflows receive these models as they are read from the API server. An unset field falls back to a less
specific policy, then to the defaults in `tenure/policy/lifecycle/deadlines.py`.
"""

from typing import Annotated, Any, Final, Literal

from tenure.apis import labels
from tenure.apis.crd_schema import DURATION_SCHEMA, LABEL_VALUE, Crd, Rule
from tenure.apis.lifecyclepolicy_disruption import COUNT, PERCENT, DisruptionRules, RolloutRules
from tenure.apis.lifecyclepolicy_events import HookRules, InterruptionRules
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus

Overdue = Literal["alarm", "replace", "terminate"]
_ACTIONS: Final = (
    "Action when the deadline passes. 'alarm' keeps the node until an operator acts. 'replace' deletes the NodeClaim: "
    "the node is drained as usual, and its pods are rescheduled. 'terminate' deletes the NodeClaim, and nothing delays "
    "the termination of the instance."
)


class PhaseRules(KubeModel):
    """Deadline of a phase, and the action when it passes."""

    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long the phase may take, such as 15m."""
    when_overdue: Annotated[Overdue | None, Crd(doc=_ACTIONS)] = None


class TerminationRules(KubeModel):
    """Deadline of termination. Termination is retried until it succeeds; the deadline only raises an alarm."""

    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long EC2 may take to terminate the instance, such as 15m."""


class DrainRules(KubeModel):
    """Deadline of a drain, and the action when pods cannot be evicted."""

    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a drain may take before it is overdue, such as 1h."""
    when_blocked: Literal["wait", "escalate", "giveUp"] | None = None
    """Action when a PodDisruptionBudget, a do-not-disrupt pod or an attached volume has blocked the drain for
    'blockedFor'. 'wait' does nothing. 'escalate' deletes the pods with their own grace period, regardless of blockers,
    and the instance terminates with volumes attached. 'giveUp' uncordons and keeps the node, if still possible. With
    'giveUp', nodes are drained before their NodeClaim is deleted."""
    blocked_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a drain must be blocked before that action, such as 2h."""
    node_not_ready: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a drain waits for pods on a NotReady node, whose kubelet cannot terminate them. Unset: 5m."""
    surge_single_replicas: bool | None = None
    """Whether to restart the rollout of a Deployment before its only pod is evicted, so that the new pod is Ready
    first. The eviction waits for at most 10m. Requires the worker's setting SURGE_SINGLE_REPLICAS."""


DRAIN_RULES: Final = (
    Rule(
        "!has(self.whenBlocked) || self.whenBlocked == 'wait' || has(self.blockedFor)",
        "drain.whenBlocked requires drain.blockedFor, e.g. blockedFor: 2h",
    ),
)


class ExpiryRules(KubeModel):
    """How a NodePool's `expireAfter` is applied."""

    jitter: Annotated[str | None, Crd(PERCENT)] = None
    """Share of expireAfter by which a node may expire early, so that nodes created together do not expire together."""
    under_budget: bool | None = None
    """Whether the NodePool's disruption budgets apply to expired nodes."""


_REASON_PATTERN: Final = r"^([A-Za-z0-9_:.,|()^$-]*[A-Za-z0-9_.]\*){0,2}[A-Za-z0-9_:.,|()^$-]*$"
"""At most two `*`, after a single character, so that a search is fast."""


class RepairCondition(KubeModel):
    """A Node condition that marks the node as unhealthy."""

    type: Annotated[str, Crd({"minLength": 1, "maxLength": 316}, required=True)]
    """Type of the Node condition, such as Ready or KernelReady."""
    status: Annotated[Literal["True", "False", "Unknown"], Crd(required=True)]
    """Status of the condition while the node is unhealthy."""
    toleration: Annotated[str, Crd(DURATION_SCHEMA, required=True)]
    """How long the status is tolerated, such as 30m."""
    reason: Annotated[str | None, Crd({"pattern": _REASON_PATTERN, "maxLength": 200})] = None
    """Regular expression that is searched in the condition's reason. An entry without it applies to reasons that no
    other entry matches."""
    priority: Annotated[int | None, Crd({"minimum": 0, "maximum": 100})] = None
    """Nodes with a higher priority are repaired earlier: one rank counts as much as 30 minutes of waiting."""
    termination_grace_period: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long pods are evicted before they are deleted. A shorter terminationGracePeriod of the NodePool applies."""
    action: Literal["reboot", "replace"] | None = None
    """The repair, unless 'steps' is set; unset: replace. After two reboots in 24 hours the node is replaced."""


class RepairRules(KubeModel):
    """Repair of unhealthy nodes; requires the gate NodeRepair."""

    conditions: Annotated[tuple[RepairCondition, ...] | None, Crd({"maxItems": 50})] = None
    """Conditions that mark a node as unhealthy. Unset: Karpenter's. Empty list: none."""
    within: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """Window over which the duration of an intermittent condition is summed. Unset: only the current interval
    counts."""
    steps: Annotated[tuple[Literal["reboot", "replace"], ...] | None, Crd({"minItems": 1, "maxItems": 5})] = None
    """Repair steps in order, each tried after the previous one has not helped; unset: replace."""
    reboot_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a node may take to recover after a reboot before the next step. Unset: 10m."""
    drain: Literal["force", "graceful"] | None = None
    """'force' deletes the pods at once, as in Karpenter. 'graceful' evicts the pods of a Ready node for up to
    'drainFor'."""
    drain_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a graceful drain for repair may take, such as 30m."""
    max_unhealthy: Annotated[str | None, Crd(COUNT)] = None
    """No node is repaired while more nodes of the NodePool than this number or share are unhealthy. Unset: 20%."""


class LifecycleRules(KubeModel):
    """Lifecycle rules for nodes."""

    launch: PhaseRules | None = None
    """From the creation of the NodeClaim until its instance is launched."""
    registration: PhaseRules | None = None
    """From the creation of the NodeClaim until its Node has joined."""
    initialization: PhaseRules | None = None
    """From the registration of the Node until it is initialized."""
    drain: Annotated[DrainRules | None, Crd(rules=DRAIN_RULES)] = None
    termination: TerminationRules | None = None
    node_missing: PhaseRules | None = None
    """From the loss of a registered Node, which no longer exists, until its NodeClaim is deleted. Unset: replace after
    15m. A stopped instance is replaced at once."""
    not_ready_grace: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a NotReady node, or a node with a temporary taint, still counts as capacity for its pods, such as 5m."""
    expiry: ExpiryRules | None = None
    repair: RepairRules | None = None
    disruption: DisruptionRules | None = None
    rollout: RolloutRules | None = None
    interruption: InterruptionRules | None = None
    hooks: HookRules | None = None

    def merged_over(self, other: "LifecycleRules") -> "LifecycleRules":
        """These rules, with unset fields taken from `other`."""
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
    """The NodePools that a policy applies to."""

    names: Annotated[
        tuple[str, ...], Crd({"minItems": 1, "maxItems": 100}, items=Crd(schema={"minLength": 1, "maxLength": 253}))
    ] = ()
    """Names of the NodePools."""
    match_labels: Annotated[
        dict[str, str], Crd({"minProperties": 1, "maxProperties": 50}, items=Crd(schema={"pattern": LABEL_VALUE}))
    ] = {}
    """NodePools with all of these labels."""


_SELECTOR_RULES: Final = (
    Rule(
        "has(self.names) != has(self.matchLabels)",
        "nodePoolSelector must have either 'names' or 'matchLabels'; to select every NodePool, remove nodePoolSelector",
    ),
)


class LifecyclePolicySpec(LifecycleRules):
    """The selected NodePools, and the rules for their nodes."""

    node_pool_selector: Annotated[PoolSelector | None, Crd(rules=_SELECTOR_RULES)] = None
    """The NodePools that the policy applies to. Unset: all. If several policies set a field, the most specific one
    applies: names before labels before all."""

    @property
    def rules(self) -> LifecycleRules:
        """The rules without the NodePool selection."""
        return LifecycleRules.model_validate(self.model_dump(exclude={"node_pool_selector", "nodePoolSelector"}))


class LifecyclePolicyStatus(KubeStatus):
    """Whether the policy is in effect, and for which NodePools."""

    conditions: tuple[Condition, ...] = ()
    """Whether the policy is in effect, and why not."""
    node_pools: tuple[str, ...] = ()
    """The NodePools that the policy currently applies to."""


class LifecyclePolicy(KubeObject):
    """Deadlines and actions for the phases of a node's lifecycle, and rules for repair, disruption and AWS events."""

    api_version: str = labels.LIFECYCLEPOLICY_API_VERSION
    kind: str = "LifecyclePolicy"
    spec: Annotated[LifecyclePolicySpec, Crd(required=True)] = LifecyclePolicySpec()
    status: LifecyclePolicyStatus = LifecyclePolicyStatus()
