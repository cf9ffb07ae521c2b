"""The watch of a simulated month: observations of nodes and their NodePool after a change."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from temporalio.service import RPCError, RPCStatusCode

from tenure.apis import labels
from tenure.model.base import Message, instance_id_of
from tenure.model.facts import NodeFact
from tenure.model.observations import ObservedNodePool
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, wait_until_idle
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

POLICY: Final = "WhenEmpty"
LOST_SIGNAL_SHARE: Final = 0.2
"""Share of headroom signals that are lost, as while the watch moves to another process."""


@dataclass
class NodeSlot:
    """A node of the pool, and its successors."""

    number: int
    nodeclaim_count: int = 0
    handle: Handle | None = None
    empty_since: datetime | None = None
    do_not_disrupt: bool = False
    """From the do-not-disrupt annotation."""
    paused: datetime | None = None
    """End of the pause."""
    last_observation: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"n{self.number}-{self.nodeclaim_count}"


class FakeWatch:
    """`after`: returns the NodePool's current consolidateAfter; `pool`: its workflow."""

    def __init__(
        self, fake: WorkerHarness, slots: list[NodeSlot], dice: random.Random, after: Callable[[], str]
    ) -> None:
        self._fake, self._slots, self._dice, self._after = fake, slots, dice, after
        self.pool: Any = None
        self.generation = self._observation_number = 1
        self._freed = 0
        self._budget_states: dict[str, str] = {}
        self._last_pool_observation: dict[str, Any] = {}

    def find_node(self, slot: NodeSlot) -> NodeFact | None:
        claim = self._fake.claims.found.get(slot.name)
        provider_id = claim["status"].get("providerID") if claim else None
        return next(
            (one for one in self._fake.nodes.found.values() if provider_id and one.provider_id == provider_id), None
        )

    async def notify(self) -> bool:
        """Send all changed observations. True if there were any."""
        changes = [await self._notify_slot(slot) for slot in self._slots]
        return await self._notify_nodepool() or any(changes)

    async def _notify_nodepool(self) -> bool:
        """Mimics `tenure/controller/signals/disruption_trigger.py` and `tenure/controller/signals/digests.py`."""
        before, self._budget_states = self._budget_states, {slot.name: self.budget_state(slot) for slot in self._slots}
        transitions = {(before.get(name, ""), now) for name, now in self._budget_states.items()}
        any_released = any(before[name] == "uses" for name in before.keys() - self._budget_states.keys())
        if any_released or transitions & {("", "well"), ("uses", "well"), ("uses", "")}:
            self._freed += self._dice.random() >= LOST_SIGNAL_SHARE
        launched = sum(bool(one["status"].get("providerID")) for one in self._fake.claims.found.values())
        pause = self._fake.pools.found["default"].metadata.annotations.get(labels.PAUSE, "")
        observation = {"generation": self.generation, "usage": str(launched), "freed": self._freed, "pause": pause}
        if observation == self._last_pool_observation:
            return False
        self._last_pool_observation = observation
        self._observation_number += 1
        await wait_until_idle(self.pool)
        await self.pool.signal(
            NodePoolWorkflow.observe, ObservedNodePool(number=self._observation_number, **observation)
        )
        return True

    def budget_state(self, slot: NodeSlot) -> str:
        """How budgets count the node: empty if not at all, `uses` if it consumes them, `well` otherwise."""
        claim, node = self._fake.claims.found.get(slot.name), self.find_node(slot)
        true = {one["type"] for one in claim["status"]["conditions"] if one["status"] == "True"} if claim else set()
        if claim is None or labels.INITIALIZED_CONDITION not in true or labels.INSTANCE_TERMINATING in true:
            return ""
        tainted = node is not None and node.being_disrupted
        is_disrupting = "deletionTimestamp" in claim["metadata"] or tainted
        return "uses" if is_disrupting or (node is not None and not node.ready) else "well"

    async def _notify_slot(self, slot: NodeSlot) -> bool:
        """Send a changed observation. Nodes of running instances join and become Ready."""
        claim = self._fake.claims.found.get(slot.name)
        if slot.handle is None or (claim is None and slot.last_observation == {"exists": False}):
            return False
        observation = {"exists": False} if claim is None else self._observation_of(slot, claim)
        if observation == slot.last_observation:
            return False
        slot.last_observation = observation
        await self.send_signal(slot, NodeClaimWorkflow.observe, self._fake.make_observation(**observation))
        return True

    async def send_signal(self, slot: NodeSlot, signal: Any, message: Message) -> None:
        """The workflow may just have completed; then its NodeClaim is deleted."""
        assert slot.handle is not None
        await wait_until_idle(slot.handle)
        try:
            await slot.handle.signal(signal, message)
        except RPCError as error:
            assert error.status is RPCStatusCode.NOT_FOUND and slot.name not in self._fake.claims.found, slot

    def _observation_of(self, slot: NodeSlot, claim: dict[str, Any]) -> dict[str, Any]:
        node = self.find_node(slot) or self._join_node(slot, claim)
        observation = {
            "deleting": "deletionTimestamp" in claim["metadata"] or bool(node and node.deleting),
            "consolidation": f"{POLICY}/{self._after()}",
            "pause": claim["metadata"]["annotations"].get(labels.PAUSE, ""),
        }
        if node is None:
            return observation
        return {
            **observation,
            "node_name": node.name,
            "node_count": 1,
            "node_ready": node.ready,
            "boot_id": node.boot_id,
            "empty": slot.empty_since is not None,
            "empty_since": slot.empty_since,
            "do_not_disrupt": slot.do_not_disrupt,
        }

    def _join_node(self, slot: NodeSlot, claim: dict[str, Any]) -> NodeFact | None:
        provider = claim["status"].get("providerID", "")
        known = slot.last_observation.get("node_name")
        if known or instance_id_of(provider) not in self._fake.instances.running:
            return None
        return self._fake.nodes.join(f"node-{slot.name}", provider)
