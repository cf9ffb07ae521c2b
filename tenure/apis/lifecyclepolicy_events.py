"""LifecyclePolicy rules for AWS events, per kind, and for termination hooks.

Without rules Karpenter's action table applies (karpenter-aws 5.3). `tenure/policy/interruption/rules.py` and
`tenure/policy/hooks/rules.py` have the defaults.
"""

from typing import Annotated, Any, Final, Literal

from tenure.apis.crd_schema import ATOMIC, DURATION_SCHEMA, LABEL_VALUE, Crd, Rule
from tenure.apis.lifecyclepolicy_disruption import Window
from tenure.apis.meta import KubeModel

Action = Literal[
    "drain", "terminate", "notify", "ignore", "deferUntilEventStart", "window", "waitForApproval", "stopStart"
]
"""drain: delete the NodeClaim and evict its pods. terminate: the same, and nothing delays it. notify: only publish an
event. ignore: no action. deferUntilEventStart: drain `lead` before AWS acts. window: drain in one of `windows`.
waitForApproval: drain after an operator's approval. stopStart: drain, stop, start again, and keep the node."""
_DO_NOT_DISRUPT: Final = Crd(
    doc="Whether pods with the annotation karpenter.sh/do-not-disrupt hold the drain. Unset: they do, but where the "
    "node is terminated; 'honour' makes a drain of that."
)
_MAX_STOPPED_DOC: Final = (
    "For ignore and stopStart: how long an instance that was stopped may be away. Until then its node is kept, and its "
    "pods wait for it; then it is drained. Unset, under ignore: for good"
)
_EXAMPLE: Final = "windows: [{schedule: '0 2 * * 0', duration: 2h, timeZone: Europe/Berlin}]"


class Timing(KubeModel):
    """When something happens that AWS's event asks for."""

    lead: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long before AWS acts the drain begins at the latest, such as 30m. Unset: 10m."""
    windows: Annotated[tuple[Window, ...] | None, Crd({"minItems": 1, "maxItems": 20, **ATOMIC})] = None
    """For window and stopStart: when nodes may go."""
    deadline: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """For waitForApproval: how long to wait for approval. Unset: until 'lead' before AWS acts."""
    fallback: Literal["drain", "notify"] | None = None
    """For window and waitForApproval: the action without an approval in time, or without a window before AWS acts.
    drain: it is drained 'lead' before AWS acts, or at the deadline; notify: it is left to AWS. Unset: drain."""


class EventRules(KubeModel):
    """Action for an event without notice: handle it, or ignore it."""

    action: Literal["drain", "terminate", "ignore"] | None = None
    """drain: the NodeClaim is deleted, its pods are evicted; terminate: the same, and nothing delays it; ignore: no
    action. Unset: drain."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None


class StoppingRules(KubeModel):
    """Action when an instance is stopped outside Tenure."""

    action: Literal["drain", "terminate", "notify", "ignore"] | None = None
    """drain: the NodeClaim is deleted, its pods are evicted; terminate: the same, and nothing delays it; notify: only
    an event is published; ignore: no action. Unset: drain."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None
    away: Annotated[str | None, Crd(DURATION_SCHEMA, doc=_MAX_STOPPED_DOC + ".")] = None


class TimedRules(Timing):
    """Action for an event that allows a delay."""

    action: Literal["drain", "terminate", "notify", "ignore", "window", "waitForApproval"] | None = None
    """drain: the NodeClaim is deleted, its pods are evicted; terminate: the same, and nothing delays it; notify: only
    an event is published; ignore: no action; window: drained in one of 'windows'; waitForApproval: drained after an
    operator's approval. Unset: notify for rebalanceRecommendation, else terminate."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None
    voluntary: bool | None = None
    """For drains: the node needs its NodePool's disruption budgets until AWS's deadline. Without an action, it turns a
    termination into a drain."""


class ScheduledRules(Timing):
    """Action for maintenance that AWS schedules."""

    action: Action | None = None
    """drain: the NodeClaim is deleted, its pods are evicted; terminate: the same, and nothing delays it; notify: only
    an event is published; ignore: no action; deferUntilEventStart: drained 'lead' before AWS acts; window: drained in
    one of 'windows'; waitForApproval: drained after an operator's approval; stopStart: its pods are evicted, its
    instance is stopped and started again on other hardware, and the node is kept. Unset: drain."""
    do_not_disrupt: Annotated[Literal["honour", "override"] | None, _DO_NOT_DISRUPT] = None
    voluntary: bool | None = None
    """For drains, and not for stopStart: the node asks its NodePool's disruption budgets before it goes, until AWS's
    time is up."""
    away: Annotated[str | None, Crd(DURATION_SCHEMA, doc=_MAX_STOPPED_DOC + "; under stopStart: 15m.")] = None


