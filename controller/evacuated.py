"""Nodes that were emptied since AWS takes them back (`taken_back.py`), by whichever worker.

Their workflows hear why when the message of AWS's is handled, by the next worker where this one cannot; until then they
look empty, and are not to go for that.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from controller.caches import Caches
from controller.taken_back import LEAVES_WITHIN
from model.disrupting import Hold
from model.facts import NodeFact
from model.labels import EVACUATED
from model.moments import read_moment

_AHEAD: Final = timedelta(minutes=1)
"""By which another worker's clock may be before this one."""


def evacuated_until(nodes: Iterable[NodeFact], now: datetime) -> datetime | None:
    """Of the Nodes of one NodeClaim; None where that is over, or where pods may go there again."""
    said = [at for one in nodes if one.being_disrupted and (at := read_moment(one.annotations.get(EVACUATED, "")))]
    return max((at + LEAVES_WITHIN for at in said if now - LEAVES_WITHIN < at <= now + _AHEAD), default=None)


def holds(caches: Caches, now: datetime) -> Sequence[Hold]:
    """Which nodes are not proposed until then."""
    standing = (one for one in caches.claims.values() if not one.deleting)
    ends = {one.name: evacuated_until(caches.nodes_of(one), now) for one in standing}
    why = "its pods were told to go, since AWS takes it back"
    return [Hold(scope="node", name=name, why=why, until=until) for name, until in ends.items() if until]
