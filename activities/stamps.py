"""NodeClaims with a stamp of another version of the static hash get ours, so that none drifts for it (reference 6.3).

Before the NodePool or NodeClass shows today's version: whoever is killed in between finds all of it to do again.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from activities.ports import Claims
from model import labels
from model.hashing import HASH_VERSION
from model.kinds import EC2NodeClass, NodeClaim
from policy.stamps import decide_stamp


async def restamp_pool(claims: Claims, found: Iterable[NodeClaim], value: str) -> None:
    """With the hash of their NodePool's template. Raises the faults of `Claims.patch`."""
    await _restamp(claims, found, value, key=labels.NODEPOOL_HASH, version=labels.NODEPOOL_HASH_VERSION)


async def restamp_class(claims: Claims, node_class: EC2NodeClass, value: str, *, told: bool) -> None:
    """Those that are launched; others get their stamp with their instance. They are looked for only when the class
    has another version itself, or the watch told of one that has."""
    stamped = node_class.metadata.annotations.get(labels.NODECLASS_HASH_VERSION, HASH_VERSION)
    if stamped == HASH_VERSION and not told:
        return
    found = await claims.list()
    ours = [one for one in found if one.spec.node_class_ref.name == node_class.name and one.status.provider_id]
    await _restamp(claims, ours, value, key=labels.NODECLASS_HASH, version=labels.NODECLASS_HASH_VERSION)


async def _restamp(claims: Claims, found: Iterable[NodeClaim], value: str, *, key: str, version: str) -> None:
    for claim in found:
        drifted, deleting = claim.is_true(labels.DRIFTED), claim.metadata.deleting
        notes = claim.metadata.annotations
        stamp = decide_stamp(notes, value, key=key, version=version, drifted=drifted, deleting=deleting)
        if stamp:
            await claims.patch(claim.name, claim.uid, annotations=stamp, now=datetime.now(UTC))
