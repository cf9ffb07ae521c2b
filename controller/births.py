"""NodeClaims that this process made, by what for: Karpenter's counter by its name (reference 5.1)."""

from typing import Final

from temporalio.common import MetricMeter

from model import labels
from model.kinds import NodeClaim

CREATED: Final = "karpenter_nodeclaims_created_total"
PROVISIONED: Final = "provisioned"
"""For pods that wait, or a static pool's replicas; a replacement counts for its disruption's reason, in lower case."""


class Births:
    def __init__(self, meter: MetricMeter) -> None:
        self._counter = meter.create_counter(CREATED, "NodeClaims that were made, by what for")

    def count(self, claim: NodeClaim, reason: str = PROVISIONED) -> None:
        marks, notes = claim.metadata.labels, claim.metadata.annotations
        relaxed = notes.get(labels.NODECLAIM_MIN_VALUES_RELAXED, "false")
        pool = marks.get(labels.NODEPOOL, "")
        self._counter.add(1, {"reason": reason.lower(), "nodepool": pool, "min_values_relaxed": relaxed})
