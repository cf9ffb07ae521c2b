"""Objects of a cluster that another controller runs, as Tenure's first pass would leave them. Pure.

`shadow.py` lays them into the watch's caches and judges there.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import ValidationError

from controller import gates
from kube import resources
from kube.errors import Json
from model import labels
from model.hashing import HASH_VERSION, nodeclass_hash, nodepool_hash
from model.kinds import EC2NodeClass, NodeClaim, NodePool
from model.outcomes import Resolved
from policy.stamps import decide_stamp

_READERS: Final[Mapping[str, type[NodePool] | type[NodeClaim] | type[EC2NodeClass]]] = {
    resources.NODE_POOLS.plural: NodePool,
    resources.NODE_CLAIMS.plural: NodeClaim,
    resources.EC2_NODE_CLASSES.plural: EC2NodeClass,
}


def taken_over(objects: Mapping[str, Sequence[Json]], resolved: Mapping[str, Resolved]) -> dict[str, Sequence[Json]]:
    """The objects as Tenure's first pass leaves them: classes resolved, and stamps of its own version of the hash."""
    classes = [
        _class_taken(one, resolved.get(one["metadata"]["name"])) for one in objects[resources.EC2_NODE_CLASSES.plural]
    ]
    by_class = {one["metadata"]["name"]: _note(one, labels.NODECLASS_HASH) for one in classes if _is_stamped(one)}
    by_pool = {
        one["metadata"]["name"]: nodepool_hash(NodePool.from_object(one))
        for one in objects[resources.NODE_POOLS.plural]
    }
    claims = [_claim_taken(one, by_pool, by_class) for one in objects[resources.NODE_CLAIMS.plural]]
    kinds = {**objects, resources.EC2_NODE_CLASSES.plural: classes, resources.NODE_CLAIMS.plural: claims}
    kinds.pop(resources.LIFECYCLE_POLICIES.plural, None)
    # Pods of CapacityBuffers have a reader of their own, and are nobody's yet.
    for kind in gates.kinds((gates.CAPACITY_BUFFER,)):
        kinds.pop(kind.plural, None)
    return kinds


def _class_taken(raw: Json, resolved: Resolved | None) -> Json:
    if resolved is None:
        return raw
    metadata, status = raw["metadata"], dict(raw.get("status") or {})
    generation = metadata.get("generation", 0)
    conditions = [
        {**one, "observedGeneration": generation} if one["type"] == labels.READY else one
        for one in status.get("conditions") or ()
    ]
    notes = dict(metadata.get("annotations") or {})
    if resolved.ca_bundle is not None:
        stamp = nodeclass_hash(EC2NodeClass.from_object(raw), ca_bundle=resolved.ca_bundle)
        notes |= {labels.NODECLASS_HASH: stamp, labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    return {
        **raw,
        "metadata": {**metadata, "annotations": notes},
        "status": {**status, **resolved.status, "conditions": conditions},
    }


def _claim_taken(raw: Json, by_pool: Mapping[str, str], by_class: Mapping[str, str]) -> Json:
    metadata, claim = raw["metadata"], NodeClaim.from_object(raw)
    notes = dict(metadata.get("annotations") or {})
    drifted, deleting = claim.is_true(labels.DRIFTED), claim.metadata.deleting
    stamps = (
        (by_pool.get(claim.nodepool), labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION),
        (
            by_class.get(claim.spec.node_class_ref.name) if claim.status.provider_id else None,
            labels.NODECLASS_HASH,
            labels.NODECLASS_HASH_VERSION,
        ),
    )
    for value, key, version in stamps:
        if value is not None:
            notes |= decide_stamp(notes, value, key=key, version=version, drifted=drifted, deleting=deleting)
    return {**raw, "metadata": {**metadata, "annotations": notes}}


def readable(
    objects: Mapping[str, Sequence[Json]],
) -> tuple[dict[str, Sequence[Json]], tuple[tuple[str, str, str], ...]]:
    """Without those that a worker would leave out, and what is wrong with each of these."""
    good: dict[str, Sequence[Json]] = dict(objects)
    bad: list[tuple[str, str, str]] = []
    for plural, reader in _READERS.items():
        kept = []
        for one in objects.get(plural, ()):
            try:
                reader.from_object(one)
                if reader is NodePool:
                    nodepool_hash(NodePool.from_object(one))
            except (ValueError, KeyError, ValidationError) as error:
                bad.append((reader.__name__, one["metadata"]["name"], _said(error)))
            else:
                kept.append(one)
        good[plural] = kept
    return good, tuple(bad)


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}; it is {first['input']!r:.60}"
    return str(error)[:200]


def _is_stamped(node_class: Json) -> bool:
    return _note(node_class, labels.NODECLASS_HASH_VERSION) == HASH_VERSION


def _note(raw: Json, key: str) -> str:
    return str((raw["metadata"].get("annotations") or {}).get(key, ""))
