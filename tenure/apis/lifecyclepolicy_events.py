"""LifecyclePolicy rules for AWS events, per kind, and for termination hooks.

Without rules, Karpenter's action table applies (karpenter-aws 5.3). `tenure/policy/interruption/rules.py` and
`tenure/policy/hooks/rules.py` have the defaults.
"""

from typing import Annotated, Any, Final, Literal

from tenure.apis.crd_schema import ATOMIC, DURATION_SCHEMA, LABEL_VALUE, Crd, Rule
from tenure.apis.lifecyclepolicy_disruption import Window
from tenure.apis.meta import KubeModel

Action = Literal[
    "drain", "terminate", "notify", "ignore", "deferUntilEventStart", "window", "waitForApproval", "stopStart"
]
"""`ScheduledRules.action` describes each."""
_DO_NOT_DISRUPT: Final = Crd(
    doc="Whether pods with the annotation karpenter.sh/do-not-disrupt block the drain. Unset: they block a drain, but "
    "not a termination; 'honour' turns a termination into a drain."
)
_MAX_STOPPED_DOC: Final = (
    "For ignore and stopStart: how long an instance may be stopped. Until then its node is kept, and its pods wait for "
    "it; afterwards it is drained. Unset: for ignore, without limit"
)
_EXAMPLE: Final = "windows: [{schedule: '0 2 * * 0', duration: 2h, timeZone: Europe/Berlin}]"


class Timing(KubeModel):
    """When the action for an AWS event takes place."""

    lead: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """Latest start of the drain, as a time before AWS acts, such as 30m. Unset: 10m."""
    windows: Annotated[tuple[Window, ...] | None, Crd({"minItems": 1, "maxItems": 20, **ATOMIC})] = None
    """For window and stopStart: when nodes may be drained."""
    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """For waitForApproval: how long to wait for approval. Unset: until 'lead' before AWS acts."""
    fallback: Literal["drain", "notify"] | None = None
    """For window and waitForApproval: action if no approval is given in time or no window opens before AWS acts.
    'drain' drains the node 'lead' before AWS acts, or at the deadline. 'notify' leaves the node to AWS. Unset:
    drain."""


class EventRules(KubeModel):
    """Action for an event that cannot be deferred."""

    action: Literal["drain", "terminate", "ignore"] | None = None
    """'drain' deletes the NodeClaim and evicts its pods. 'terminate' does the same, and nothing delays it. 'ignore'
    does nothing. Unset: drain."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None


class StoppingRules(KubeModel):
    """Action when an instance is stopped outside Tenure."""

    action: Literal["drain", "terminate", "notify", "ignore"] | None = None
    """'drain' deletes the NodeClaim and evicts its pods. 'terminate' does the same, and nothing delays it. 'notify'
    only publishes an event. 'ignore' does nothing. Unset: drain."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None
    away: Annotated[str | None, Crd(DURATION_SCHEMA, doc=_MAX_STOPPED_DOC + ".")] = None


class TimedRules(Timing):
    """Action for an event that allows a delay."""

    action: Literal["drain", "terminate", "notify", "ignore", "window", "waitForApproval"] | None = None
    """'drain' deletes the NodeClaim and evicts its pods. 'terminate' does the same, and nothing delays it. 'notify'
    only publishes an event. 'ignore' does nothing. 'window' drains the node in one of 'windows', 'waitForApproval'
    after an operator's approval. Unset: notify for rebalanceRecommendation, else terminate."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None
    voluntary: bool | None = None
    """For drains: whether the NodePool's disruption budgets apply until AWS's deadline. Without an action, it turns a
    termination into a drain."""


class ScheduledRules(Timing):
    """Action for maintenance that AWS schedules."""

    action: Action | None = None
    """'drain' deletes the NodeClaim and evicts its pods. 'terminate' does the same, and nothing delays it. 'notify'
    only publishes an event. 'ignore' does nothing. 'deferUntilEventStart' drains the node 'lead' before AWS acts,
    'window' in one of 'windows', 'waitForApproval' after an operator's approval. 'stopStart' evicts the pods, stops the
    instance, starts it on other hardware, and keeps the node. Unset: drain."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None
    voluntary: bool | None = None
    """For drains, not for stopStart: whether the NodePool's disruption budgets apply until AWS's deadline."""
    away: Annotated[str | None, Crd(DURATION_SCHEMA, doc=_MAX_STOPPED_DOC + "; for stopStart, 15m.")] = None


