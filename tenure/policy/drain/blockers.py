"""Why a pod is not evicted or a volume not detached, whether the blocker clears on its own, and the remedy.

The inputs are current pods and PodDisruptionBudgets. The Eviction API decides; this module only explains.
"""

from datetime import datetime, timedelta

from tenure.apis import labels
from tenure.model.blockers import BLOCKERS
from tenure.model.disruption.drain import EvictionBlocker, PodDrainRule, Prospect
from tenure.model.disruption.pod_budgets import PodBudgetIndex
from tenure.model.facts import PodDisruptionBudgetFact
from tenure.model.provider_results import AttachedVolume, DrainPod, Eviction, EvictionProgress

STUCK_AFTER = timedelta(seconds=60)
"""A drain does not wait for a pod this long after its deletionTimestamp (reference 3.14)."""
MAX_ERROR_LENGTH = 200
"""Characters of an error of another component."""


def new_pod_blocker(pod: DrainPod, **fields: object) -> EvictionBlocker:
    owner = f"{pod.owner_kind} {pod.owner_name}".strip()
    subject = f"{pod.namespace}/{pod.name}"
    return EvictionBlocker.model_validate({"subject": subject, "uid": pod.uid, "owner": owner, **fields})


def policy_blocker(pod: DrainPod, by: PodDrainRule) -> EvictionBlocker:
    return new_pod_blocker(pod, cause="policy", what=by.why, passes="at" if by.until else "can", passes_at=by.until)


def budget_blocker(pod: DrainPod, eviction: Eviction, budgets: PodBudgetIndex) -> EvictionBlocker:
    """The blocker of an eviction that the API server rejected. `budgets`: all of the pod's namespace."""
    mine = budgets.selecting_budgets(pod)
    if eviction.multiple_budgets or len(mine) > 1:
        names = ", ".join(one.name for one in mine) or eviction.blocked_by
        return new_pod_blocker(
            pod,
            cause="budgets",
            what=f"more than one PodDisruptionBudget selects it: {names}",
            passes="never",
            hint="the Eviction API always rejects its eviction: keep one PodDisruptionBudget, or delete the pod",
        )
    if not mine:
        return new_pod_blocker(pod, cause="budget", what=eviction.blocked_by, passes="unknown")
    budget = mine[0]
    passes, hint = _budget_prospect(pod, budget)
    return new_pod_blocker(
        pod, cause="budget", what=f"{_budget_name(budget)}: {describe_budget_counts(budget)}", passes=passes, hint=hint
    )


def find_budget_rejection(pod: DrainPod, budgets: PodBudgetIndex) -> str:
    """Why the Eviction API would reject the pod now; empty if it would not. `budgets`: all of the pod's namespace."""
    mine = budgets.selecting_budgets(pod)
    subject = f"pod {pod.namespace}/{pod.name}"
    if len(mine) > 1:
        return f"more than one PodDisruptionBudget selects {subject}: {', '.join(one.name for one in mine)}"
    for one in mine:
        if one.rejects_eviction(ready=pod.ready):
            return f"{subject}: {_budget_name(one)} allows no disruption now"
    return ""


def rejection_blocker(pod: DrainPod, message: str) -> EvictionBlocker:
    return new_pod_blocker(
        pod,
        cause="refused",
        what=f"its eviction is rejected: {message[:MAX_ERROR_LENGTH]}",
        passes="unknown",
        hint=BLOCKERS["EvictionRefused"].remedy,
    )


def responder_blocker(pod: DrainPod, progress: EvictionProgress) -> EvictionBlocker:
    if not progress.observed:
        what = "no controller has observed its EvictionRequest yet"
    elif progress.responder:
        message = f": {progress.message[:MAX_ERROR_LENGTH]}" if progress.message else ""
        what = f"responder {progress.responder} handles its EvictionRequest{message}"
    else:
        what = "its EvictionRequest has no active responder"
    expected = f"expected to complete at {progress.expected.isoformat(timespec='seconds')}" if progress.expected else ""
    return new_pod_blocker(pod, cause="responder", what=what, passes="unknown", hint=expected)