class WorkloadRules(Timing):
    """Pods that leave later than the others of their node. Other pods leave at once; the node waits for these."""

    match_labels: Annotated[
        dict[str, str],
        Crd({"minProperties": 1, "maxProperties": 20}, required=True, items=Crd(schema={"pattern": LABEL_VALUE})),
    ]
    """Pods that carry all of these labels."""
    action: Annotated[Literal["deferUntilEventStart", "window", "waitForApproval"], Crd(required=True)]
    """When these pods go."""


_TIMES: Final = (
    Rule(
        "!has(self.action) || self.action != 'window' || has(self.windows)",
        f"action window needs windows: write when nodes may go, such as {_EXAMPLE}",
    ),
    Rule(
        "!has(self.deadline) || !has(self.action) || self.action == 'waitForApproval'",
        "deadline is for action waitForApproval: write action: waitForApproval, or leave deadline out",
    ),
    Rule(
        "!has(self.fallback) || !has(self.action) || self.action in ['window', 'waitForApproval']",
        "fallback is for the actions window and waitForApproval: write one of them, or leave fallback out",
    ),
)
_WINDOWS: Final = Rule(
    "!has(self.windows) || !has(self.action) || self.action == 'window'",
    "windows is for action window: write action: window, or leave windows out",
)
_LEAD: Final = (
    "!has(self.lead) || !has(self.action) || (self.action == 'drain' ? has(self.voluntary) && self.voluntary : "
)
_VOLUNTARY: Final = "!has(self.voluntary) || !self.voluntary || !has(self.action) || self.action in ["
_OF_TIMED: Final = (
    _WINDOWS,
    Rule(
        _LEAD + "self.action in ['window', 'waitForApproval'])",
        "lead is for drains that wait: write action window or waitForApproval, or drain with voluntary: true, or leave "
        "lead out",
    ),
    Rule(
        _VOLUNTARY + "'drain', 'window', 'waitForApproval']",
        "voluntary is for drains: write action drain, window or waitForApproval, or leave voluntary out",
    ),
)
_OF_SCHEDULED: Final = (
    Rule(
        "!has(self.windows) || !has(self.action) || self.action in ['window', 'stopStart']",
        "windows is for the actions window and stopStart: write one of them, or leave windows out",
    ),
    Rule(
        _LEAD + "self.action == 'stopStart' ? has(self.windows) : "
        "self.action in ['deferUntilEventStart', 'window', 'waitForApproval'])",
        "lead is for what waits: write action deferUntilEventStart, window or waitForApproval, or drain with "
        "voluntary: true, or stopStart with windows, or leave lead out",
    ),
    Rule(
        _VOLUNTARY + "'drain', 'deferUntilEventStart', 'window', 'waitForApproval']",
        "voluntary is for drains, and stopStart asks no budget: write action drain, deferUntilEventStart, window or "
        "waitForApproval, or leave voluntary out",
    ),
)
_HONOUR_NEEDS_DRAIN: Final = (
    Rule(
        "!has(self.doNotDisrupt) || self.doNotDisrupt != 'honour' || !has(self.action) || self.action != 'terminate'",
        "nothing holds up action terminate: write action: drain, or leave doNotDisrupt out",
    ),
)
_RETURN_ACTIONS: Final = (
    Rule(
        "!has(self.away) || !has(self.action) || self.action in ['ignore', 'stopStart']",
        "away is for the actions ignore and stopStart: write one of them, or leave away out",
    ),
)


