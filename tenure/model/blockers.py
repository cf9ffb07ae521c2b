"""The one registry of codes: what a workflow is blocked by (`TenureBlockedBy`), and why a node is not disrupted.

The sentence that goes with a code names the objects and the arithmetic; it is in the details, conditions and events.
Launches are blocked by the reasons of the condition Launched, such as `InsufficientCapacityError`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Reason(NamedTuple):
    meaning: str
    remedy: str = ""
    """The action an operator can take; empty if the blocker ends without one."""
    clears_by_itself: bool = True
    """False: it needs an operator before any deadline has passed."""


SLOW: Final = "Slow"
HOOK_RUNNING: Final = "HookRunning"
HOOK_FAILED: Final = "HookFailed"
CALL_FAILED: Final = "CallFailed"
NODE_NOT_FOUND: Final = "NodeNotFound"
_HOOK_REMEDY: Final = "fix the hook, or remove it from its LifecyclePolicy"
BLOCKERS: Final[Mapping[str, Reason]] = {
    "LaunchOverdue": Reason(
        "no instance before the deadline", "read EC2's error in the details, or delete the NodeClaim"
    ),
    "RegistrationOverdue": Reason(
        "no Node before the deadline", "find out why the Node does not join, or delete the NodeClaim"
    ),
    "InitializationOverdue": Reason(
        "not initialized before the deadline", "fix what blocks initialization, or delete the NodeClaim"
    ),
    "DrainOverdue": Reason("not drained before the deadline", "unblock the evictions, or delete the pods"),
    "TerminationOverdue": Reason("not terminated before the deadline", "find out why the instance does not terminate"),
    SLOW: Reason("the phase is slower than for similar nodes, and within its deadline"),
    HOOK_RUNNING: Reason("a hook is running", _HOOK_REMEDY),
    HOOK_FAILED: Reason("a hook failed and is retried", _HOOK_REMEDY, clears_by_itself=False),
    CALL_FAILED: Reason("a call to AWS or Kubernetes failed and is retried", "read the error in the details"),
    NODE_NOT_FOUND: Reason(
        "the Node no longer exists and its instance still runs",
        "restart its kubelet, or delete the NodeClaim",
        clears_by_itself=False,
    ),
    "NodeNotJoined": Reason(
        "no Node with its provider ID exists yet", "find out why the Node does not join, or delete the NodeClaim"
    ),
    "MultipleNodesFound": Reason(
        "more than one Node has its provider ID",
        "delete the Node that is not the instance's",
        clears_by_itself=False,
    ),
    "NodeNotReady": Reason("the kubelet does not report Ready", "find out why the kubelet is not Ready"),
    "StartupTaintsExist": Reason(
        "a startup taint is still present", "find out why the component that removes the taint does not run"
    ),
    "KnownEphemeralTaintsExist": Reason("a taint that Kubernetes removes is still present"),
    "ResourceNotRegistered": Reason("a resource is not allocatable yet", "find out why its device plugin does not run"),
    "Paused": Reason("the node, its NodePool or the cluster is paused", "`tenure resume`"),
    "PermitDenied": Reason("its NodePool allows no disruption now: a budget, a window, a rollout or a pause"),
    "DrainCancelled": Reason("its last drain was cancelled; it is not disrupted for a while"),
    "InterruptionDeferred": Reason(
        "an AWS event is pending: its policy waits for a time or an approval", "`tenure approve`, if it needs approval"
    ),
    "Unhealthy": Reason(
        "a condition of its Node is unhealthy; repair is pending or has failed", "read the Node's conditions"
    ),
    "ReplacementPending": Reason("it has drifted; its replacement is not planned yet"),
    "CapacityBuffer": Reason("it holds the capacity of a CapacityBuffer"),
    "PodsExpected": Reason("pending pods are expected on it"),
    "NodeDoNotDisrupt": Reason("the annotation `karpenter.sh/do-not-disrupt` of its Node", "remove the annotation"),
    "NoPool": Reason("it belongs to no NodePool", "delete it manually"),
    "Never": Reason("`consolidateAfter` of its NodePool is Never"),
    "LiveStateDiffers": Reason("live state did not confirm the decision; it is evaluated again"),
    "PodDisruptionBudget": Reason(
        "a PodDisruptionBudget allows no eviction now", "make its pods Ready, or allow one disruption"
    ),
    "PodDisruptionBudgetAllowsNone": Reason(
        "a PodDisruptionBudget can never allow an eviction",
        "scale the workload up, or allow one of its pods to be unavailable",
        clears_by_itself=False,
    ),
    "MultiplePodDisruptionBudgets": Reason(
        "two PodDisruptionBudgets select a pod", "keep one of them for the pod", clears_by_itself=False
    ),
    "PodDoNotDisrupt": Reason(
        "the annotation `karpenter.sh/do-not-disrupt` of a pod", "remove it, or delete the pod", clears_by_itself=False
    ),
    "PodDoNotDisruptUntil": Reason("the annotation `karpenter.sh/do-not-disrupt` of a pod, for a limited time"),
    "EvictionRefused": Reason(
        "the API server rejects an eviction",
        "check admission webhooks and the worker's permissions",
        clears_by_itself=False,
    ),
    "NewPodPending": Reason("a Deployment restarts, and its new pod is not Ready", "check the new pod"),
    "VolumesAttached": Reason(
        "all pods left, and a CSI driver has not detached a volume", "check the CSI driver's controller"
    ),
    "PodsTerminating": Reason("pods are terminating"),
    "PodsDeferred": Reason("a LifecyclePolicy evicts pods later than others"),
    "StopStart": Reason("its instance is stopped and started for maintenance"),
    "StopStartFailed": Reason("its instance could not be stopped and started; it is drained"),
    "NotTainted": Reason("the nodes of a command could not be tainted yet"),
    "PlannerUnavailable": Reason("the planner host does not respond"),
    "ReplacementsNotReady": Reason("replacements of a command are not ready"),
    "RollbackFailed": Reason(
        "the nodes of a command could not be returned to service yet", "read the error in the details"
    ),
    "RolloutHalted": Reason("a rollout is halted", "`tenure approve` or `tenure reject`", clears_by_itself=False),
    "RolloutWaits": Reason(
        "a rollout waits for approval, or is overdue", "`tenure approve` or `tenure reject`", clears_by_itself=False
    ),
}
NEEDS_ATTENTION: Final = tuple(code for code, reason in BLOCKERS.items() if not reason.clears_by_itself)
"""Codes that need an operator before any deadline has passed."""

INELIGIBILITIES: Final[Mapping[str, Reason]] = {
    "NoNode": Reason("it has no Node yet"),
    "NotInitialized": Reason("its Node is not initialized yet"),
    "Deleting": Reason("it is being deleted"),
    "InProgress": Reason("it is part of a disruption in progress"),
    "Nominated": BLOCKERS["PodsExpected"],
    "NoPool": Reason("its NodePool is gone", "delete the NodeClaim, or create the NodePool again"),
    "StaticPool": Reason("its NodePool is static"),
    "PoolClosed": Reason("its NodePool can launch no node", "read the NodePool's conditions"),
    "NodeDoNotDisrupt": BLOCKERS["NodeDoNotDisrupt"],
    "PodDoNotDisrupt": BLOCKERS["PodDoNotDisrupt"],
    "PodUnplannable": Reason(
        "a pod has a field that Tenure does not support, or cannot be read", "change the field that the message names"
    ),
    "PodDisruptionBudget": Reason(
        "a PodDisruptionBudget allows no eviction now, or two select one pod", BLOCKERS["PodDisruptionBudget"].remedy
    ),
    "Never": BLOCKERS["Never"],
    "Resting": Reason("`consolidateAfter` of its NodePool has not ended"),
    "PolicyUnknown": Reason("its NodePool has no `consolidateAfter`", "set `consolidateAfter`"),
    "Policy": Reason("`consolidationPolicy` of its NodePool is WhenEmpty, and pods run on it"),
    "CapacityBuffer": BLOCKERS["CapacityBuffer"],
    "TooYoung": Reason("it is younger than `minimumNodeAge` of a LifecyclePolicy"),
    "NoInstanceType": Reason("its instance type is unknown, so prices cannot be compared"),
    "NoCapacityType": Reason("its capacity type is unknown, so prices cannot be compared"),
    "NoZone": Reason("its zone is unknown, so prices cannot be compared"),
    "NoPrice": Reason("its price is unknown"),
    "Paused": BLOCKERS["Paused"],
    "Bounced": Reason("its last disruption failed; it is retried later"),
}
