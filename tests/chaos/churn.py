"""Nodes that come and go by every way there is, in corners that each know how many nodes that has to have cost.

Every pod fills a node. A corner waits after each act until all is settled again, so that what it bought is known to
the node; only `scale_up_and_revert` leaves it open how far a node came before nobody wanted it.
"""

import random
from collections.abc import Callable
from itertools import cycle, islice

from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.eventually import wait_until
from tests.support.product.scene import ClusterScope, object_names

TIMEOUT_SECONDS = 900.0
"""Seconds; the worker is killed again and again meanwhile, often before it has planned anything."""
FLAP = 4.0
"""Seconds for which a node is NotReady."""
SHARE = 3
"""An act befalls one of so many nodes."""


class ChurnScope:
    """One scene with up to `size` nodes. `bought` is what it has to have cost, `regretted` what it may have, beside."""

    def __init__(self, scope: ClusterScope, *, size: int, seed: int, first: int) -> None:
        self.scope, self.size = scope, size
        self.bought = self.regretted = 0
        self._dice, self._first = random.Random(f"{seed}/{first}"), first
        self._pods = 0
        self._generation = 0

    @property
    def sample_size(self) -> int:
        return max(1, self.size // SHARE)

    async def run_actions(self, more: Callable[[], bool]) -> None:
        """One act and for as long as there is to be more the next; corners begin with different ones."""
        await self.scope.create_deployment(0)
        await self._scale_up(self.size)
        acts = (self.delete_nodes, self.make_nodes_flap, self.empty_nodes, self.drift_nodes, self.scale_up_and_revert)
        for act in islice(cycle(acts), self._first % len(acts), None):
            await act()
            print(f"{self.scope.name}: {act.__name__}, {self.bought} bought", flush=True)
            if not more():
                return

    async def make_nodes_flap(self) -> None:
        """Nodes turn NotReady for a moment."""
        for node in self._sample(object_names(await self.scope.nodes())):
            await self.scope.inject_node_fault(NotReady(for_seconds=FLAP), node=node)
        await wait_until(self._assert_all_ready, seconds=TIMEOUT_SECONDS)
        await self._wait_until_settled()

    async def drift_nodes(self) -> None:
        """The pool's template changes: every node is replaced once, and its successor not again."""
        self._generation += 1
        old = object_names(await self.scope.nodeclaims())
        template = {"metadata": {"labels": {"tests.tenure.sh/generation": str(self._generation)}}}
        await self.scope.product.patch(self.scope.pool_path, {"spec": {"template": template}})
        self.bought += len(old)
        await wait_until(lambda: self.scope.assert_nodeclaims_deleted(old), seconds=TIMEOUT_SECONDS)
        await self._wait_until_settled()

    async def delete_nodes(self) -> None:
        """NodeClaims or Nodes are deleted under their pods, which move to new ones."""
        kind = self._dice.choice((NODE_CLAIMS, NODES))
        found = object_names(await (self.scope.nodeclaims() if kind is NODE_CLAIMS else self.scope.nodes()))
        deleted = self._sample(found)
        for name in deleted:
            await self.scope.product.delete(kind.path(name))
        self.bought += len(deleted)
        if kind is NODE_CLAIMS:
            await wait_until(lambda: self.scope.assert_nodeclaims_deleted(deleted), seconds=TIMEOUT_SECONDS)
        else:
            await wait_until(lambda: self._assert_nodes_deleted(deleted), seconds=TIMEOUT_SECONDS)
        await self._wait_until_settled()

    async def empty_nodes(self) -> None:
        """Pods go, then their nodes; later as many come again."""
        few = self.sample_size
        await self._scale(self._pods - few)
        await self._wait_until_settled()
        await self._scale_up(few)

    async def scale_up_and_revert(self) -> None:
        """Pods come and go again before their nodes can be there."""
        few = self.sample_size
        await self._scale(self._pods + few)
        self.regretted += few
        claims = self._pods - few + 1
        await wait_until(lambda: self._assert_has_nodeclaims(claims), seconds=TIMEOUT_SECONDS)
        await self._scale(self._pods - few)
        await self._wait_until_settled()

    async def remove_all(self) -> None:
        await self._scale(0)
        await wait_until(self.scope.assert_no_nodes, seconds=TIMEOUT_SECONDS)

    async def _scale_up(self, by: int) -> None:
        self.bought += by
        await self._scale(self._pods + by)
        await self._wait_until_settled()

    async def _scale(self, pods: int) -> None:
        self._pods = pods
        await self.scope.scale_deployment(pods)

    def _sample(self, found: list[str]) -> list[str]:
        return self._dice.sample(sorted(found), min(self.sample_size, len(found)))

    async def _wait_until_settled(self) -> None:
        """A Running pod on each node, no other node, and no other cost."""
        await wait_until(self._assert_settled, seconds=TIMEOUT_SECONDS)
        launched = len(self.scope.launched_instances())
        most = self.bought + self.regretted
        assert self.bought <= launched <= most, f"{self.scope.name}: {launched} bought, not {self.bought} to {most}"

    async def _assert_settled(self) -> None:
        await self.scope.assert_pods_running(self._pods)
        await self.scope.assert_nodes_initialized(self._pods)
        await self.scope.assert_instances_alive(self._pods)

    async def _assert_all_ready(self) -> None:
        for node in object_names(await self.scope.nodes()):
            await self.scope.assert_node_ready_status(node, ready="True")

    async def _assert_nodes_deleted(self, deleted: list[str]) -> None:
        left = set(object_names(await self.scope.nodes())) & set(deleted)
        assert not left, f"{self.scope.name}: Nodes {left} are still there"

    async def _assert_has_nodeclaims(self, count: int) -> None:
        found = len(await self.scope.nodeclaims())
        assert found >= count, f"{self.scope.name}: {found} NodeClaims, not {count}"
