"""The watch of a simulated month: what it says of nodes and their NodePool when that changed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from temporalio.service import RPCError, RPCStatusCode

from tenure.apis import labels
from tenure.model.base import Message
from tenure.model.observations import PoolSeen
from tenure.model.provider_results import NodeState
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, idle
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

POLICY: Final = "WhenEmpty"
UNTOLD: Final = 0.2
"""Of what leaves room for others to go is told to nobody: the watch was just moving to another process."""


@dataclass
class Place:
    """A node of the pool, and the next one when it is gone."""

    number: int
    lives: int = 0
    handle: Handle | None = None
    empty_since: datetime | None = None
    held: bool = False
    """By the annotation do-not-disrupt."""
    paused: datetime | None = None
    """Until then."""
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"n{self.number}-{self.lives}"


class Watch:
    """`after`: the NodePool's consolidateAfter, as it is now; `pool`: its workflow."""

    def __init__(self, fake: World, places: list[Place], dice: random.Random, after: Callable[[], str]) -> None:
        self._fake, self._places, self._dice, self._after = fake, places, dice, after
        self.pool: Any = None
        self.generation = self._seen = 1
        self._freed = 0
        self._standing: dict[str, str] = {}
        self._told: dict[str, Any] = {}

    def node(self, place: Place) -> NodeState | None:
        claim = self._fake.claims.found.get(place.name)
        wanted = claim["status"].get("providerID") if claim else None
        return next((one for one in self._fake.nodes.found.values() if wanted and one.provider_id == wanted), None)

    async def tell(self) -> bool:
        """Whether there was news."""
        news = [await self._tell_place(place) for place in self._places]
        return await self._tell_pool() or any(news)

    async def _tell_pool(self) -> bool:
        """As `tenure/controller/signals/disruption_trigger.py` and `tenure/controller/signals/digests.py` would."""
        before, self._standing = self._standing, {place.name: self.standing(place) for place in self._places}
        news = {(before.get(name, ""), now) for name, now in self._standing.items()}
        gone = any(before[name] == "uses" for name in before.keys() - self._standing.keys())
        if gone or news & {("", "well"), ("uses", "well"), ("uses", "")}:
            self._freed += self._dice.random() >= UNTOLD
        launched = sum(bool(one["status"].get("providerID")) for one in self._fake.claims.found.values())
        pause = self._fake.pools.found["default"].metadata.annotations.get(labels.PAUSE, "")
        said = {"generation": self.generation, "usage": str(launched), "freed": self._freed, "pause": pause}
        if said == self._told:
            return False
        self._told = said
        self._seen += 1
        await idle(self.pool)
        await self.pool.signal(NodePoolWorkflow.seen, PoolSeen(number=self._seen, **said))
        return True

    def standing(self, place: Place) -> str:
        """As budgets count it: not at all, as one that uses them up, or as one that is well."""
        claim, node = self._fake.claims.found.get(place.name), self.node(place)
        true = {one["type"] for one in claim["status"]["conditions"] if one["status"] == "True"} if claim else set()
        if claim is None or labels.INITIALIZED_CONDITION not in true or labels.INSTANCE_TERMINATING in true:
            return ""
        tainted = node is not None and any(key == labels.DISRUPTED_TAINT_KEY for key, _, _ in node.taints)
        going = "deletionTimestamp" in claim["metadata"] or tainted
        return "uses" if going or (node is not None and not node.ready) else "well"

    async def _tell_place(self, place: Place) -> bool:
        """What the watch would say of it, when that is news. Instances that run join and become Ready."""
        claim = self._fake.claims.found.get(place.name)
        if place.handle is None or (claim is None and place.told == {"exists": False}):
            return False
        said = {"exists": False} if claim is None else self._digest(place, claim)
        if said == place.told:
            return False
        place.told = said
        await self.signal(place, NodeClaimWorkflow.seen, self._fake.observe(**said))
        return True

    async def signal(self, place: Place, signal: Any, message: Message) -> None:
        """A life may just have ended; then its NodeClaim is gone too."""
        assert place.handle is not None
        await idle(place.handle)
        try:
            await place.handle.signal(signal, message)
        except RPCError as error:
            assert error.status is RPCStatusCode.NOT_FOUND and place.name not in self._fake.claims.found, place

    def _digest(self, place: Place, claim: dict[str, Any]) -> dict[str, Any]:
        node = self.node(place) or self._join(place, claim)
        said = {
            "deleting": "deletionTimestamp" in claim["metadata"] or bool(node and node.deleting),
            "policy": f"{POLICY}/{self._after()}",
            "pause": claim["metadata"]["annotations"].get(labels.PAUSE, ""),
        }
        if node is None:
            return said
        return {
            **said,
            "node_name": node.name,
            "node_count": 1,
            "node_ready": node.ready,
            "boot_id": node.boot_id,
            "empty": place.empty_since is not None,
            "empty_since": place.empty_since,
            "do_not_disrupt": place.held,
        }

    def _join(self, place: Place, claim: dict[str, Any]) -> NodeState | None:
        provider = claim["status"].get("providerID", "")
        known = place.told.get("node_name")
        if known or provider.rpartition("/")[2] not in self._fake.instances.running:
            return None
        return self._fake.nodes.join(f"node-{place.name}", provider)
