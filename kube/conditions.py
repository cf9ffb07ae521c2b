"""Status conditions with the semantics of Karpenter's library (reference 1.9), on the JSON that is stored.

Claims, pools and node classes write their conditions through `patched`; what the conditions mean is decided elsewhere.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kube.errors import Json
from model import labels
from model.outcomes import ConditionPatch

ROOT: Final = labels.READY


def patched(
    item: Mapping[str, Any], patches: Sequence[ConditionPatch], *, dependents: Sequence[str], now: datetime
) -> list[Json]:
    """The whole list as it has to stand after these patches; equal to what stands when nothing changes.

    An empty status clears a condition, which is not allowed for those that Ready depends on.
    """
    metadata = item["metadata"]
    generation, stamp = metadata.get("generation", 0), written(now)
    held = {one["type"]: one for one in (item.get("status") or {}).get("conditions") or ()}
    for kind in dependents:
        held.setdefault(kind, _awaiting(kind, metadata["creationTimestamp"], generation))
    for patch in patches:
        if patch.status:
            held[patch.type] = _set(held.get(patch.type), patch, generation, stamp)
        elif patch.type not in dependents:
            held.pop(patch.type, None)
    if "deletionTimestamp" in metadata:
        held = {kind: {**one, "observedGeneration": generation} for kind, one in held.items()}
    held[ROOT] = _set(held.get(ROOT), _root(held, dependents, generation), generation, stamp)
    return sorted(
        held.values(), key=lambda one: (one["type"] == ROOT, one["lastTransitionTime"], _order(one, dependents))
    )


def written(moment: datetime) -> str:
    """As Kubernetes writes times: UTC, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _set(before: Json | None, patch: ConditionPatch, generation: int, stamp: str) -> Json:
    reason = patch.reason or (patch.type if patch.status == "True" else "")
    moved = before is None or before["status"] != patch.status
    return {
        "type": patch.type,
        "status": patch.status,
        "reason": reason,
        "message": patch.message,
        "observedGeneration": generation,
        "lastTransitionTime": stamp if moved or before is None else before["lastTransitionTime"],
    }


def _awaiting(kind: str, created: str, generation: int) -> Json:
    return {
        "type": kind,
        "status": "Unknown",
        "reason": labels.AWAITING_RECONCILIATION,
        "message": "object is awaiting reconciliation",
        "observedGeneration": generation,
        "lastTransitionTime": created,
    }


def _root(held: Mapping[str, Json], dependents: Sequence[str], generation: int) -> ConditionPatch:
    current = {kind: held[kind].get("observedGeneration", 0) == generation for kind in dependents}
    unmet = [kind for kind in dependents if held[kind]["status"] != "True" or not current[kind]]
    if not unmet:
        return ConditionPatch(type=ROOT, status="True")
    message = ", ".join(f"{kind}={held[kind]['status']}" for kind in unmet)
    if any(held[kind]["status"] == "False" and current[kind] for kind in unmet):
        return ConditionPatch(type=ROOT, status="False", reason=labels.UNHEALTHY_DEPENDENTS, message=message)
    return ConditionPatch(type=ROOT, status="Unknown", reason=labels.RECONCILING_DEPENDENTS, message=message)


def _order(one: Json, dependents: Sequence[str]) -> int:
    return list(dependents).index(one["type"]) if one["type"] in dependents else len(dependents)
