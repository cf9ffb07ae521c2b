"""The very NodeClaim that is meant: its name may have been given to another since."""

from activities.ports import Claims
from model.kinds import NodeClaim


async def claim_of(claims: Claims, name: str, uid: str) -> NodeClaim | None:
    """Read now, be it on its way out; None when it is gone."""
    found = await claims.get(name)
    return found if found is not None and found.uid == uid else None
