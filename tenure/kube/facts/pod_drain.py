"""Effect of a pod on its node's drain and emptiness (reference 3.14, 2.2)."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.durations import parse_duration_or_none
from tenure.kube.facts.objects import is_condition_true
from tenure.kube.facts.pods import controller_owner, read_pod
from tenure.model.facts import PodFact, Toleration
from tenure.model.provider_results import DrainPod

STUCK_AFTER: Final = timedelta(seconds=60)
"""A drain does not wait for a pod that is this long past its deletion deadline."""
CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_DEFAULT_GRACE: Final = 30
_MAX_GRACE: Final = 10 * 365 * 24 * 3600
"""Seconds. The API server accepts up to 2^63-1, which no timestamp can represent; a longer one counts as this."""


def is_tolerated(tolerations: tuple[Toleration, ...], key: str, value: str, effect: str) -> bool:
    """As in Kubernetes: an empty key with Exists tolerates every taint, and an empty effect every effect."""
    for one in tolerations:
        if one.effect and one.effect != effect:
            continue
        if one.operator == "Exists" and one.key in ("", key):
            return True
        if one.operator == "Equal" and one.key == key and one.value == value:
            return True
    return False


def must_wait_for(pod: PodFact, now: datetime) -> bool:
    """Whether a drain must wait until the pod is gone."""
    if pod.is_finished or pod.mirror or _is_stuck(pod, now):
        return False
    return not is_tolerated(pod.tolerations, labels.DISRUPTED_TAINT_KEY, "", labels.NO_SCHEDULE)


def is_reschedulable(pod: PodFact) -> bool:
    """Whether the pod must be rescheduled elsewhere. A node with such a pod is not empty.

    A terminating pod of a StatefulSet counts, because it is replaced only after it is gone.
    """
    if pod.daemonset or pod.mirror or pod.is_finished:
        return False
    return not pod.deleting or pod.owner_kind == "StatefulSet"


def is_protected(value: str, started: datetime | None, now: datetime) -> bool:
    """Whether a do-not-disrupt annotation is effective now: `true`, or a duration from the start of the pod."""
    if value == "true":
        return True
    duration = _protection_duration(value)
    return duration is not None and (started is None or now < started + duration)


def _protection_duration(value: str) -> timedelta | None:
    """How long the annotation protects the pod from its start on; None for other values."""
    duration = parse_duration_or_none(value)
    return duration if duration is not None and duration > timedelta() else None


def _protection_end(value: str, started: datetime | None) -> datetime | None:
    duration = _protection_duration(value)
    return started + duration if duration is not None and started is not None else None


def drain_pod(pod: Mapping[str, Any], now: datetime) -> DrainPod:
    """The facts of a live pod for a drain."""
    fact = read_pod(pod)
    status = pod.get("status") or {}
    start_time = status.get("startTime")
    started = datetime.fromisoformat(start_time) if start_time else None
    has_protection = is_protected(fact.do_not_disrupt, started, now)
    owner = controller_owner(pod["metadata"].get("ownerReferences") or ())
    is_waited_for = must_wait_for(fact, now)
    return DrainPod(
        uid=fact.uid,
        namespace=fact.namespace,
        name=fact.name,
        waits=is_waited_for,
        evictable=is_waited_for and not fact.deleting and not has_protection,
        group=_eviction_group(fact),
        reschedulable=is_reschedulable(fact),
        protected=has_protection and not fact.is_finished,
        why_not=_not_evictable_reason(fact, is_waited_for, has_protection),
        grace_seconds=_grace_seconds(pod),
        deletion=fact.deletion_deadline,
        protected_until=_protection_end(fact.do_not_disrupt, started) if has_protection else None,
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
        labels=fact.labels,
        has_responders=bool(pod["spec"].get("evictionResponders")),
        ready=is_condition_true(status, labels.READY),
        controller_set_not_ready=_is_set_not_ready_by_controller(pod),
    )


def first_eviction_batch(pods: Iterable[PodFact], now: datetime) -> tuple[DrainPod, ...]:
    """The pods of a node that a drain evicts in its first pass, from cached facts."""
    waited = [pod for pod in pods if must_wait_for(pod, now)]
    first = min((_eviction_group(pod) for pod in waited), default=0)
    return tuple(
        DrainPod(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            waits=True,
            evictable=True,
            group=first,
            reschedulable=is_reschedulable(pod),
            labels=pod.labels,
        )
        for pod in waited
        if _eviction_group(pod) == first and not pod.deleting and not is_protected(pod.do_not_disrupt, pod.started, now)
    )


def _eviction_group(pod: PodFact) -> int:
    return (2 if pod.priority_class in CRITICAL else 0) + (1 if pod.daemonset else 0)


def _not_evictable_reason(fact: PodFact, is_waited_for: bool, has_protection: bool) -> str:
    if not is_waited_for:
        return ""
    if fact.deleting:
        return "terminating"
    return f"annotation {labels.DO_NOT_DISRUPT}={fact.do_not_disrupt}" if has_protection else ""


def _is_set_not_ready_by_controller(pod: Mapping[str, Any]) -> bool:
    """Without readiness gates, only the node lifecycle controller makes Ready differ from ContainersReady."""
    gated = bool(pod["spec"].get("readinessGates"))
    status = pod.get("status") or {}
    is_not_ready = not is_condition_true(status, labels.READY)
    return not gated and is_condition_true(status, "ContainersReady") and is_not_ready


def _grace_seconds(pod: Mapping[str, Any]) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE if seconds is None else min(max(int(seconds), 0), _MAX_GRACE)


def _is_stuck(pod: PodFact, now: datetime) -> bool:
    return pod.deletion_deadline is not None and now > pod.deletion_deadline + STUCK_AFTER
