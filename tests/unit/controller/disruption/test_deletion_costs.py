"""Writes of deletion costs: which pods, how many nodes in a cycle, retries, metrics, and a missing permission."""

from collections.abc import Sequence
from typing import Any

from tenure.apis.labels import OWN_DELETION_COST, POD_DELETION_COST
from tenure.controller.disruption import deletion_costs
from tenure.controller.disruption.deletion_costs import DENIED_SECONDS, MAX_NODES, DeletionCostWriter
from tenure.model.disruption.decision import BudgetHeadroom, DisruptionBudgets
from tenure.model.errors import Fault, Forbidden, TryLater
from tenure.model.provider_results import CostedPod, DeletionCostWrite
from tenure.scheduling.disruption.deletion_cost import SPACING, TERMINATING_COST
from tests.support.controller.builders import claim, pod
from tests.support.controller.meter import RecordingMeter
from tests.unit.controller.disruption import test_controller
from tests.unit.controller.disruption.test_controller import DisruptionHarness

harness = test_controller.harness
PENDING = "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes"
WRITES = "karpenter_pod_deletion_cost_pod_annotation_writes_total"
ALL = DisruptionBudgets()


class AnnotatingPods:
    """The port over a cache: a write changes the cached pod, as the watch would show it."""

    def __init__(self, harness: DisruptionHarness) -> None:
        self._harness = harness
        self.writes: list[tuple[str, int | None]] = []
        self.fault: Fault | None = None
        self.result: DeletionCostWrite = "updated"

    async def list_costed(self, node_name: str) -> Sequence[CostedPod]:
        found = self._harness.cache.occupancy.pods_on(node_name).values()
        return [CostedPod(namespace=one.namespace, name=one.name, version="1", cost=one.written_cost) for one in found]

    async def write_deletion_cost(self, pod: CostedPod, cost: int | None) -> DeletionCostWrite:
        if self.fault:
            raise self.fault
        if pod.cost == cost:
            return "skipped_unchanged"
        self.writes.append((pod.name, cost))
        if self.result == "updated":
            (old,) = [one for one in self._harness.cache.pods.values() if one.name == pod.name]
            self._harness.cache._store_pod(old.uid, old.model_copy(update={"written_cost": cost}))
        return self.result


class CostHarness:
    def __init__(self, harness: DisruptionHarness) -> None:
        self.harness, self.port, self.meter = harness, AnnotatingPods(harness), RecordingMeter()
        self.writer = DeletionCostWriter(harness.cache, self.port, self.meter)

    def sample(self, name: str, label: str) -> float:
        """The sum of a metric's samples since the last call."""
        return sum(value for one, labels, value in self.meter.drain_records() if (one, labels) == (name, (label,)))

    async def run_cycle(self, budgets: DisruptionBudgets = ALL) -> int:
        await self.harness.compute_disruption()
        self.writer.update(self.harness.decisions[-1].nodes, budgets)
        return await self.writer.write()

    def costs(self) -> dict[str, int]:
        return {one.name: cost for one in self.harness.cache.pods.values() if (cost := one.written_cost) is not None}


