"""What a command waits for: permits, replacements, another look. Pure; `workflows/disruption.py` waits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from model.commands import CommandState, Step
from model.disruption import Leaving
from model.words import few

DEADLINES: Final[dict[Step, timedelta]] = {
    "Permit": timedelta(minutes=10),
    "Begin": timedelta(minutes=5),
    "Replace": timedelta(minutes=5),
    "Wait": timedelta(hours=1),
}
"""For replacements Karpenter waits between ten minutes and this, by how much it has to do (reference 4.9). Here a
replacement that fails says so itself, by the deadlines of its own launch and registration."""
BEGINS_WITHIN: Final = DEADLINES["Begin"] + timedelta(minutes=1)
"""After its permits' end, at the latest: it begins while it has them, and is seen to have begun a moment later."""
FINISH_WITHIN: Final = timedelta(minutes=10)
"""For trying to delete nodes whose replacements are ready, while the API server does not answer."""
RENEW_AFTER: Final = timedelta(seconds=90)
"""Permits are leases of two minutes. They are kept for as long as a command runs, lest nobody could recall it."""
LOOK_EVERY: Final = timedelta(minutes=5)
"""At replacements, in case their word was lost."""
LOOK_AGAIN: Final = timedelta(seconds=10)
"""When they said that they are ready, and the live state does not."""


def unpermitted(state: CommandState, now: datetime) -> tuple[Leaving, ...]:
    """The candidates that may not go now: refused, not answered, or by a lease that lapsed."""
    return tuple(one for one in state.proposal.candidates if not _holds(state, one.claim_uid, now))


def _holds(state: CommandState, uid: str, now: datetime) -> bool:
    permit = state.permits.get(uid)
    return permit is not None and permit.granted and (permit.until is None or now < permit.until)


def refused(state: CommandState) -> tuple[Leaving, ...]:
    return tuple(one for one in state.proposal.candidates if _is_refused(state, one.claim_uid))


def _is_refused(state: CommandState, uid: str) -> bool:
    permit = state.permits.get(uid)
    return permit is not None and not permit.granted


def renewal(state: CommandState) -> datetime | None:
    """When permits are to be asked for again; None before they were asked for at all."""
    return state.renewed + RENEW_AFTER if state.renewed else None


def ask_due(state: CommandState, now: datetime) -> bool:
    moment = renewal(state)
    return moment is None or now >= moment


def to_ask(state: CommandState) -> tuple[Leaving, ...]:
    """Those who were refused need not ask again: the NodePool keeps their wish, and answers by itself."""
    return tuple(one for one in state.proposal.candidates if not _is_refused(state, one.claim_uid))


def sooner(state: CommandState) -> datetime | None:
    """While replacements are waited for: another look, or another round of permits."""
    return min((one for one in (state.look_at, renewal(state)) if one), default=None)


def why_unpermitted(state: CommandState, left: Sequence[Leaving]) -> str:
    """In the words of the first pool that refused."""
    words = [permit.blocked_by for one in left if (permit := state.permits.get(one.claim_uid)) and permit.blocked_by]
    more = f" ({len(left)} of {len(state.proposal.candidates)} nodes)" if len(state.proposal.candidates) > 1 else ""
    pools = ", ".join(sorted({one.pool for one in left}))
    return f"{words[0]}{more}" if words else f"NodePool {pools} does not answer{more}"


def all_ready(state: CommandState) -> bool:
    return {*state.claims} <= {*state.ready}


def look_due(state: CommandState, now: datetime) -> bool:
    """Whether to look if it can be finished."""
    return (all_ready(state) and state.looks == 0) or (state.look_at is not None and now >= state.look_at)


def next_look(state: CommandState, now: datetime) -> datetime:
    """After one that did not let it finish."""
    return now + (min(LOOK_EVERY, LOOK_AGAIN * 2.0 ** min(state.looks, 6)) if all_ready(state) else LOOK_EVERY)


def starting(state: CommandState) -> str:
    """The replacements that are not ready, in words."""
    return few([name for name in state.claims if name not in state.ready])
