"""Changes to objects: metadata, status and conditions, at most one call each and none where nothing changes.

Used by `claims.py`, `nodes.py`, `pools.py`, `node_classes.py` and `namespaces.py`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from kube.conditions import patched
from kube.errors import Json
from kube.objects import Objects, merge_patch
from kube.turns import Teller, Turn, turns
from model.outcomes import ConditionPatch


async def patch_metadata(
    objects: Objects,
    name: str,
    *,
    uid: str = "",
    default_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json | None:
    """The object with these annotations, and those of the labels that it has not; None when it is gone."""

    def decide(item: Json) -> Json | None:
        changes: Json = {}
        held = item["metadata"].get("labels") or {}
        absent = {key: value for key, value in (default_labels or {}).items() if key not in held}
        for key, wanted in (("labels", absent), ("annotations", annotations)):
            added = merge_patch(item["metadata"].get(key) or {}, wanted or {})
            if added:
                changes[key] = added
        return {"metadata": changes} if changes else None

    return await objects.change(name, decide, uid=uid)


async def relabel(objects: Objects, name: str, labels: Mapping[str, str | None], *, uid: str) -> bool:
    """Set labels, and take off those that are None; False when the object is gone."""

    def decide(item: Json) -> Json | None:
        changes = merge_patch(item["metadata"].get("labels") or {}, labels)
        return {"metadata": {"labels": changes}} if changes else None

    return await objects.change(name, decide, uid=uid) is not None


class Annotating:
    """An adapter whose objects carry annotations. Satisfies `activities.pauses.Annotated`."""

    def __init__(self, annotated: Objects) -> None:
        self._annotated = annotated

    async def annotate(
        self,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str = "",
        only: Mapping[str, str] | None = None,
    ) -> str:
        """Set annotations, and take off those that are None, where the object's are as `only` has them. Its UID, empty
        when it is gone."""

        def decide(item: Json) -> Json | None:
            held = item["metadata"].get("annotations") or {}
            if any(held.get(key) != value for key, value in (only or {}).items()):
                return None
            changes = merge_patch(held, annotations)
            return {"metadata": {"annotations": changes}} if changes else None

        item = await self._annotated.change(name, decide, uid=uid)
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
    teller: Teller,
) -> Json | None:
    """The object with these status fields (each replaced whole; None removes one) and conditions; None when gone."""
    turned: list[Turn] = []

    def decide(item: Json) -> Json | None:
        held = item.get("status") or {}
        wanted: dict[str, object] = dict(status or {})
        turned.clear()
        if conditions:
            after = wanted["conditions"] = patched(item, conditions, dependents=dependents, now=now)
            turned.extend(turns(held.get("conditions") or (), after, dependents=dependents))
        changes = merge_patch(held, wanted)
        return {"status": changes} if changes else None

    item = await objects.change(name, decide, uid=uid, sub="status")
    if item is not None:
        await teller.turned(item, turned)
    return item
