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


SLOW: Final = "Slow"
HOOK_RUNNING: Final = "HookRunning"
HOOK_FAILED: Final = "HookFailed"
CALL_FAILED: Final = "CallFailed"
NODE_NOT_FOUND: Final = "NodeNotFound"
NEEDS_ATTENTION: Final = (HOOK_FAILED, NODE_NOT_FOUND)
"""Codes that need an operator before any deadline has passed."""

BLOCKERS: Final[Mapping[str, Reason]] = {
    "LaunchOverdue": Reason(
        "no instance before the deadline", "see why EC2 gives no instance, or delete the NodeClaim"
    ),
    "RegistrationOverdue": Reason(
        "no Node before the deadline", "see why the instance's Node does not join, or delete the NodeClaim"
    ),
    "InitializationOverdue": Reason(
        "not initialized before the deadline", "mend what holds up the Node, or delete the NodeClaim"
    ),
    "DrainOverdue": Reason("not drained before the deadline", "let its pods go, or delete them"),
    "TerminationOverdue": Reason("not terminated before the deadline", "see why the instance does not end"),
    SLOW: Reason("the phase takes longer than such nodes have taken, and is within its deadline"),
    HOOK_RUNNING: Reason("a hook runs"),
    HOOK_FAILED: Reason("a hook failed, and is tried again", "mend the hook, or take it out of its LifecyclePolicy"),
    CALL_FAILED: Reason("a call of AWS or Kubernetes failed, and is repeated", "read the error in the details"),
    NODE_NOT_FOUND: Reason(
        "the Node is gone while its instance runs on", "bring its Node back, or delete the NodeClaim"
    ),
    "MultipleNodesFound": Reason(
        "more than one Node has its provider id", "delete the Node that is not the instance's"
    ),
    "NodeNotReady": Reason("the kubelet does not report Ready", "see why the kubelet is not Ready"),
    "StartupTaintsExist": Reason("a startup taint is still there", "see why what removes the taint does not run"),
    "KnownEphemeralTaintsExist": Reason("a taint that Kubernetes removes is still there"),
    "ResourceNotRegistered": Reason("a resource is not allocatable yet", "see why its device plugin does not run"),
    "Paused": Reason("a person paused the node, its NodePool or the cluster", "`tenure resume`"),
    "PermitDenied": Reason("its NodePool lets no node go now: a budget, a window, a roll-out or a pause"),
    "DrainCancelled": Reason("its last drain was cancelled; it is not disrupted for a while"),
    "InterruptionDeferred": Reason(
        "AWS announced something, and its policy waits for a time or for an answer", "`tenure approve`, if it asks"
    ),
    "Unhealthy": Reason("a condition of its Node is bad; repair waits, or has not helped", "see the Node's conditions"),
    "ReplacementPending": Reason("it has drifted; its replacement is to be planned"),
    "CapacityBuffer": Reason("it is the room of a CapacityBuffer"),
    "PodsExpected": Reason("pods that wait are expected there"),
    "NodeDoNotDisrupt": Reason("the annotation `karpenter.sh/do-not-disrupt` of its Node", "take the annotation off"),
    "NoPool": Reason("it belongs to no NodePool", "delete it by hand"),
    "Never": Reason("`consolidateAfter` of its NodePool is Never"),
    "LiveStateDiffers": Reason("the cluster did not agree when it was to go; it is looked at again"),
    "PodDisruptionBudget": Reason("a PodDisruptionBudget lets no pod go", "make its pods Ready, or let it allow one"),
    "MultiplePodDisruptionBudgets": Reason("two PodDisruptionBudgets select a pod", "leave the pod one of them"),
    "PodDoNotDisrupt": Reason(
        "the annotation `karpenter.sh/do-not-disrupt` of a pod", "take it off, or delete the pod"
    ),
    "EvictionRefused": Reason(
        "the API server refuses an eviction", "look at admission webhooks and the worker's rights"
    ),
    "NewPodPending": Reason("a Deployment restarts, and its new pod is not Ready", "look at the new pod"),
    "VolumesAttached": Reason("volumes are still attached", "look at the CSI driver's controller"),
    "PodsTerminating": Reason("pods are ending"),
    "PodsDeferred": Reason("a LifecyclePolicy lets pods go later than others"),
    "StopStart": Reason("its instance is stopped and started for maintenance"),
    "StopStartFailed": Reason("its instance could not be stopped and started; it is drained"),
    "NotTainted": Reason("the nodes of a command could not be taken out of service yet"),
    "PlannerUnavailable": Reason("the planner's host does not answer"),
    "ReplacementsNotReady": Reason("replacements of a command are not ready"),
    "RollbackFailed": Reason("the nodes of a command could not be put back yet", "read the error in the details"),
    "RolloutHalted": Reason("a roll-out goes no further", "`tenure approve` or `tenure reject`"),
    "RolloutWaits": Reason("a roll-out waits for an answer, or takes too long", "`tenure approve` or `tenure reject`"),
}

INELIGIBILITIES: Final[Mapping[str, Reason]] = {
    "NoNode": Reason("it has no Node yet"),
    "NotInitialized": Reason("its Node is not initialized yet"),
    "Deleting": Reason("it is being deleted"),
    "InProgress": Reason("it is part of a disruption that is under way"),
    "Nominated": BLOCKERS["PodsExpected"],
    "NoPool": Reason("its NodePool is gone"),
    "StaticPool": Reason("its NodePool is static"),
    "PoolClosed": Reason("nothing can be bought from its NodePool", "see the NodePool's conditions"),
    "NodeDoNotDisrupt": BLOCKERS["NodeDoNotDisrupt"],
    "PodDoNotDisrupt": BLOCKERS["PodDoNotDisrupt"],
    "PodDisruptionBudget": Reason(
        "a PodDisruptionBudget lets no pod go now, or two select one pod", BLOCKERS["PodDisruptionBudget"].remedy
    ),
    "Never": BLOCKERS["Never"],
    "Resting": Reason("`consolidateAfter` of its NodePool is not over"),
    "PolicyUnknown": Reason("its NodePool does not say when nodes may go", "write `consolidateAfter`"),
    "Policy": Reason("`consolidationPolicy` of its NodePool is WhenEmpty, and pods run on it"),
    "CapacityBuffer": BLOCKERS["CapacityBuffer"],
    "TooYoung": Reason("it is younger than `minimumNodeAge` of a LifecyclePolicy"),
    "NoInstanceType": Reason("its instance type is not known, so that prices cannot be compared"),
    "NoCapacityType": Reason("its capacity type is not known, so that prices cannot be compared"),
    "NoZone": Reason("its zone is not known, so that prices cannot be compared"),
    "NoPrice": Reason("its price is not known"),
    "Paused": BLOCKERS["Paused"],
    "Bounced": Reason("its last disruption failed; it is retried later"),
}
