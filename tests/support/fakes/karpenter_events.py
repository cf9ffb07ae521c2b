"""Karpenter's events: the type and the phrase of each reason that Tenure publishes too."""

import re
from typing import Final

KARPENTER_EVENTS: Final = {
    "AwaitingVolumeDetachment": ("Normal", "Awaiting deletion of bound volumeattachments"),
    "CapacityReservationInstanceInterrupted": ("Warning", "Capacity reservation interruption warning was triggered"),
    "DisruptionBlocked": ("Normal", ""),
    "DisruptionLaunching": ("Normal", r"Launching NodeClaim: \w+"),
    "DisruptionTerminating": ("Normal", r"Disrupting (NodeClaim|Node): \w+|replacement not needed"),
    "DisruptionWaitingReadiness": ("Normal", "Waiting on readiness to continue disruption"),
    "Disrupted": ("Normal", "Deleting the pod to accommodate the terminationTime"),
    "Evicted": ("Normal", r"Evicted pod: \w+"),
    "FailedConsistencyCheck": ("Warning", r"expected \S+ of resource \S+, but found \S+ \([0-9.]+% of expected\)"),
    "FailedDraining": ("Warning", "Failed to drain node, "),
    "FailedScheduling": ("Warning", "Failed to schedule pod, "),
    "Finalized": ("Normal", "Finalized karpenter"),
    "InstanceStopping": ("Warning", "Instance is stopping"),
    "InstanceTerminating": ("Warning", "Instance is terminating"),
    "InstanceUnhealthy": ("Warning", "An unhealthy warning was triggered for the instance"),
    "InsufficientCapacityError": ("Warning", r"NodeClaim \S+ event: "),
    "NodeRepairBlocked": ("Warning", r"more than \S+ nodes are unhealthy in the (nodepool|cluster)"),
    "Nominated": ("Normal", "Pod should schedule on: (nodeclaim|node)/"),
    "SpotInterrupted": ("Warning", "Spot interruption warning was triggered"),
    "SpotRebalanceRecommendation": ("Normal", "Spot rebalance recommendation was triggered"),
    "TerminatingOnInterruption": ("Warning", "Interruption triggered termination for the Node"),
    "TerminationGracePeriodExpiring": ("Warning", "All pods will be deleted by "),
    "Unconsolidatable": ("Normal", ""),
    "UnregisteredTaintMissing": (
        "Warning",
        "Missing karpenter.sh/unregistered taint which prevents registration related race conditions",
    ),
    "WaitingOnNodeClaimTermination": ("Normal", "Waiting on NodeClaim termination for "),
}
"""Karpenter v1.15: type, and a pattern of the message's begin. The messages of DisruptionBlocked and Unconsolidatable
are only their cause.

Tenure reports the rest as conditions, or as InvalidObject.
"""


def assert_phrase_of_karpenter(reason: str, message: str) -> None:
    """Alert rules and people match on the phrase."""
    _, phrase = KARPENTER_EVENTS.get(reason, ("", ""))
    assert re.match(phrase, message), f"{reason}: {message!r} does not start with {phrase!r}"