class WorkloadRules(Timing):
    """Pods that are evicted later than the other pods of their node. The node waits for these pods."""

    match_labels: Annotated[
        dict[str, str],
        Crd({"minProperties": 1, "maxProperties": 20}, required=True, items=Crd(schema={"pattern": LABEL_VALUE})),
    ]
    """Pods with all of these labels."""
    action: Annotated[Literal["deferUntilEventStart", "window", "waitForApproval"], Crd(required=True)]
    """When these pods are evicted."""


_TIMES: Final = (
    Rule(
        "!has(self.action) || self.action != 'window' || has(self.windows)",
        f"action window requires windows, e.g. {_EXAMPLE}",
    ),
    Rule(
        "!has(self.deadline) || !has(self.action) || self.action == 'waitForApproval'",
        "deadline is only valid with action waitForApproval: set action: waitForApproval or remove deadline",
    ),
    Rule(
        "!has(self.fallback) || !has(self.action) || self.action in ['window', 'waitForApproval']",
        "fallback is only valid with actions window and waitForApproval: set one of them or remove fallback",
    ),
)
_WINDOWS: Final = Rule(
    "!has(self.windows) || !has(self.action) || self.action == 'window'",
    "windows is only valid with action window: set action: window or remove windows",
)
_LEAD: Final = (
    "!has(self.lead) || !has(self.action) || (self.action == 'drain' ? has(self.voluntary) && self.voluntary : "
)
_VOLUNTARY: Final = "!has(self.voluntary) || !self.voluntary || !has(self.action) || self.action in ["
_OF_TIMED: Final = (
    _WINDOWS,
    Rule(
        _LEAD + "self.action in ['window', 'waitForApproval'])",
        "lead is only valid with deferred drains: set action window or waitForApproval, or drain with voluntary: true, "
        "or remove lead",
    ),
    Rule(
        _VOLUNTARY + "'drain', 'window', 'waitForApproval']",
        "voluntary is only valid with drains: set action drain, window or waitForApproval, or remove voluntary",
    ),
)
_OF_SCHEDULED: Final = (
    Rule(
        "!has(self.windows) || !has(self.action) || self.action in ['window', 'stopStart']",
        "windows is only valid with actions window and stopStart: set one of them or remove windows",
    ),
    Rule(
        _LEAD + "self.action == 'stopStart' ? has(self.windows) : "
        "self.action in ['deferUntilEventStart', 'window', 'waitForApproval'])",
        "lead is only valid with deferred actions: set action deferUntilEventStart, window or waitForApproval, or "
        "drain with voluntary: true, or stopStart with windows, or remove lead",
    ),
    Rule(
        _VOLUNTARY + "'drain', 'deferUntilEventStart', 'window', 'waitForApproval']",
        "voluntary is only valid with drains, and stopStart ignores budgets: set action drain, deferUntilEventStart, "
        "window or waitForApproval, or remove voluntary",
    ),
)
_HONOUR_NEEDS_DRAIN: Final = (
    Rule(
        "!has(self.doNotDisrupt) || self.doNotDisrupt != 'honour' || !has(self.action) || self.action != 'terminate'",
        "doNotDisrupt: honour is not valid with action terminate, which pods cannot block: set action: drain or remove "
        "doNotDisrupt",
    ),
)
_RETURN_ACTIONS: Final = (
    Rule(
        "!has(self.away) || !has(self.action) || self.action in ['ignore', 'stopStart']",
        "away is only valid with actions ignore and stopStart: set one of them or remove away",
    ),
)


