"""Node lifecycle conditions of Kubernetes 1.37 (`NodeConditionType` in core/v1) for drains and maintenance.

The condition types are open strings, so they are written for every version of Kubernetes.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from activities.ports.core import ConditionPatch, Nodes
from tenure.apis import labels
from tenure.clock import utc_now
from tenure.model.errors import Forbidden

log = structlog.get_logger(__name__)

DRAIN_STARTED: Final = (
    ConditionPatch(
        type=labels.DRAIN_IN_PROGRESS,
        status="True",
        reason=labels.NODE_DRAINING,
        message="Tenure evicts the pods of the node",
    ),
)
DRAIN_COMPLETED: Final = (
    ConditionPatch(type=labels.DRAIN_IN_PROGRESS, status="False", reason=labels.NODE_DRAINED),
    ConditionPatch(
        type=labels.DRAINED,
        status="True",
        reason=labels.NODE_DRAINED,
        message="all pods and volumes have left the node",
    ),
)
DRAIN_FORCED: Final = (
    ConditionPatch(
        type=labels.DRAIN_IN_PROGRESS,
        status="False",
        reason=labels.NODE_DRAIN_FORCED,
        message="the node is terminated with the remaining pods",
    ),
)
DRAIN_CLEARED: Final = tuple(ConditionPatch(type=one, status="") for one in (labels.DRAIN_IN_PROGRESS, labels.DRAINED))
MAINTENANCE_TYPES: Final = (labels.MAINTENANCE_PLANNED, labels.MAINTENANCE_IN_PROGRESS, labels.GRACEFUL_SHUTDOWN)
MAINTENANCE_CLEARED: Final = tuple(ConditionPatch(type=one, status="") for one in MAINTENANCE_TYPES)


async def set_node_conditions(nodes: Nodes, node: str, conditions: Sequence[ConditionPatch]) -> None:
    """Set conditions of the Node. A role of an older version has no right to set them, and nothing depends on them."""
    try:
        await nodes.set_conditions(node, conditions, now=utc_now())
    except Forbidden as fault:
        types = [one.type for one in conditions]
        log.warning("node conditions not set", Node={"name": node}, conditions=types, error=str(fault))
