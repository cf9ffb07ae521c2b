"""Nodes that are created and deleted in every possible way, in scopes that each count their expected launches.

Every pod fills a node. A scope waits after each action until it is settled, so that the expected number of launches is
exact. Only after `scale_up_and_revert` is it open how many nodes were launched before their pods were deleted.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import cycle, islice

from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until

TIMEOUT_SECONDS = 900.0
"""Seconds, from the last kill: workers that live for a few seconds plan little."""
ATTEMPT_SECONDS = 30.0
FLAP_SECONDS = 4.0
"""Seconds for which a node is NotReady."""
SHARE = 3
"""An action affects one in this many nodes."""


class ChurnScope:
    """A cluster scope with up to `size` nodes. Its number of launches is checked with both limits."""

    def __init__(self, scope: ClusterScope, *, size: int, seed: int, first: int) -> None:
        self.scope, self.size = scope, size
        self.min_launches = self.optional_launches = 0
        self._dice, self._first = random.Random(f"{seed}/{first}"), first
        self._pods = 0
        self._generation = 0
        self._more: Callable[[], bool] = lambda: False

    async def _wait_until(self, check: Callable[[], Awaitable[object]]) -> None:
        """Without a deadline while the worker is killed."""
        while self._more():
            with suppress(AssertionError):
                await wait_until(check, seconds=ATTEMPT_SECONDS)
                return
        await wait_until(check, seconds=TIMEOUT_SECONDS)

    @property
    def sample_size(self) -> int:
        return max(1, self.size // SHARE)

    async def run_actions(self, more: Callable[[], bool]) -> None:
        """Run actions while `more` returns true, at least one; each scope starts with a different one."""
        self._more = more
        await self.scope.create_deployment(0)
        await self._scale_up(self.size)
        actions = (
            self.delete_nodes,
            self.make_nodes_flap,
            self.empty_nodes,
            self.drift_nodes,
            self.scale_up_and_revert,
        )
        for action in islice(cycle(actions), self._first % len(actions), None):
            await action()
            print(f"{self.scope.name}: {action.__name__}, {self.min_launches} launched", flush=True)
            if not more():
                return

    async def make_nodes_flap(self) -> None:
        """Nodes become NotReady for some seconds."""
        for node in self._sample(object_names(await self.scope.nodes())):
            await self.scope.inject_node_fault(NotReady(for_seconds=FLAP_SECONDS), node=node)
        await self._wait_until(self._assert_all_ready)
        await self._wait_until_settled()

    async def drift_nodes(self) -> None:
        """The NodePool's template changes: every node is replaced once."""
        self._generation += 1
        old = object_names(await self.scope.nodeclaims())
        template = {"metadata": {"labels": {"tests.tenure.sh/generation": str(self._generation)}}}
        await self.scope.product.patch(self.scope.pool_path, {"spec": {"template": template}})
        self.min_launches += len(old)
        await self._wait_until(lambda: self.scope.assert_nodeclaims_deleted(old))
        await self._wait_until_settled()

    async def delete_nodes(self) -> None:
        """NodeClaims or Nodes are deleted; their pods move to new nodes."""
        kind = self._dice.choice((NODE_CLAIMS, NODES))
        found = object_names(await (self.scope.nodeclaims() if kind is NODE_CLAIMS else self.scope.nodes()))
        deleted = self._sample(found)
        for name in deleted:
            await self.scope.product.delete(kind.path(name))
        self.min_launches += len(deleted)
        if kind is NODE_CLAIMS:
            await self._wait_until(lambda: self.scope.assert_nodeclaims_deleted(deleted))
        else:
            await self._wait_until(lambda: self._assert_nodes_deleted(deleted))
        await self._wait_until_settled()

    async def empty_nodes(self) -> None:
        """Pods are deleted, then their nodes; later the same number of pods is created."""
        count = self.sample_size
        await self._scale(self._pods - count)
        await self._wait_until_settled()
        await self._scale_up(count)

    async def scale_up_and_revert(self) -> None:
        """Pods are created and deleted before their nodes can register."""
        count = self.sample_size
        await self._scale(self._pods + count)
        self.optional_launches += count
        claims = self._pods - count + 1
        await self._wait_until(lambda: self._assert_has_nodeclaims(claims))
        await self._scale(self._pods - count)
        await self._wait_until_settled()

    async def remove_all(self) -> None:
        await self._scale(0)
        await self._wait_until(self.scope.assert_no_nodes)

    async def _scale_up(self, by: int) -> None:
        self.min_launches += by
        await self._scale(self._pods + by)
        await self._wait_until_settled()

    async def _scale(self, pods: int) -> None:
        self._pods = pods
        await self.scope.scale_deployment(pods)

    def _sample(self, found: list[str]) -> list[str]:
        return self._dice.sample(sorted(found), min(self.sample_size, len(found)))

    async def _wait_until_settled(self) -> None:
        """Each node has a Running pod; there are no other nodes and no unexpected launches."""
        await self._wait_until(self._assert_settled)
        launched = len(self.scope.launched_instances())
        max_launches = self.min_launches + self.optional_launches
        assert self.min_launches <= launched <= max_launches, (
            f"{self.scope.name}: {launched} launched, not {self.min_launches} to {max_launches}"
        )

    async def _assert_settled(self) -> None:
        await self.scope.assert_pods_running(self._pods)
        await self.scope.assert_nodes_initialized(self._pods)
        await self.scope.assert_instances_alive(self._pods)

    async def _assert_all_ready(self) -> None:
        for node in object_names(await self.scope.nodes()):
            await self.scope.assert_node_ready_status(node, ready="True")

    async def _assert_nodes_deleted(self, deleted: list[str]) -> None:
        remaining = set(object_names(await self.scope.nodes())) & set(deleted)
        assert not remaining, f"{self.scope.name}: Nodes {remaining} are still there"

    async def _assert_has_nodeclaims(self, count: int) -> None:
        found = len(await self.scope.nodeclaims())
        assert found >= count, f"{self.scope.name}: {found} NodeClaims, not {count}"
