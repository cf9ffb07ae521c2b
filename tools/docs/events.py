"""Every event that is sent to Kubernetes: reason, type, object, when, and what to do.

docs/reference/events.md is made of it; tests/unit/tools/test_reference.py compares the reasons with those in the code.
"""

from typing import Final, NamedTuple


class Reason(NamedTuple):
    reason: str
    warning: bool
    kinds: str
    when: str
    todo: str = "nothing"


_LAUNCH: Final = "[no capacity](../runbooks/no-capacity.md)"
_ROLLOUT: Final = "[roll-outs](../rollouts.md)"
_AWS: Final = "[AWS' events](../aws-events.md)"
_DRAIN: Final = "[drain blocked](../runbooks/drain-blocked.md)"
_OVERDUE: Final = "[overdue](../runbooks/node-overdue.md)"
_CLASS: Final = "[node classes](../node-classes.md)"

REASONS: Final = tuple(
    sorted(
        (
            Reason("Nominated", False, "Pod", "a plan expects the pod on this node or NodeClaim"),
            Reason(
                "FailedScheduling",
                True,
                "Pod",
                "no node that may be bought would take the pod",
                "read why in the message",
            ),
            Reason("Evicted", False, "Pod", "it was evicted through the Eviction API"),
            Reason("Disrupted", False, "Pod", "it was deleted: its node's grace period ends, or a hold was overruled"),
            Reason("SurgeStarted", False, "Pod", "its Deployment is restarted, so that a new pod comes first"),
            Reason(
                "SurgeFailed",
                True,
                "Pod",
                "the restart was refused; the pod is evicted",
                "read the message: mostly a right",
            ),
            Reason(
                "InsufficientCapacityError", True, "NodeClaim", "EC2 has no capacity of what was asked for", _LAUNCH
            ),
            Reason(
                "LaunchFailed",
                True,
                "NodeClaim",
                "EC2 refused for another reason; it is tried again",
                "mend what EC2 says",
            ),
            Reason("NodeClassNotReady", True, "NodeClaim", "its EC2NodeClass is not ready", _CLASS),
            Reason("LaunchTimeout", True, "NodeClaim", "no instance before the deadline: planned anew", _OVERDUE),
            Reason(
                "RegistrationTimeout", True, "NodeClaim", "no Node joined before the deadline: planned anew", _OVERDUE
            ),
            Reason(
                "InitializationTimeout", True, "NodeClaim", "not initialized in time, and a policy ends it", _OVERDUE
            ),
            Reason(
                "UnregisteredTaintMissing",
                True,
                "NodeClaim",
                "the Node joined without Karpenter's taint",
                "mend the user data",
            ),
            Reason(
                "UndeclaredTaint",
                True,
                "NodeClaim",
                "the Node has a taint that its NodePool does not declare",
                "declare it as a startupTaint",
            ),
            Reason(
                "SmallerThanPlanned", True, "NodeClaim", "the node has less room than was planned; it is remembered"
            ),
            Reason(
                "NotReadyGraceOver",
                True,
                "NodeClaim",
                "a node that was waited for is away too long: its pods are planned anew",
                "[start-up](../start-up.md)",
            ),
            Reason(
                "FailedConsistencyCheck",
                True,
                "NodeClaim",
                "the Node has less than its NodeClaim asked for",
                "compare the two",
            ),
            Reason("NodeNotFound", True, "NodeClaim", "its Node was deleted, and the instance runs"),
            Reason("Rebooted", False, "NodeClaim", "its machine came back with another boot id"),
            Reason(
                "DisruptionBlocked",
                False,
                "NodeClaim, Node, NodePool",
                "it may not be disrupted now",
                "read why in the message",
            ),
            Reason(
                "Unconsolidatable", False, "NodeClaim, Node", "no cheaper arrangement was found", "[plan](../plan.md)"
            ),
            Reason("DisruptionLaunching", False, "NodeClaim", "it replaces nodes of a command"),
            Reason("DisruptionWaitingReadiness", False, "NodeClaim", "the command waits until it is initialized"),
            Reason("DisruptionTerminating", False, "NodeClaim", "its command deletes it"),
            Reason(
                "DisruptionPaused", False, "Namespace, NodePool, NodeClaim, Node", "a pause holds", "`tenure resume`"
            ),
            Reason("DisruptionResumed", False, "Namespace, NodePool, NodeClaim, Node", "a pause is over"),
            Reason("FailedDraining", True, "NodeClaim, Node", "pods hold the drain; the message has the sums", _DRAIN),
            Reason(
                "AwaitingVolumeDetachment",
                False,
                "NodeClaim, Node",
                "all pods left, volumes are still attached",
                _DRAIN,
            ),
            Reason(
                "TerminationGracePeriodExpiring", True, "NodeClaim, Node", "when pods are deleted, whatever holds them"
            ),
            Reason("DrainGivenUp", True, "NodeClaim", "a policy gives a drain up: the node is kept", _DRAIN),
            Reason(
                "StopStartOver", False, "NodeClaim", "the instance was stopped and started, and its node serves again"
            ),
            Reason("HookSucceeded", False, "NodeClaim", "a hook has done its work"),
            Reason("HookSkipped", False, "NodeClaim", "a hook was not run"),
            Reason("HookFailed", True, "NodeClaim", "a hook failed or timed out", "[hooks](../hooks.md)"),
            Reason("Unhealthy", True, "NodeClaim", "repair replaces the node", "[repair](../repair.md)"),
            Reason("Rebooting", True, "NodeClaim", "repair reboots the instance", "[repair](../repair.md)"),
            Reason(
                "RebootFailed",
                True,
                "NodeClaim",
                "the reboot was refused; the next step follows",
                "[repair](../repair.md)",
            ),
            Reason("Repaired", False, "NodeClaim", "the node is well again"),
            Reason(
                "NodeRepairBlocked", True, "Node", "too many nodes are unhealthy: no repair", "find what they share"
            ),
            Reason(
                "GarbageCollected",
                True,
                "NodeClaim, NodePool",
                "an instance without NodeClaim, or the reverse, was put away",
            ),
            Reason(
                "TaggingFailed",
                True,
                "NodeClaim",
                "EC2 refused its tags; tried again",
                "read the message: mostly a right",
            ),
            Reason("CapacityReservationLost", True, "NodeClaim", "it runs outside its reservation now"),
            Reason(
                "CapacityBlockEnding", True, "NodeClaim", "its capacity block ends soon: the node is drained before"
            ),
            Reason("Overprovisioned", False, "NodeClaim", "a static pool has more nodes than it should: this one goes"),
            Reason(
                "ReplicasWait",
                True,
                "NodePool",
                "why a static pool has not its number of nodes",
                "[static pools](../static-pools.md)",
            ),
            Reason("ZonalShiftActive", True, "NodePool", "no node is bought in the zone"),
            Reason("ZonalShiftCleared", False, "NodePool", "nodes are bought in the zone again"),
            Reason(
                "NodeClassNotFound",
                True,
                "NodePool",
                "its EC2NodeClass is not there: no drift is looked for",
                "make it",
            ),
            Reason("NodeClassTerminating", True, "NodePool", "its EC2NodeClass is being deleted", "name another"),
            Reason("Finalized", False, "NodePool, NodeClaim, EC2NodeClass", "the finalizer is off"),
            Reason(
                "WaitingOnNodeClaimTermination",
                False,
                "EC2NodeClass",
                "NodeClaims still name it",
                "wait, or delete them",
            ),
            Reason(
                "AWSNotAnswering",
                True,
                "EC2NodeClass",
                "a part of it could not be asked of AWS; it stands as it was",
                _CLASS,
            ),
            Reason(
                "CleanUpFailed", True, "EC2NodeClass", "it is kept until its clean-up succeeds", "mend what AWS says"
            ),
            Reason(
                "RolledBack", True, "EC2NodeClass", "a failed roll-out of an image pins the last good one", _ROLLOUT
            ),
            *(
                Reason(reason, warning, "NodePool", when, _ROLLOUT)
                for reason, warning, when in (
                    ("RolloutBegan", False, "drift goes through the pool in waves"),
                    ("RolloutWaits", False, "it waits for an approval, a window or a gate"),
                    ("RolloutWaveSoaks", False, "a wave is out, and is watched"),
                    ("RolloutWaveDone", False, "a wave held"),
                    ("RolloutFinished", False, "all nodes are new"),
                    ("RolloutHalted", True, "its health failed: no further node goes"),
                    ("RolloutRollsBack", True, "its health failed: the last good image comes back"),
                    ("RolloutSuperseded", False, "the target changed meanwhile"),
                    ("RolloutApproved", False, "a person approved the plan"),
                    ("RolloutRejected", True, "a person rejected the plan"),
                    ("RolloutRefused", True, "an answer did not fit the plan"),
                )
            ),
            *(
                Reason(reason, warning, "NodeClaim, Node", when, _AWS)
                for reason, warning, when in (
                    ("SpotInterrupted", True, "EC2 takes the spot instance back in two minutes"),
                    ("CapacityReservationInstanceInterrupted", True, "the owner of the reservation takes it back"),
                    ("SpotRebalanceRecommendation", False, "the instance is at more risk"),
                    ("InstanceUnhealthy", True, "maintenance is announced, or a status check fails"),
                    ("InstanceStopping", True, "the instance stops, and Tenure did not ask for it"),
                    ("InstanceTerminating", True, "the instance ends, and Tenure did not ask for it"),
                    ("InterruptionWithdrawn", False, "AWS takes back what it announced"),
                    ("InterruptionApproved", False, "a person lets the node go"),
                    ("InterruptionRejected", False, "a person keeps the node"),
                    ("TerminatingOnInterruption", False, "the node goes for the event"),
                )
            ),
        )
    )
)
