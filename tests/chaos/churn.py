"""Nodes that come and go by every way there is, in corners that each know how many nodes that has to have cost.

Every pod fills a node. A corner waits after each act until all is settled again, so that what it bought is known to
the node; only `regret` leaves it open how far a node came before nobody wanted it.
"""

import random
from collections.abc import Callable
from itertools import cycle, islice

from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.eventually import eventually
from tests.support.product.scene import Scene, names

PATIENCE = 900.0
"""Seconds; the worker is killed again and again meanwhile, often before it has planned anything."""
FLAP = 4.0
"""Seconds for which a node is NotReady."""
SHARE = 3
"""An act befalls one of so many nodes."""


class Corner:
    """One scene with up to `size` nodes. `bought` is what it has to have cost, `regretted` what it may have, beside."""

    def __init__(self, scene: Scene, *, size: int, seed: int, first: int) -> None:
        self.scene, self.size = scene, size
        self.bought = self.regretted = 0
        self._dice, self._first = random.Random(f"{seed}/{first}"), first
        self._pods = 0
        self._generation = 0

    @property
    def few(self) -> int:
        return max(1, self.size // SHARE)

    async def play(self, more: Callable[[], bool]) -> None:
        """One act and for as long as there is to be more the next; corners begin with different ones."""
        await self.scene.deploy(0)
        await self._grow(self.size)
        acts = (self.take, self.flap, self.empty, self.drift, self.regret)
        for act in islice(cycle(acts), self._first % len(acts), None):
            await act()
            print(f"{self.scene.name}: {act.__name__}, {self.bought} bought", flush=True)
            if not more():
                return

    async def flap(self) -> None:
        """Nodes turn NotReady for a moment."""
        for node in self._some(names(await self.scene.nodes())):
            await self.scene.trouble(NotReady(for_seconds=FLAP), node=node)
        await eventually(self._all_ready, seconds=PATIENCE)
        await self._settle()

    async def drift(self) -> None:
        """The pool's template changes: every node is replaced once, and its successor not again."""
        self._generation += 1
        old = names(await self.scene.claims())
        template = {"metadata": {"labels": {"tests.tenure.sh/generation": str(self._generation)}}}
        await self.scene.product.patch(self.scene.pool_path, {"spec": {"template": template}})
        self.bought += len(old)
        await eventually(lambda: self.scene.claims_are_gone(old), seconds=PATIENCE)
        await self._settle()

    async def take(self) -> None:
        """NodeClaims or Nodes are deleted under their pods, which move to new ones."""
        kind = self._dice.choice((NODE_CLAIMS, NODES))
        found = names(await (self.scene.claims() if kind is NODE_CLAIMS else self.scene.nodes()))
        gone = self._some(found)
        for name in gone:
            await self.scene.product.delete(kind.path(name))
        self.bought += len(gone)
        if kind is NODE_CLAIMS:
            await eventually(lambda: self.scene.claims_are_gone(gone), seconds=PATIENCE)
        else:
            await eventually(lambda: self._nodes_are_gone(gone), seconds=PATIENCE)
        await self._settle()

    async def empty(self) -> None:
        """Pods go, then their nodes; later as many come again."""
        few = self.few
        await self._scale(self._pods - few)
        await self._settle()
        await self._grow(few)

    async def regret(self) -> None:
        """Pods come and go again before their nodes can be there."""
        few = self.few
        await self._scale(self._pods + few)
        self.regretted += few
        claims = self._pods - few + 1
        await eventually(lambda: self._has_claims(claims), seconds=PATIENCE)
        await self._scale(self._pods - few)
        await self._settle()

    async def end(self) -> None:
        await self._scale(0)
        await eventually(self.scene.nothing_runs, seconds=PATIENCE)

    async def _grow(self, by: int) -> None:
        self.bought += by
        await self._scale(self._pods + by)
        await self._settle()

    async def _scale(self, pods: int) -> None:
        self._pods = pods
        await self.scene.scale(pods)

    def _some(self, found: list[str]) -> list[str]:
        return self._dice.sample(sorted(found), min(self.few, len(found)))

    async def _settle(self) -> None:
        """A Running pod on each node, no other node, and no other cost."""
        await eventually(self._is_settled, seconds=PATIENCE)
        launched = len(self.scene.launched())
        most = self.bought + self.regretted
        assert self.bought <= launched <= most, f"{self.scene.name}: {launched} bought, not {self.bought} to {most}"

    async def _is_settled(self) -> None:
        await self.scene.pods_run(self._pods)
        await self.scene.nodes_are_initialized(self._pods)
        await self.scene.instances_alive(self._pods)

    async def _all_ready(self) -> None:
        for node in names(await self.scene.nodes()):
            await self.scene.node_is(node, ready="True")

    async def _nodes_are_gone(self, gone: list[str]) -> None:
        left = set(names(await self.scene.nodes())) & set(gone)
        assert not left, f"{self.scene.name}: Nodes {left} are still there"

    async def _has_claims(self, count: int) -> None:
        found = len(await self.scene.claims())
        assert found >= count, f"{self.scene.name}: {found} NodeClaims, not {count}"