class InterruptionRules(KubeModel):
    """Actions for AWS events of instances."""

    spot_interruption: Annotated[EventRules | None, Crd(rules=_HONOUR_NEEDS_DRAIN)] = None
    """AWS reclaims a spot instance in two minutes."""
    capacity_reservation_interruption: Annotated[EventRules | None, Crd(rules=_HONOUR_NEEDS_DRAIN)] = None
    """An interruptible reservation takes its instance back."""
    rebalance_recommendation: Annotated[TimedRules | None, Crd(rules=(*_TIMES, *_OF_TIMED, *_HONOUR_NEEDS_DRAIN))] = (
        None
    )
    """A spot instance has a higher risk of interruption."""
    scheduled_change: Annotated[
        ScheduledRules | None, Crd(rules=(*_TIMES, *_OF_SCHEDULED, *_HONOUR_NEEDS_DRAIN, *_RETURN_ACTIONS))
    ] = None
    """AWS will stop, reboot or retire the instance, as AWS Health says, or the instance's status."""
    instance_stopping: Annotated[StoppingRules | None, Crd(rules=(*_HONOUR_NEEDS_DRAIN, *_RETURN_ACTIONS))] = None
    """The instance is being stopped, or is."""
    instance_terminating: Annotated[EventRules | None, Crd(rules=_HONOUR_NEEDS_DRAIN)] = None
    """The instance is being terminated, or is."""
    instance_status: Annotated[TimedRules | None, Crd(rules=(*_TIMES, *_OF_TIMED, *_HONOUR_NEEDS_DRAIN))] = None
    """The instance status check fails."""
    system_status: Annotated[TimedRules | None, Crd(rules=(*_TIMES, *_OF_TIMED, *_HONOUR_NEEDS_DRAIN))] = None
    """The system status check fails."""
    workloads: Annotated[
        tuple[WorkloadRules, ...] | None, Crd({"maxItems": 10, **ATOMIC}, items=Crd(rules=(*_TIMES, _WINDOWS)))
    ] = None
    """Pods that leave later than the others when a node is drained for rebalanceRecommendation, scheduledChange or a
    status check. The first that matches a pod counts."""


_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class HttpHook(KubeModel):
    """A POST of JSON that says which node it is about."""

    url: Annotated[str, Crd({"pattern": r"^https?://[^\s]+$", "maxLength": 2048}, required=True)]
    """URL with http:// or https://. It must contain no secrets: policies are recorded in workflow histories."""


class JobHook(KubeModel):
    """A Job of Kubernetes, made once."""

    namespace: Annotated[str | None, Crd({"pattern": _NAME, "maxLength": 63})] = None
    """Where it is made. Unset: tenure-hooks, the only namespace in which the worker may make Jobs as shipped."""
    template: Annotated[dict[str, Any], Crd(required=True)]
    """Its pods, as in a Job's spec.template. restartPolicy unset: Never."""


class Hook(KubeModel):
    """One thing that is done at a point."""

    name: Annotated[str, Crd({"pattern": _NAME, "maxLength": 40}, required=True)]
    """Name of the hook, unique at its point."""
    http: HttpHook | None = None
    job: JobHook | None = None
    timeout: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long it may take, tries and pauses included. Unset: 5m."""
    attempts: Annotated[int | None, Crd({"minimum": 1, "maximum": 100})] = None
    """How often it is tried. Unset: a call as often as it fits into the timeout, a Job with up to 7 pods."""
    on_failure: Literal["proceed", "wait", "giveUp"] | None = None
    """Action after a failure or a timeout. proceed: the node continues; wait: the hook is retried with backoff until
    it succeeds or the policy changes; giveUp: the drain is cancelled and the node kept, if still possible. AWS does not
    wait. Unset: proceed."""


_ONE: Final = Rule(
    "has(self.http) != has(self.job)", "a hook is either a call or a Job: write one of 'http' and 'job', not both"
)
_CANCEL_NOT_ALLOWED: Final = Rule(
    "!has(self.onFailure) || self.onFailure != 'giveUp'",
    "once pods have left there is nothing to give up: write onFailure: proceed, or wait",
)
_NAMES: Final = Rule(
    "self.all(one, self.exists_one(other, other.name == one.name))",
    "two hooks of one point have the same name: give each a name of its own",
)


def _hooks_schema(doc: str, *rules: Rule) -> Crd:
    return Crd({"maxItems": 5, **ATOMIC}, rules=(_NAMES,), items=Crd(rules=(_ONE, *rules)), doc=doc)


class HookRules(KubeModel):
    """Hooks at points of a node's termination, run in order."""

    before_drain: Annotated[
        tuple[Hook, ...] | None, _hooks_schema("Before pods are evicted. No new ones come to the node meanwhile.")
    ] = None
    after_drain: Annotated[tuple[Hook, ...] | None, _hooks_schema("When its pods have left.", _CANCEL_NOT_ALLOWED)] = (
        None
    )
    before_terminate: Annotated[
        tuple[Hook, ...] | None,
        _hooks_schema("Before its instance is ended, be it one that was never drained.", _CANCEL_NOT_ALLOWED),
    ] = None
