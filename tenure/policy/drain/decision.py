"""The next step of a drain: pods to delete, the action when it is blocked, and the start of the block.

`activities/nodeclaim/drain_pass.py` applies the rules to pods, `workflows/phases/drain.py` to the whole drain. The
module also has the accessors for a LifecyclePolicy's drain rules, with their defaults.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.durations import parse_duration_or_none
from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.base import Value, parse_timestamp
from tenure.model.disruption.drain import BLOCKING_CAUSES, DeploymentRollout, DrainState, DrainStatus, EvictionBlocker
from tenure.model.provider_results import DrainPod, EvictionProgress
from tenure.policy.drain.blockers import STUCK_AFTER

NODE_NOT_READY: Final = timedelta(minutes=5)
"""After this time, Kubernetes itself deletes the pods of an unreachable node, regardless of budgets. A kubelet that is
down never confirms the deletion, so there is no reason to wait longer."""
SURGE: Final = timedelta(minutes=10)
"""Time for a new pod to become Ready: a Deployment's default progressDeadlineSeconds."""
ESCALATION_AT_LEAST: Final = timedelta(seconds=5)
"""Time to observe that pods without a grace period end before their instance does."""
_ORDER: Final = {"surge": 0, "refused": 1, "volume": 3, "terminating": 4}
"""Order of blockers in a status, which keeps only the first few. A surge must be kept: its deadline counts from its
start."""
MAX_TERMINATION: Final = timedelta(seconds=60)
TERMINATION_DELAY: Final = timedelta(seconds=10)
"""A pod is usually gone this long after its deletionTimestamp."""
FIRST_FALLBACK: Final = timedelta(seconds=10)
MAX_FALLBACK: Final = timedelta(minutes=30)
MAX_UNOBSERVED_FALLBACK: Final = timedelta(minutes=1)
"""Bounds of the time until the next pass without a signal. The last one applies to blockers that no watched object
shows."""
OBSERVED_WITHIN: Final = timedelta(seconds=30)
"""Time for a controller to observe an EvictionRequest. Kubernetes 1.37 serves the kind without a controller."""
MIN_RETRY_PAUSE: Final = timedelta(minutes=10)
"""Minimum delay before a node is disrupted again after its drain was cancelled."""


def not_ready_for(rules: DrainRules | None) -> timedelta:
    found = parse_duration_or_none(rules.node_not_ready if rules else None)
    return NODE_NOT_READY if found is None else found


def has_surge(rules: DrainRules | None) -> bool:
    return rules is not None and rules.surge_single_replicas is True


def can_cancel_drain(rules: DrainRules | None) -> bool:
    """Voluntary drains then run before the NodeClaim is deleted, so that they can be cancelled."""
    return rules is not None and rules.when_blocked == "giveUp"


def blocked_for(rules: DrainRules | None) -> timedelta | None:
    """How long a drain may be blocked before it escalates or is cancelled; None if it waits without limit."""
    if rules is None or rules.when_blocked in (None, "wait"):
        return None
    return parse_duration_or_none(rules.blocked_for)


class DrainDecision(Value):
    do: Literal["wait", "escalate", "cancel"]
    until: datetime | None = None
    why: str = ""


def decide_drain(rules: DrainRules | None, drain: DrainState, now: datetime) -> DrainDecision:
    status, limit = drain.status, blocked_for(rules)
    if rules is None or limit is None or status is None or status.blocked_since is None:
        return DrainDecision(do="wait")
    due = status.blocked_since + limit
    if now < due:
        return DrainDecision(do="wait", until=due)
    if rules.when_blocked == "escalate":
        return DrainDecision(do="escalate", why=status.blocker_summary)
    if drain.defers_deletion:
        return DrainDecision(do="cancel", why=status.blocker_summary)
    return DrainDecision(do="wait")


def drain_state_after(previous: DrainState | None, status: DrainStatus | None, *, defers_deletion: bool) -> DrainState:
    """The state after a pass. A pod that left resets the fallback."""
    known = previous.status if previous else None
    has_progressed = known is None or status is None or known.progress != status.progress
    idle_passes = 0 if previous is None or has_progressed else previous.idle_passes
    return DrainState(defers_deletion=defers_deletion, status=status, idle_passes=idle_passes)


def fallback_after(drain: DrainState) -> timedelta:
    """The time until the next pass if no signal arrives."""
    longest = MAX_FALLBACK if drain.status is None or drain.status.is_observed else MAX_UNOBSERVED_FALLBACK
    doublings = min(drain.idle_passes, 10)
    return min(longest, FIRST_FALLBACK * (1 << doublings))


