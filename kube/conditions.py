"""Conditions written onto objects as JSON; the semantics are `model.kinds.conditions`.

Claims, pools and node classes write their conditions through `patched`; what the conditions mean is decided elsewhere.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, cast

from kube.errors import Json
from model.kinds import Condition
from model.kinds.conditions import Subject, clear_condition, set_condition
from model.outcomes import ConditionPatch


def patched(
    item: Mapping[str, Any], patches: Sequence[ConditionPatch], *, dependents: Sequence[str], now: datetime
) -> list[Json]:
    """The whole list as it has to stand after these patches; what stands, untouched, when nothing changes."""
    metadata = item["metadata"]
    stored = (item.get("status") or {}).get("conditions") or []
    before = tuple(Condition.from_object(one) for one in stored)
    subject = Subject(
        dependents=tuple(dependents),
        generation=metadata.get("generation", 0),
        created=datetime.fromisoformat(metadata["creationTimestamp"]),
        deleting="deletionTimestamp" in metadata,
    )
    after = before
    for patch in patches:
        if not patch.status:
            after = clear_condition(after, subject, patch.type)
            continue
        status = cast(Literal["True", "False", "Unknown"], patch.status)
        # False may not stand without a reason; the type's name is the least that can be said.
        reason = patch.reason or (patch.type if status == "False" else "")
        after = set_condition(after, subject, patch.type, status, now=now, reason=reason, message=patch.message)
    return list(stored) if after == before else [one.to_object() for one in after]