async def test_pods_of_a_node_get_one_cost_and_are_written_once(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    harness.add_node("big", "m.2xlarge", 1, 1)
    harness.add_node("small", "m.large", 1)
    assert await costs.run_cycle() == 0
    assert costs.costs() == {"big-0": -2 * SPACING, "big-1": -2 * SPACING, "small-0": -SPACING}
    written = list(costs.port.writes)
    assert await costs.run_cycle() == 0 and costs.port.writes == written
    assert costs.sample(WRITES, "updated") == 3


async def test_written_costs_do_not_change_the_disruption_cost(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    harness.add_node("big", "m.2xlarge", 1)
    changes = harness.cache.planner_changes
    await costs.run_cycle()
    before = changes.disruption_changes
    await costs.run_cycle()
    assert costs.port.writes and changes.disruption_changes == before
    assert harness.decisions[-1].nodes[0].cost == 2.0


async def test_pods_of_users_and_other_controllers_are_left_out(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    harness.add_node("n", "m.2xlarge")
    foreign = {"annotations": {POD_DELETION_COST: "7"}}
    own = {"annotations": {POD_DELETION_COST: "7", OWN_DELETION_COST: "7"}}
    changed = {"annotations": {POD_DELETION_COST: "8", OWN_DELETION_COST: "7"}}
    for name, metadata in (("foreign", foreign), ("own", own), ("changed", changed)):
        harness.apply_objects("pods", pod(name, on="node-n", metadata=metadata))
    harness.apply_objects("pods", pod("job", on="node-n", owner="Job"))
    await costs.run_cycle()
    found = {one.name: one for one in harness.cache.pods.values()}
    assert [found[name].has_foreign_cost for name in ("foreign", "own", "changed")] == [True, False, True]
    assert costs.port.writes and costs.costs()["own"] == -SPACING
    harness.apply_objects("pods", pod("set", on="node-n", owner="StatefulSet"))
    await costs.run_cycle()
    assert ("own", None) in costs.port.writes, "a StatefulSet's pod keeps the node, so that no cost stays"


async def test_nodes_beyond_the_budget_lose_their_cost(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    for name in ("a", "b"):
        harness.add_node(name, "m.large", 1)
    await costs.run_cycle()
    one: Any = {"general": {"Underutilized": BudgetHeadroom(allowed=1)}}
    await costs.run_cycle(DisruptionBudgets(pools=one))
    assert set(costs.costs()) == {"a-0"}


async def test_cycle_writes_a_limited_number_of_nodes_and_all_terminating_ones(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    for number in range(MAX_NODES + 3):
        harness.add_node(f"n{number:02}", "m.large", 1)
    harness.add_node("terminating", "m.large", 1)
    terminating = harness.cache.nodeclaims["terminating"]
    raw = claim("terminating", phase="Initialized", deleting=True, labels=terminating.labels)
    harness.apply_objects("nodeclaims", raw)
    assert await costs.run_cycle() == 3
    assert len(costs.costs()) == MAX_NODES + 1 and costs.costs()["terminating-0"] == TERMINATING_COST
    assert costs.sample(PENDING, "general") == 3
    assert await costs.run_cycle() == 0
    assert len(costs.costs()) == MAX_NODES + 4 and costs.sample(PENDING, "general") == 0


async def test_failed_nodes_are_retried_after_the_others(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    for number in range(2 * MAX_NODES):
        harness.add_node(f"n{number:02}", "m.large", 1)
    costs.port.fault = TryLater("busy")
    assert await costs.run_cycle() == 2 * MAX_NODES
    assert costs.sample(WRITES, "error") == MAX_NODES
    costs.port.fault = None
    assert await costs.run_cycle() == MAX_NODES
    assert set(costs.costs()) == {f"n{number:02}-0" for number in range(MAX_NODES, 2 * MAX_NODES)}
    assert await costs.run_cycle() == 0


async def test_changed_pod_is_written_in_a_later_cycle(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    harness.add_node("n", "m.large", 1)
    costs.port.result = "skipped_conflict"
    assert await costs.run_cycle() == 1 and costs.sample(WRITES, "skipped_conflict") == 1
    costs.port.result = "skipped_notfound"
    assert await costs.run_cycle() == 0, "a pod that is gone needs no cost"


async def test_missing_permission_is_tried_rarely(harness: DisruptionHarness) -> None:
    costs = CostHarness(harness)
    harness.add_node("n", "m.large", 1)
    costs.port.fault = Forbidden("pods is forbidden")
    assert await costs.run_cycle() == 1 and costs.writer.pause_seconds() == DENIED_SECONDS
    costs.port.fault = None
    assert await costs.run_cycle() == 0 and costs.writer.pause_seconds() == deletion_costs.CYCLE_SECONDS
