"""Patches annotations, status and conditions of objects, without calls if nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from tenure.apis.conditions import DEPENDENTS, Subject, clear_condition, set_condition
from tenure.apis.labels import READY
from tenure.apis.meta import Condition
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.objects import Objects, merge_patch
from tenure.kube.client.resources import Resource
from tenure.model.base import format_timestamp
from tenure.model.provider_results import ConditionPatch


def apply_condition_patches(
    item: Mapping[str, Any], patches: Sequence[ConditionPatch], *, dependents: Sequence[str], now: datetime
) -> list[Json]:
    """The complete list of conditions after these patches; equal to the stored list if nothing changes."""
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
            after = clear_condition(after, subject, patch.type, now=now)
            continue
        status = cast(Literal["True", "False", "Unknown"], patch.status)
        # False requires a reason; the default is the name of the type.
        reason = patch.reason or (patch.type if status == "False" else "")
        after = set_condition(after, subject, patch.type, status, now=now, reason=reason, message=patch.message)
    return list(stored) if after == before else [one.to_object() for one in after]


def stamp_condition(before: Json, patch: ConditionPatch, now: datetime) -> Json:
    """The condition for an object without `Ready` dependents. Only a new status changes the transition time."""
    same = before.get("status") == patch.status
    return {
        "type": patch.type,
        "status": patch.status,
        "reason": patch.reason or patch.type,
        "message": patch.message,
        "lastTransitionTime": (same and before.get("lastTransitionTime")) or format_timestamp(now),
    }


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
    """Conditions with a new status. `Ready` and its dependents start as Unknown; other conditions need a previous
    status."""
    status_by_type = dict.fromkeys((*dependents, READY), "Unknown") | {one["type"]: one["status"] for one in before}
    return [
        ConditionTransition(one, status_by_type[one["type"]])
        for one in after
        if one["type"] in status_by_type and status_by_type[one["type"]] != one["status"]
    ]


class AnnotationPatcher:
    """Implements the port `Annotated`."""

    def __init__(self, annotated: Objects) -> None:
        self._annotated = annotated

    async def patch_annotations(
        self, name: str, annotations: Mapping[str, str | None], *, uid: str = "", only: Mapping[str, str] | None = None
    ) -> str:
        """Set annotations (None removes one), if the current annotations match `only`.

        Returns the UID of the object; empty if it is gone.
        """

        def build_patch(item: Json) -> Json | None:
            current = item["metadata"].get("annotations") or {}
            if any(current.get(key) != value for key, value in (only or {}).items()):
                return None
            changes = merge_patch(current, annotations)
            return {"metadata": {"annotations": changes}} if changes else None

        item = await self._annotated.patch_with_retry(name, build_patch, uid=uid)
        return str(item["metadata"]["uid"]) if item else ""


class StatusObjects(Objects):
    """Objects of a kind with status conditions. A status change publishes an event."""

    def __init__(self, client: KubeClient, resource: Resource, events: KubeEvents) -> None:
        super().__init__(client, resource)
        self._events = events

    async def patch_status(
        self,
        name: str,
        *,
        uid: str = "",
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        now: datetime,
    ) -> Json | None:
        """Replace status fields (None removes one) and patch conditions. Returns the object; None if it is gone."""
        transitions: list[ConditionTransition] = []
        dependents = DEPENDENTS[self.resource.kind]

        def build_patch(item: Json) -> Json | None:
            current = item.get("status") or {}
            desired: dict[str, object] = dict(status or {})
            transitions.clear()
            if conditions:
                after = apply_condition_patches(item, conditions, dependents=dependents, now=now)
                desired["conditions"] = after
                transitions.extend(condition_transitions(current.get("conditions") or (), after, dependents=dependents))
            changes = merge_patch(current, desired)
            return {"status": changes} if changes else None

        item = await self.patch_with_retry(name, build_patch, uid=uid, sub="status")
        if item is not None:
            for one in transitions:
                await self.publish(name, item["metadata"]["uid"], one.condition["type"], one.event_message)
        return item

    async def publish(self, name: str, uid: str, reason: str, message: str) -> None:
        await self._events.publish(kind=self.resource.kind, name=name, uid=uid, reason=reason, message=message)
