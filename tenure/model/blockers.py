"""The one registry of codes: what a workflow is blocked by (`TenureBlockedBy`), why a node is not disrupted, and why a
pod is pending.

The sentence that goes with a code names the objects and the arithmetic; it is in the details, conditions and events.
Launches are blocked by the reasons of the condition Launched, such as `InsufficientCapacityError`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from tenure.model.base import Message, log_seconds


class Reason(NamedTuple):
    meaning: str
    remedy: str = ""
    """The action an operator can take; empty if the blocker ends without one."""
    clears_by_itself: bool = True
    """False: it needs an operator before any deadline has passed."""


class Verdict(Message):
    """On a node or a pending pod. Conditions, events, metrics, the Temporal UI and commands show the same one."""

    code: str
    """A code of this module, or the reason of the condition Launched."""
    sentence: str
    since: datetime | None
    clears_by_itself: bool
    """False: it needs an operator."""
    remedy: str
    deadline: datetime | None

    @property
    def message(self) -> str:
        return format_verdict(self.code, self.sentence)

    def log_fields(self, now: datetime) -> dict[str, Any]:
        """Of a log line about a new verdict."""
        duration = log_seconds(now - (self.since or now))
        return {"duration-seconds": duration, "code": self.code, "reason": self.sentence}


def format_verdict(code: str, sentence: str) -> str:
    """Code and sentence; some sentences start with the code."""
    if not sentence or sentence.lower().startswith(f"{code.lower()}:"):
        return sentence or code
    return f"{code}: {sentence}"


SLOW: Final = "Slow"
LAUNCH_FAILED: Final = "LaunchFailed"
HOOK_RUNNING: Final = "HookRunning"
HOOK_FAILED: Final = "HookFailed"
CALL_FAILED: Final = "CallFailed"
NODE_NOT_FOUND: Final = "NodeNotFound"
INSTANCE_STOPPED: Final = "InstanceStopped"
NODE_NOT_JOINED: Final = "NodeNotJoined"
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
    LAUNCH_FAILED: Reason("its launch fails repeatedly", "read EC2's error in the details", clears_by_itself=False),
    SLOW: Reason("the phase is slower than for similar nodes, and within its deadline"),
    HOOK_RUNNING: Reason("a hook is running", _HOOK_REMEDY),
    HOOK_FAILED: Reason("a hook failed and is retried", _HOOK_REMEDY, clears_by_itself=False),
    CALL_FAILED: Reason("a call to AWS or Kubernetes failed and is retried", "read the error in the details"),
    NODE_NOT_FOUND: Reason(
        "the Node no longer exists and its instance still runs",
        "restart its kubelet, or delete the NodeClaim",
        clears_by_itself=False,
    ),
    INSTANCE_STOPPED: Reason(
        "its instance is stopped, so its Node is NotReady",
        "start the instance, or delete the NodeClaim",
        clears_by_itself=False,
    ),
    NODE_NOT_JOINED: Reason(
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
    "DRADriverPoolsNotPublished": Reason(
        "a DRA driver has not published the ResourceSlices of the node yet", "find out why the driver does not run"
    ),
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
    "NodeMaintenance": Reason(
        "another controller drains or maintains its Node, by a lifecycle condition of the Node",
        "wait until the controller has removed the condition",
    ),
    "NoPool": Reason(
        "it has no NodePool, or its NodePool is gone", "delete the NodeClaim, or create the NodePool again"
    ),
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
    "EvictionRequested": Reason("a responder of a pod handles its EvictionRequest", "check the responder"),
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

NOMINATED: Final = "Nominated"
NOT_BOUND: Final = "NotBound"
PLAN_PENDING: Final = "PlanPending"
NOT_TRIED: Final = "NotTried"
SCHEDULING_GATED: Final = "SchedulingGated"
SCHEDULER_ERROR: Final = "SchedulerError"
PREEMPTION: Final = "Preemption"
DAEMONSET_POD: Final = "DaemonSetPod"
NODEPOOLS_EXCLUDED: Final = "NodePoolsExcluded"
INSUFFICIENT_CAPACITY: Final = "InsufficientCapacity"
LIMITS_EXCEEDED: Final = "LimitsExceeded"
MIN_VALUES: Final = "MinValues"
NODECLAIM_REJECTED: Final = "NodeClaimRejected"
NODECLAIM_NOT_CREATED: Final = "NodeClaimNotCreated"
NODEPOOL_NOT_READY: Final = "NodePoolNotReady"
NO_INSTANCE_TYPE_FITS: Final = "NoInstanceTypeFits"
NO_NODEPOOL_FITS: Final = "NoNodePoolFits"
TOPOLOGY: Final = "TopologyConstraints"
VOLUMES: Final = "Volumes"
POD_UNPLANNABLE: Final = "PodUnplannable"
BACKOFF: Final = "ProvisioningBackoff"
PENDING_PODS: Final[Mapping[str, Reason]] = {
    NOMINATED: Reason("a plan expects pending pods on a Node or NodeClaim"),
    PLAN_PENDING: Reason("the pod waits for the next plan"),
    NOT_TRIED: Reason(
        "its scheduler has not tried to schedule the pod yet", "check that the scheduler of its `schedulerName` runs"
    ),
    SCHEDULING_GATED: Reason("the pod has scheduling gates", "remove its `schedulingGates`, or wait for their owner"),
    SCHEDULER_ERROR: Reason(
        "kube-scheduler chose a node and could not bind the pod; Tenure does not plan it",
        "read the message of its condition PodScheduled",
    ),
    PREEMPTION: Reason("kube-scheduler evicts pods of a Node for it"),
    DAEMONSET_POD: Reason("pods of DaemonSets run on existing nodes; no node is launched for them"),
    NODEPOOLS_EXCLUDED: Reason("its node affinity excludes the nodes of all NodePools"),
    INSUFFICIENT_CAPACITY: Reason(
        "EC2 has no capacity for the instance types that fit; refused ones are tried again after three minutes",
        "allow more instance types, zones or capacity types in the NodePool",
    ),
    NOT_BOUND: Reason(
        "its node is ready, and its scheduler has not bound the pod for over a minute",
        "read the message of its condition PodScheduled, and check that its scheduler runs",
        clears_by_itself=False,
    ),
    LIMITS_EXCEEDED: Reason(
        "a node for the pod would exceed the limits of a NodePool",
        "raise `limits` of the NodePool, or delete pods",
        clears_by_itself=False,
    ),
    MIN_VALUES: Reason(
        "too few instance types fit the pod for `minValues` of the NodePool",
        "lower `minValues`, or allow more instance types",
        clears_by_itself=False,
    ),
    NODECLAIM_REJECTED: Reason(
        "the API server rejects the NodeClaim for the pod",
        "fix the cause that the message names, such as an admission webhook or the worker's permissions",
        clears_by_itself=False,
    ),
    NODECLAIM_NOT_CREATED: Reason(
        "the API server failed to create the NodeClaim for the pod; the next plan tries again within a minute",
        "check the API server and its admission webhooks, if it lasts",
    ),
    NODEPOOL_NOT_READY: Reason(
        "a NodePool that may fit the pod cannot launch nodes",
        "read the conditions of the NodePool and its EC2NodeClass",
        clears_by_itself=False,
    ),
    NO_INSTANCE_TYPE_FITS: Reason(
        "no allowed instance type has room for the pod",
        "allow larger instance types in the NodePool, or lower the pod's requests",
        clears_by_itself=False,
    ),
    NO_NODEPOOL_FITS: Reason(
        "the pod does not match the requirements or taints of any NodePool",
        "change the pod's node selector, affinity or tolerations, or the NodePool",
        clears_by_itself=False,
    ),
    TOPOLOGY: Reason(
        "topology spread or pod affinity leaves no domain for the pod",
        "change the constraint, or allow more zones in the NodePool",
        clears_by_itself=False,
    ),
    VOLUMES: Reason(
        "the pod cannot use its volumes", "fix the PersistentVolumeClaim that the message names", clears_by_itself=False
    ),
    POD_UNPLANNABLE: Reason(
        "the pod has a field that Tenure does not support, cannot be read, or takes too long to plan",
        "change the field that the message names",
        clears_by_itself=False,
    ),
    BACKOFF: Reason(
        "nodes were launched for the pod, and kube-scheduler used none of them",
        "remove the cause that kube-scheduler names, or change the pod",
        clears_by_itself=False,
    ),
}
"""Codes of pending pods."""
NEARNESS: Final = (
    INSUFFICIENT_CAPACITY,
    LIMITS_EXCEEDED,
    MIN_VALUES,
    TOPOLOGY,
    NODEPOOL_NOT_READY,
    NO_INSTANCE_TYPE_FITS,
    NO_NODEPOOL_FITS,
)
"""Why a NodePool does not fit a pod: the NodePools that lack least come first."""

INELIGIBILITIES: Final[Mapping[str, Reason]] = {
    "NoNode": Reason("it has no Node yet"),
    "NotInitialized": Reason("its Node is not initialized yet"),
    "Deleting": Reason("it is being deleted"),
    "InProgress": Reason("it is part of a disruption in progress"),
    NOMINATED: PENDING_PODS[NOMINATED],
    "NoPool": BLOCKERS["NoPool"],
    "StaticPool": Reason("its NodePool is static"),
    "PoolClosed": Reason("its NodePool can launch no node", "read the NodePool's conditions"),
    "NodeDoNotDisrupt": BLOCKERS["NodeDoNotDisrupt"],
    "NodeMaintenance": BLOCKERS["NodeMaintenance"],
    "PodDoNotDisrupt": BLOCKERS["PodDoNotDisrupt"],
    POD_UNPLANNABLE: PENDING_PODS[POD_UNPLANNABLE],
    "PodDisruptionBudget": BLOCKERS["PodDisruptionBudget"],
    "MultiplePodDisruptionBudgets": BLOCKERS["MultiplePodDisruptionBudgets"],
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
"""Why a node is not disrupted."""

REASONS: Final[Mapping[str, Reason]] = {**BLOCKERS, **INELIGIBILITIES, **PENDING_PODS}
"""All codes. A code has one meaning wherever it occurs."""
