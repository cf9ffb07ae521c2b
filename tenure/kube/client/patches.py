"""Changes to objects: metadata, status and conditions, at most one call each and none where nothing changes."""

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
from tenure.model.provider_results import ConditionPatch


def apply_condition_patches(
    item: Mapping[str, Any], patches: Sequence[ConditionPatch], *, dependents: Sequence[str], now: datetime
) -> list[Json]:
    """The complete list after these patches; the same object if nothing changes."""
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
    """Conditions with a new status. Those that `Ready` depends on start as Unknown; others are reported when first
    written."""
    status_by_type = dict.fromkeys((*dependents, READY), "Unknown") | {one["type"]: one["status"] for one in before}
    return [
        ConditionTransition(one, status_by_type[one["type"]])
        for one in after
        if one["type"] in status_by_type and status_by_type[one["type"]] != one["status"]
    ]


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
        """The object with these status fields (each replaced whole; None removes one) and conditions; None if gone."""
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
