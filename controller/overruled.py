"""Says of nodes why new ones are bought beside them: their grace is over, or they carry a taint that nobody declared.

`planning.py` asks for it after each plan; events that repeat themselves are left out by whoever sends them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from activities.ports import Events
from controller.away import Away
from controller.caches import Caches
from model.facts import ClaimFact, NodeFact
from model.kinds import Taint
from policy.initialization import decide_undeclared, undeclared_message
from scheduling.grace import WINDOW, Grace

GRACE_OVER: Final = "NotReadyGraceOver"
NEWS_FOR: Final = timedelta(minutes=30)
"""A taint that is there for longer is the business of whoever set it."""


class Overruled:
    def __init__(self, caches: Caches, away: Away, events: Events) -> None:
        self._caches, self._away, self._events = caches, away, events

    async def say(self, pools: Iterable[str], left: Iterable[str], now: datetime) -> None:
        """`pools` are those that were bought from, `left` the NodeClaims whose pods were planned elsewhere."""
        bought = {claim.name for pool in pools for claim in self._caches.claims_of_pool(pool)}
        for name in sorted(bought | set(left)):
            claim = self._caches.claims.get(name)
            if claim is None or claim.deleting or not claim.initialized:
                continue
            for node in self._caches.nodes_of(claim)[:1]:
                if not node.deleting:
                    await self._say(claim, node, now, bought=name in bought)

    async def _say(self, claim: ClaimFact, node: NodeFact, now: datetime, *, bought: bool) -> None:
        found = self._away.of(claim)
        if found is not None and found.standing(now) == "lost":
            await self._publish(claim, GRACE_OVER, over(node, found, now))
        lately = {name for name, since in node.tainted.items() if now - since < NEWS_FOR}
        strange = [name for name in undeclared(claim, node) if bought and name in lately]
        if strange:
            await self._publish(claim, "UndeclaredTaint", undeclared_message(node.name, strange))

    async def _publish(self, claim: ClaimFact, reason: str, message: str) -> None:
        await self._events.publish(
            kind="NodeClaim", name=claim.name, uid=claim.uid, reason=reason, message=message, warning=True
        )


def over(node: NodeFact, grace: Grace, now: datetime) -> str:
    """The arithmetic of a grace that is used up, for people."""
    times = grace.stretches(now)
    used, length = _seconds(grace.used(now)), _seconds(grace.length)
    since = f"{grace.away_since:%Y-%m-%d %H:%M:%S} UTC"
    often = f", {used} s of the last {_seconds(WINDOW * grace.length)} s in {times} stretches" if times > 1 else ""
    return (
        f"Node {node.name} is away since {since} ({grace.why}){often}, longer than the grace of {length} s: "
        "its room does not count any more, and its pods are planned anew"
    )


def undeclared(claim: ClaimFact, node: NodeFact) -> tuple[str, ...]:
    declared = (*claim.taints, *claim.startup_taints)
    return decide_undeclared(
        [Taint(key=one.key, value=one.value, effect=one.effect) for one in node.taints],
        [Taint(key=one.key, value=one.value, effect=one.effect) for one in declared],
    )


def _seconds(lasting: timedelta) -> str:
    return f"{lasting.total_seconds():.0f}"
