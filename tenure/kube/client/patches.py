"""Changes to objects: metadata, status and conditions, at most one call each and none where nothing changes.

Used by `claims.py`, `nodes.py`, `pools.py`, `node_classes.py` and `namespaces.py`.

Conditions as JSON of the objects that carry them; `tenure/apis/conditions.py` defines them.

Claims, pools and node classes write their conditions through `apply_condition_patches`; what the conditions mean is
decided elsewhere.

Conditions that turned, told as events: `kubectl describe` shows the life of an object as the conditions changed.

`patches.py` compares before and after; `claims.py`, `pools.py` and `node_classes.py` tell what it found. Reason and
message are those of Karpenter's status controllers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, cast

from tenure.apis.conditions import Subject, clear_condition, set_condition
from tenure.apis.labels import READY
from tenure.apis.meta import Condition
from tenure.kube.client.errors import Json
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.objects import Objects, merge_patch
from tenure.model.provider_results import ConditionPatch


def apply_condition_patches(
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


_FINALIZED: Final = "Finalized"


@dataclass(frozen=True)
class ConditionTransition:
    condition: Json
    previous_status: str

    @property
    def event_message(self) -> str:
        now = self.condition
        more = f", Message: {now['message']}" if now.get("message") else ""
        return (
            f"Status condition transitioned, Type: {now['type']}, Status: {self.previous_status} -> {now['status']}, "
            f"Reason: {now.get('reason', '')}{more}"
        )


def condition_transitions(
    before: Sequence[Json], after: Sequence[Json], *, dependents: Sequence[str]
) -> list[ConditionTransition]:
    """What has another status now. Those that readiness depends on are Unknown until they are written first; others
    appear without a turn."""
    status_by_type = dict.fromkeys((*dependents, READY), "Unknown") | {one["type"]: one["status"] for one in before}
    return [
        ConditionTransition(one, status_by_type[one["type"]])
        for one in after
        if one["type"] in status_by_type and status_by_type[one["type"]] != one["status"]
    ]


class ConditionEventPublisher:
    """Tells about the objects of one kind."""

    def __init__(self, events: KubeEvents, kind: str) -> None:
        self._events, self._kind = events, kind

    async def publish_transitions(self, item: Json, transitions: Sequence[ConditionTransition]) -> None:
        metadata = item["metadata"]
        for transition in transitions:
            await self._publish(
                metadata["name"], metadata["uid"], transition.condition["type"], transition.event_message
            )

    async def publish_finalized(self, name: str, uid: str, finalizer: str) -> None:
        await self._publish(name, uid, _FINALIZED, f"Finalized {finalizer}")

    async def _publish(self, name: str, uid: str, reason: str, message: str) -> None:
        await self._events.publish(kind=self._kind, name=name, uid=uid, reason=reason, message=message)


async def patch_metadata(
    objects: Objects,
    name: str,
    *,
    uid: str = "",
    default_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json | None:
    """The object with these annotations, and those of the labels that it has not; None when it is gone."""

    def build_patch(item: Json) -> Json | None:
        changes: Json = {}
        current_labels = item["metadata"].get("labels") or {}
        absent = {key: value for key, value in (default_labels or {}).items() if key not in current_labels}
        for key, desired in (("labels", absent), ("annotations", annotations)):
            added = merge_patch(item["metadata"].get(key) or {}, desired or {})
            if added:
                changes[key] = added
        return {"metadata": changes} if changes else None

    return await objects.patch_with_retry(name, build_patch, uid=uid)


async def patch_labels(objects: Objects, name: str, labels: Mapping[str, str | None], *, uid: str) -> bool:
    """Set labels, and take off those that are None; False when the object is gone."""

    def build_patch(item: Json) -> Json | None:
        changes = merge_patch(item["metadata"].get("labels") or {}, labels)
        return {"metadata": {"labels": changes}} if changes else None

    return await objects.patch_with_retry(name, build_patch, uid=uid) is not None


class AnnotationPatcher:
    """An adapter whose objects carry annotations. Implements `Annotated` of `activities.ports`."""

    def __init__(self, annotated: Objects) -> None:
        self._annotated = annotated

    async def patch_annotations(
        self,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str = "",
        only: Mapping[str, str] | None = None,
    ) -> str:
        """Set annotations, and take off those that are None, where the object's are as `only` has them. Its UID, empty
        when it is gone."""

        def build_patch(item: Json) -> Json | None:
            current = item["metadata"].get("annotations") or {}
            if any(current.get(key) != value for key, value in (only or {}).items()):
                return None
            changes = merge_patch(current, annotations)
            return {"metadata": {"annotations": changes}} if changes else None

        item = await self._annotated.patch_with_retry(name, build_patch, uid=uid)
        return str(item["metadata"]["uid"]) if item else ""


async def patch_status(
    objects: Objects,
    name: str,
    *,
    uid: str = "",
    status: Mapping[str, object] | None,
    conditions: Sequence[ConditionPatch],
    dependents: Sequence[str],
    now: datetime,
    event_publisher: ConditionEventPublisher,
) -> Json | None:
    """The object with these status fields (each replaced whole; None removes one) and conditions; None when gone."""
    transitions: list[ConditionTransition] = []

    def build_patch(item: Json) -> Json | None:
        current_status = item.get("status") or {}
        desired: dict[str, object] = dict(status or {})
        transitions.clear()
        if conditions:
            after = desired["conditions"] = apply_condition_patches(item, conditions, dependents=dependents, now=now)
            transitions.extend(
                condition_transitions(current_status.get("conditions") or (), after, dependents=dependents)
            )
        changes = merge_patch(current_status, desired)
        return {"status": changes} if changes else None

    item = await objects.patch_with_retry(name, build_patch, uid=uid, sub="status")
    if item is not None:
        await event_publisher.publish_transitions(item, transitions)
    return item
