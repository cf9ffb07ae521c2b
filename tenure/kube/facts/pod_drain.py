"""What a pod means for its node's drain and for its emptiness (reference 3.14, 2.2).

Pure rules on facts: `pods.py` applies them to a live list, `tenure/controller/signals/digests.py` to the caches.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.durations import DurationError, parse_duration
from tenure.kube.facts.pods import controller, pod_fact
from tenure.model.facts import PodFact, Toleration
from tenure.model.provider_results import DrainPod

STUCK_AFTER: Final = timedelta(seconds=60)
"""A pod that should have ended so long ago is not waited for."""
CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_DEFAULT_GRACE: Final = 30


def tolerates(tolerations: tuple[Toleration, ...], key: str, value: str, effect: str) -> bool:
    """Kubernetes' rule; an empty key with Exists tolerates everything, an empty effect every effect."""
    for one in tolerations:
        if one.effect and one.effect != effect:
            continue
        if one.operator == "Exists" and one.key in ("", key):
            return True
        if one.operator == "Equal" and one.key == key and one.value == value:
            return True
    return False


def waits(pod: PodFact, now: datetime) -> bool:
    """Whether a drain has to wait until the pod is gone."""
    if pod.is_finished or pod.mirror or _stuck(pod, now):
        return False
    return not tolerates(pod.tolerations, labels.DISRUPTED_TAINT_KEY, "", labels.NO_SCHEDULE)


def reschedulable(pod: PodFact) -> bool:
    """Whether it would need a place elsewhere: while there is one, the node is not empty.

    A terminating pod of a StatefulSet counts, since its successor is on its way.
    """
    if pod.daemonset or pod.mirror or pod.is_finished:
        return False
    return not pod.deleting or pod.owner_kind == "StatefulSet"


def protected(value: str, started: datetime | None, now: datetime) -> bool:
    """Whether a do-not-disrupt annotation holds now: `true_condition`, or a duration since the pod's start. Others
    are void."""
    if value == "true":
        return True
    lasts = _lasts(value)
    return lasts is not None and (started is None or now < started + lasts)


def _lasts(value: str) -> timedelta | None:
    """How long the annotation protects from the pod's start on; None where it says no such time."""
    try:
        lasts = parse_duration(value) if value else None
    except DurationError:
        return None
    return lasts if lasts is not None and lasts > timedelta() else None


def _ends(value: str, started: datetime | None) -> datetime | None:
    lasts = _lasts(value)
    return started + lasts if lasts is not None and started is not None else None


def drain_pod(pod: Mapping[str, Any], now: datetime) -> DrainPod:
    """A live pod as a drain sees it."""
    fact = pod_fact(pod)
    told = (pod.get("status") or {}).get("startTime")
    started = datetime.fromisoformat(told) if told else None
    held = protected(fact.do_not_disrupt, started, now)
    owner = controller(pod["metadata"].get("ownerReferences") or ())
    waited = waits(fact, now)
    return DrainPod(
        uid=fact.uid,
        namespace=fact.namespace,
        name=fact.name,
        waits=waited,
        evictable=waited and not fact.deleting and not held,
        group=_group(fact),
        reschedulable=reschedulable(fact),
        protected=held and not fact.is_finished,
        why_not=_why_not(fact, waited, held),
        grace_seconds=_grace(pod),
        deletion=fact.deletion_deadline,
        protected_until=_ends(fact.do_not_disrupt, started) if held else None,
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
        labels=fact.labels,
        ready=_is_true(pod, labels.READY),
        controller_set_not_ready=_is_marked_not_ready(pod),
    )


def first_out(pods: Iterable[PodFact], now: datetime) -> tuple[DrainPod, ...]:
    """Of the pods of a node those that a drain evicts at its first look, as far as the caches tell."""
    waited = [pod for pod in pods if waits(pod, now)]
    first = min((_group(pod) for pod in waited), default=0)
    return tuple(
        DrainPod(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            waits=True,
            evictable=True,
            group=first,
            reschedulable=reschedulable(pod),
            labels=pod.labels,
        )
        for pod in waited
        if _group(pod) == first and not pod.deleting and not protected(pod.do_not_disrupt, pod.started, now)
    )


def _group(pod: PodFact) -> int:
    return (2 if pod.priority_class in CRITICAL else 0) + (1 if pod.daemonset else 0)


def _why_not(fact: PodFact, waited: bool, held: bool) -> str:
    if not waited:
        return ""
    if fact.deleting:
        return "terminating"
    return f"annotation {labels.DO_NOT_DISRUPT}={fact.do_not_disrupt}" if held else ""


def _is_marked_not_ready(pod: Mapping[str, Any]) -> bool:
    """Without readiness gates, only the node lifecycle controller makes Ready differ from ContainersReady."""
    gated = bool(pod["spec"].get("readinessGates"))
    return not gated and _is_true(pod, "ContainersReady") and not _is_true(pod, labels.READY)


def _is_true(pod: Mapping[str, Any], condition: str) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == condition and one.get("status") == "True" for one in conditions)


def _grace(pod: Mapping[str, Any]) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE if seconds is None else int(seconds)


def _stuck(pod: PodFact, now: datetime) -> bool:
    return pod.deletion_deadline is not None and now > pod.deletion_deadline + STUCK_AFTER