def describe_next_step(
    rules: DrainRules | None, blocked_since: datetime | None, *, cancellable: bool, has_pods: bool = True
) -> str:
    limit = blocked_for(rules)
    if rules is None or limit is None or blocked_since is None:
        return ""
    due = (blocked_since + limit).isoformat(timespec="seconds")
    if rules.when_blocked == "escalate" and not has_pods:
        return f"escalates at {due}: the instance terminates with its volumes attached"
    if rules.when_blocked == "escalate":
        return f"escalates at {due}: pods are deleted with their own grace period, regardless of blockers"
    if cancellable:
        return f"is cancelled at {due}: the node is uncordoned and kept"
    return "can no longer be cancelled, since its NodeClaim is being deleted: it waits"


def retry_drain_at(rules: DrainRules | None, now: datetime) -> datetime:
    return now + max(blocked_for(rules) or MIN_RETRY_PAUSE, MIN_RETRY_PAUSE)


def earliest_deadline(*deadlines: datetime | None) -> datetime | None:
    """A deadline may only move to an earlier time (reference 3.14)."""
    return min((one for one in deadlines if one is not None), default=None)


def escalation_deadline(pods: Iterable[DrainPod], now: datetime) -> datetime:
    longest = max((pod.grace_seconds for pod in pods), default=0)
    return now + max(timedelta(seconds=longest), ESCALATION_AT_LEAST)


def is_late(pod: DrainPod, deadline: datetime | None, now: datetime) -> bool:
    """Whether the pod must be deleted now, regardless of blockers and group: its grace period or its deletionTimestamp
    would end after the deadline (reference 3.14)."""
    if deadline is None:
        return False
    if pod.deletion is not None:
        return pod.deletion > deadline
    return now + timedelta(seconds=pod.grace_seconds) > deadline


def terminates_soon(blocker: EvictionBlocker, now: datetime) -> bool:
    """Whether a terminating pod is expected to be gone within MAX_TERMINATION."""
    if blocker.cause != "terminating" or blocker.passes_at is None:
        return False
    ends_at = blocker.passes_at - STUCK_AFTER
    return now < ends_at + TERMINATION_DELAY and ends_at - now <= MAX_TERMINATION


def is_request_pending(progress: EvictionProgress, now: datetime) -> bool:
    """Whether the drain leaves the pod to its responders. Otherwise it uses the Eviction API: the request has failed,
    or no controller has observed it in time."""
    return not progress.failed and (progress.observed or now < progress.created + OBSERVED_WITHIN)


def next_change_at(
    blockers: Iterable[EvictionBlocker],
    pods: Iterable[DrainPod],
    deadline: datetime | None,
    not_ready_until: datetime | None,
    now: datetime,
) -> datetime | None:
    """When the next blocker clears by itself, or the next pod must be deleted (`is_late`); None if no time is known."""
    times = [deadline, not_ready_until, *(one.passes_at for one in blockers)]
    if deadline is not None and deadline > now:
        times += [deadline - timedelta(seconds=pod.grace_seconds) for pod in pods if pod.deletion is None]
    return min((at for at in times if at is not None and at > now), default=None)


def needs_restart(rollout: DeploymentRollout, began: datetime) -> bool:
    """A Deployment is restarted once per drain; a restart by anyone since the drain began counts."""
    at = parse_timestamp(rollout.restarted_at)
    return at is None or at < began


def surge_limit(rollout: DeploymentRollout) -> timedelta:
    """How long the old pod waits for the new one."""
    return SURGE + timedelta(seconds=rollout.min_ready_seconds)


def creates_pod_first(rollout: DeploymentRollout | None) -> bool:
    return rollout is not None and rollout.replicas == 1 and rollout.surges


def with_known_since(
    blockers: Iterable[EvictionBlocker], known: DrainStatus | None, now: datetime
) -> tuple[EvictionBlocker, ...]:
    before = {(one.subject, one.uid, one.cause): one.since for one in (known.eviction_blockers if known else ())}
    return tuple(
        one.model_copy(update={"since": one.since or before.get((one.subject, one.uid, one.cause)) or now})
        for one in blockers
    )


def decide_drain_status(
    blockers: Sequence[EvictionBlocker],
    known: DrainStatus | None,
    *,
    waited: Sequence[DrainPod],
    began: datetime,
    now: datetime,
) -> DrainStatus:
    """The status of the drain. `blocked_since` is kept when the blocker changes, and reset when a pod leaves."""
    progressed = known is not None and len(waited) < known.pods
    progress = now if progressed else (known.progress if known else None) or began
    dated = with_known_since(blockers, known, now)
    ordered = sorted(dated, key=lambda one: (_ORDER.get(one.cause, 2), one.subject))
    blocked = any(one.cause in BLOCKING_CAUSES for one in dated)
    before = known.blocked_since if known and not progressed else None
    first = min((one.since for one in dated if one.since and one.cause in BLOCKING_CAUSES), default=now)
    group = min((pod.group for pod in waited), default=0)
    return DrainStatus(
        eviction_blockers=tuple(ordered),
        pods=len(waited),
        pods_in_later_groups=sum(pod.group != group for pod in waited),
        blocked_since=max(before or first, progress) if blocked else None,
        progress=progress,
    )