def describe_budget_counts(budget: PodDisruptionBudgetFact) -> str:
    written = f"minAvailable {budget.min_available}" if budget.min_available else ""
    written = f"maxUnavailable {budget.max_unavailable}" if budget.max_unavailable else written
    healthy = (
        f"{budget.current} of {budget.expected} pods healthy, {budget.desired} needed, "
        f"{budget.allowed} disruptions allowed"
    )
    return f"{written}, {healthy}" if written else healthy


def _budget_name(budget: PodDisruptionBudgetFact) -> str:
    return f"PodDisruptionBudget {budget.namespace}/{budget.name}"


def _budget_prospect(pod: DrainPod, budget: PodDisruptionBudgetFact) -> tuple[Prospect, str]:
    """Only the hint depends on the pod. AlwaysAllow evicts a pod that is not Ready whatever the budget counts."""
    passes, hint = _prospect_of_ready_pod(budget)
    if pod.ready or budget.always_allow_unhealthy:
        return passes, hint
    remedy = "set unhealthyPodEvictionPolicy: AlwaysAllow"
    if passes == "never":
        return passes, f"this pod is not Ready: {remedy}"
    if budget.current < budget.desired:
        return passes, f"neither this pod nor enough other pods are Ready: fix them, or {remedy}"
    return passes, f"this pod is not Ready: fix it, or {remedy}"


def _prospect_of_ready_pod(budget: PodDisruptionBudgetFact) -> tuple[Prospect, str]:
    if budget.sync_failed:
        return "never", f"its controller cannot count the pods: {budget.sync_failed[:MAX_ERROR_LENGTH]}"
    if not budget.counted:
        return "can", "its controller has not observed its latest change"
    if budget.expected and budget.desired >= budget.expected:
        return "never", (
            f"it needs all {budget.expected} pods: scale the workload up, or allow one of them to be unavailable"
        )
    missing = budget.desired + 1 - budget.current
    if missing > 0:
        return "can", f"{missing} more of its pods must be Ready"
    return "can", ""


def do_not_disrupt_blocker(pod: DrainPod) -> EvictionBlocker:
    if pod.protected_until is not None:
        return new_pod_blocker(
            pod, cause="do-not-disrupt", what=pod.why_not, passes="at", passes_at=pod.protected_until
        )
    return new_pod_blocker(
        pod,
        cause="do-not-disrupt",
        what=pod.why_not,
        passes="never",
        hint=f"remove the annotation {labels.DO_NOT_DISRUPT}, or delete the pod",
    )


def terminating_blocker(pod: DrainPod) -> EvictionBlocker:
    assert pod.deletion is not None
    return new_pod_blocker(
        pod,
        cause="terminating",
        what=f"is terminating, with a grace period of {pod.grace_seconds} s",
        since=pod.deletion - timedelta(seconds=pod.grace_seconds),
        passes="at",
        passes_at=pod.deletion + STUCK_AFTER,
    )


def surge_blocker(pod: DrainPod, deployment: str, until: datetime) -> EvictionBlocker:
    return new_pod_blocker(
        pod,
        cause="surge",
        what=f"is evicted when the new pod of Deployment {deployment} is Ready",
        passes="at",
        passes_at=until,
        hint="check the new pod: this one is evicted at that time anyway",
    )


def volume_blocker(volume: AttachedVolume, nodeclaim: str) -> EvictionBlocker:
    claim = f" of PersistentVolumeClaim {volume.claim}" if volume.claim else ""
    what = f"{volume.driver} has not detached PersistentVolume {volume.volume}{claim} from NodeClaim {nodeclaim}"
    return EvictionBlocker(
        subject=f"VolumeAttachment {volume.attachment}",
        cause="volume",
        what=f"{what}: {volume.error[:MAX_ERROR_LENGTH]}" if volume.error else what,
        hint=_detach_hint(volume),
    )


def _detach_hint(volume: AttachedVolume) -> str:
    if volume.error:
        return f"fix the error of {volume.driver}"
    if volume.detaching:
        return f"check that the controller of {volume.driver} runs"
    return "kube-controller-manager has not deleted it: check its log, or delete the VolumeAttachment"
