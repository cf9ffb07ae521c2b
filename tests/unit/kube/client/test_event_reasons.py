"""Events have Karpenter's reasons and types, so that alert rules for Karpenter match."""

import pytest

from tenure.kube.client.event_reasons import EVENT_REASONS

KARPENTER_TYPES = {
    "AwaitingVolumeDetachment": "Normal",
    "DisruptionBlocked": "Normal",
    "DisruptionLaunching": "Normal",
    "DisruptionTerminating": "Normal",
    "DisruptionWaitingReadiness": "Normal",
    "Disrupted": "Normal",
    "Evicted": "Normal",
    "FailedConsistencyCheck": "Warning",
    "FailedDraining": "Warning",
    "FailedScheduling": "Warning",
    "Finalized": "Normal",
    "InsufficientCapacityError": "Warning",
    "NodeRepairBlocked": "Warning",
    "Nominated": "Normal",
    "TerminationGracePeriodExpiring": "Warning",
    "Unconsolidatable": "Normal",
    "UnregisteredTaintMissing": "Warning",
}
"""Karpenter v1.15, package events. Tenure reports the rest as conditions, or as InvalidObject."""


@pytest.mark.parametrize("reason", KARPENTER_TYPES)
def test_karpenter_event_reason_has_the_same_type(reason: str) -> None:
    assert ("Warning" if EVENT_REASONS[reason].warning else "Normal") == KARPENTER_TYPES[reason]
