"""When a node expires: `expireAfter` after its NodeClaim's birth at the latest, and up to the jitter sooner.

Nodes that were born together would else go together. The share is drawn from the NodeClaim's UID, so that it is the
same wherever and however often it is asked for. Karpenter's exact moment: jitter 0%.
"""

import hashlib
from datetime import datetime
from typing import Final

from model.kinds import LifecycleRules
from model.lifecycle import ClaimState

DEFAULT_JITTER: Final = "5%"


def expiry_of(state: ClaimState) -> datetime | None:
    """By the rules as they are now, which may change while the node lives; None for never."""
    latest, lifetime = state.expires, state.lifetime
    if latest is None or lifetime is None:
        return latest
    return latest - lifetime * (_jitter(state.seen.rules) * _share(state.identity.uid))


def has_expired(state: ClaimState, now: datetime) -> bool:
    expires = expiry_of(state)
    return expires is not None and now >= expires


def is_under_budget(state: ClaimState) -> bool:
    """Whether its NodePool's budget has to let it go. A node without a NodePool has nobody to ask."""
    expiry = state.seen.rules.expiry if state.seen.rules else None
    return bool(expiry and expiry.under_budget and state.identity.pool)


def _jitter(rules: LifecycleRules | None) -> float:
    written = rules.expiry.jitter if rules and rules.expiry else None
    return int((written or DEFAULT_JITTER).removesuffix("%")) / 100


def _share(uid: str) -> float:
    """From 0 up to 1, the same for the same UID and even over many."""
    return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=6).digest()) / 2**48