class InterruptionRules(KubeModel):
    """Actions for AWS events of instances."""

    spot_interruption: Annotated[EventRules | None, Crd(rules=_HONOUR_NEEDS_DRAIN)] = None
    """AWS reclaims a spot instance in two minutes."""
    capacity_reservation_interruption: Annotated[EventRules | None, Crd(rules=_HONOUR_NEEDS_DRAIN)] = None
    """AWS reclaims an instance of an interruptible capacity reservation."""
    rebalance_recommendation: Annotated[TimedRules | None, Crd(rules=(*_TIMES, *_OF_TIMED, *_HONOUR_NEEDS_DRAIN))] = (
        None
    )
    """A spot instance has a higher risk of interruption."""
    scheduled_change: Annotated[
        ScheduledRules | None, Crd(rules=(*_TIMES, *_OF_SCHEDULED, *_HONOUR_NEEDS_DRAIN, *_RETURN_ACTIONS))
    ] = None
    """AWS Health or the instance's status announces a stop, reboot or retirement of the instance."""
    instance_stopping: Annotated[StoppingRules | None, Crd(rules=(*_HONOUR_NEEDS_DRAIN, *_RETURN_ACTIONS))] = None
    """The instance is stopping or stopped."""
    instance_terminating: Annotated[EventRules | None, Crd(rules=_HONOUR_NEEDS_DRAIN)] = None
    """The instance is shutting down or terminated."""
    instance_status: Annotated[TimedRules | None, Crd(rules=(*_TIMES, *_OF_TIMED, *_HONOUR_NEEDS_DRAIN))] = None
    """The instance status check fails."""
    system_status: Annotated[TimedRules | None, Crd(rules=(*_TIMES, *_OF_TIMED, *_HONOUR_NEEDS_DRAIN))] = None
    """The system status check fails."""
    workloads: Annotated[
        tuple[WorkloadRules, ...] | None, Crd({"maxItems": 10, **ATOMIC}, items=Crd(rules=(*_TIMES, _WINDOWS)))
    ] = None
    """Pods that are evicted later than the others when a node is drained for rebalanceRecommendation, scheduledChange
    or a status check. The first entry that matches a pod applies."""


_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class HttpHook(KubeModel):
    """An HTTP POST with JSON that identifies the node."""

    url: Annotated[str, Crd({"pattern": r"^https?://[^\s]+$", "maxLength": 2048}, required=True)]
    """URL with http:// or https://. It must not contain secrets: policies are recorded in workflow histories."""


class JobHook(KubeModel):
    """A Kubernetes Job, created once."""

    namespace: Annotated[str | None, Crd({"pattern": _NAME, "maxLength": 63})] = None
    """Namespace of the Job. Unset: tenure-hooks, the only namespace in which the shipped RBAC lets the worker create
    Jobs."""
    template: Annotated[dict[str, Any], Crd(required=True)]
    """Pod template, as in a Job's spec.template. If restartPolicy is unset, it is Never."""


class Hook(KubeModel):
    """A hook: an HTTP call or a Job."""

    name: Annotated[str, Crd({"pattern": _NAME, "maxLength": 40}, required=True)]
    """Name of the hook, unique at its point."""
    http: HttpHook | None = None
    job: JobHook | None = None
    timeout: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long the hook may take, including retries and their intervals. Unset: 5m."""
    attempts: Annotated[int | None, Crd({"minimum": 1, "maximum": 100})] = None
    """Maximum number of attempts. Unset: a call is retried until the timeout, and a Job creates up to 7 pods."""
    on_failure: Literal["proceed", "wait", "giveUp"] | None = None
    """Action after a failure or a timeout. With 'proceed', the node continues. 'wait' retries the hook with backoff
    until it succeeds or the policy changes. 'giveUp' cancels the drain and keeps the node, if still possible. Hooks do
    not delay AWS's own actions. Unset: proceed."""


_ONE: Final = Rule("has(self.http) != has(self.job)", "a hook must have exactly one of 'http' and 'job'")
_CANCEL_NOT_ALLOWED: Final = Rule(
    "!has(self.onFailure) || self.onFailure != 'giveUp'",
    "onFailure: giveUp is only valid before the drain: set onFailure: proceed, or wait",
)
_NAMES: Final = Rule(
    "self.all(one, self.exists_one(other, other.name == one.name))",
    "hook names must be unique: two hooks of the list have the same name",
)


def _hooks_schema(doc: str, *rules: Rule) -> Crd:
    return Crd({"maxItems": 5, **ATOMIC}, rules=(_NAMES,), items=Crd(rules=(_ONE, *rules)), doc=doc)


class HookRules(KubeModel):
    """Hooks of a node's drain and termination. The hooks of a list run in order."""

    before_drain: Annotated[
        tuple[Hook, ...] | None,
        _hooks_schema("Before pods are evicted. The node is tainted, so that no new pods are scheduled to it."),
    ] = None
    after_drain: Annotated[
        tuple[Hook, ...] | None, _hooks_schema("After the node is drained.", _CANCEL_NOT_ALLOWED)
    ] = None
    before_terminate: Annotated[
        tuple[Hook, ...] | None,
        _hooks_schema("Before the instance is terminated, also without a drain.", _CANCEL_NOT_ALLOWED),
    ] = None
