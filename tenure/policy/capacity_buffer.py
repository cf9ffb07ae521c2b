"""Size and status of a CapacityBuffer.

`tenure/controller/capacity_buffers.py` gathers the facts and writes the status.
"""

from collections.abc import Mapping
from typing import Final

from tenure.apis import labels
from tenure.apis.capacitybuffer import CapacityBufferSpec
from tenure.apis.quantity import parse_resources
from tenure.model.provider_results import ConditionPatch

MAX_REPLICAS: Final = 10_000
"""Maximum virtual pods of one buffer, since each is an object in memory of the controller and the planner."""
SCALABLE = ("Deployment", "StatefulSet", "ReplicaSet")


class Unresolved(Exception):
    """The size of the buffer cannot be determined. `reason`: one word. `message`: the problem and the remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def decide_replicas(spec: CapacityBufferSpec, requests: Mapping[str, int], workload: int = 0) -> int:
    """Number of pods with these requests; `workload`: replicas of the scalable workload (reference 2.20).

    The larger of `replicas` and the percentage, which is at least one pod, limited by `limits`. With neither, `limits`
    decides. Raises QuantityError, and ValueError above MAX_REPLICAS.
    """
    desired = [spec.replicas] if spec.replicas is not None else []
    if spec.percentage is not None:
        desired.append(max(1, -(-spec.percentage * workload // 100)))
    limits = parse_resources(spec.limits)
    fitting = [max(0, limit) // requests[key] for key, limit in limits.items() if requests.get(key)]
    replicas = min([max(desired), *fitting]) if desired else min(fitting, default=0)
    if replicas > MAX_REPLICAS:
        raise ValueError(f"spec asks for too many pods, expected at most {MAX_REPLICAS}, e.g. replicas: 100")
    return replicas


def decide_conditions(unresolved: Unresolved | None, replicas: int, fitting: int) -> tuple[ConditionPatch, ...]:
    """`fitting`: how many of the `replicas` fit on existing nodes."""
    if unresolved is not None:
        return (
            _new_condition(labels.READY_FOR_PROVISIONING, False, unresolved.reason, unresolved.message),
            _new_condition(labels.PROVISIONING, False, labels.NOT_READY_FOR_PROVISIONING, unresolved.message),
        )
    ready = _new_condition(labels.READY_FOR_PROVISIONING, True, labels.RESOLVED, "")
    if not replicas:
        return ready, _new_condition(labels.PROVISIONING, False, labels.BUFFER_EMPTY, "the buffer has no replicas")
    if fitting < replicas:
        return ready, _new_condition(
            labels.PROVISIONING,
            False,
            labels.REQUIRES_NEW_CAPACITY,
            f"{fitting} of {replicas} pods fit on existing nodes",
        )
    message = f"all {replicas} pods fit on existing nodes"
    return ready, _new_condition(labels.PROVISIONING, True, labels.FITS_EXISTING_CAPACITY, message)


def _new_condition(kind: str, holds: bool, reason: str, message: str) -> ConditionPatch:
    return ConditionPatch(type=kind, status=str(holds), reason=reason, message=message)
