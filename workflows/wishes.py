"""What a NodePool with wishes asks of its budgets: for whom, and what it knows that live objects do not show."""

from model.coordination import PoolState
from model.messages import DisruptionReason
from model.permits import AllowanceAsked
from workflows import ids


def allowance_asked(state: PoolState, reason: DisruptionReason, booked: tuple[str, ...]) -> AllowanceAsked:
    """`booked`: UIDs of what other NodePools have permits for."""
    wished, out = {one.claim_uid for one in state.asked}, {one.claim_uid for one in state.permits}
    return AllowanceAsked(
        name=state.name,
        reason=reason,
        rules=state.seen.rules,
        unread=state.seen.unread,
        past=state.past,
        permits=state.permits,
        asking=tuple(sorted(wished | out)),
        wishing=tuple(sorted(_by_themselves(state) - out)),
        booked=booked,
    )


def _by_themselves(state: PoolState) -> set[str]:
    """UIDs of the NodeClaims whose own workflows wish, not those of commands."""
    cluster = state.cluster
    return {
        one.claim_uid for one in state.asked if one.workflow_id == ids.nodeclaim(cluster, one.claim_name, one.claim_uid)
    }
