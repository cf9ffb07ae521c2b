"""When a NodeClaim expires, and when a node of a static NodePool is replaced before that.

Without jitter, nodes created together expire together. The jitter derives from the NodeClaim's UID, so it is the same
at every evaluation.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from tenure.model.facts import NodeClaimFact

DEFAULT_JITTER: Final = 0.05
"""Share of the lifetime."""
_LONGEST_LEAD: Final = timedelta(hours=1)
_LEAD_SHARE: Final = 4


def expiry_with_jitter(latest: datetime, lifetime: timedelta, uid: str, jitter: float) -> datetime:
    """`latest`: the end of the lifetime. `jitter`: the largest share of the lifetime by which a node expires early."""
    return latest - lifetime * (jitter * _jitter_share(uid))


def static_replacement_at(created: datetime, lifetime: timedelta, uid: str, jitter: float) -> datetime:
    """When a static NodePool may launch the replacement: an hour before the node expires, or a quarter of its lifetime
    if that is shorter."""
    expires = expiry_with_jitter(created + lifetime, lifetime, uid, jitter)
    return expires - min(_LONGEST_LEAD, lifetime / _LEAD_SHARE)


def find_static_replacement_time(nodeclaim: NodeClaimFact, jitter_by_pool: Mapping[str, float]) -> datetime | None:
    """`static_replacement_at` of a NodeClaim; None if it does not expire. `jitter_by_pool`: of NodePools with their own
    jitter."""
    if nodeclaim.expire_after_seconds is None:
        return None
    lifetime = timedelta(seconds=nodeclaim.expire_after_seconds)
    jitter = jitter_by_pool.get(nodeclaim.pool, DEFAULT_JITTER)
    return static_replacement_at(nodeclaim.created, lifetime, nodeclaim.uid, jitter)


def _jitter_share(uid: str) -> float:
    """At least 0 and less than 1: constant for a UID, and uniformly distributed over UIDs."""
    return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=6).digest()) / 2**48
