"""Plans use capacity discovered from live nodes and capacity stored in the workflow."""

from collections.abc import AsyncIterator

import pytest

from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.plan import PlanOutcome, PlanRequest
from tests.support.controller.builders import node_class, pod, pool
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness
from tests.unit.controller.planning.test_discovered_capacity import nodeclaim_and_node
from tests.unit.scheduling.builders import COMMON

IMAGE = "ami-1"
GIB = 1 << 30


@pytest.fixture
async def harness() -> AsyncIterator[ProvisionerHarness]:
    """Pods request 7 GiB. By its estimate, an m.large with 8 GiB fits one."""
    harness = ProvisionerHarness()
    harness.types.kinds = [one.model_copy(update={"image_id": IMAGE}) for one in COMMON]
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("ec2nodeclasses", node_class())
    yield harness
    await harness.provisioner.close()


def add_pod(harness: ProvisionerHarness, name: str) -> None:
    requests = {"cpu": "1", "memory": "7Gi"}
    harness.apply_objects(
        "pods", pod(name, containers=[{"name": "main", "image": "none", "resources": {"requests": requests}}])
    )


async def plan(harness: ProvisionerHarness, number: int, discovered: DiscoveredCapacity | None = None) -> PlanOutcome:
    return await harness.provisioner.plan(
        PlanRequest(plan_id=f"plan-{number}", discovered=discovered or DiscoveredCapacity())
    )


def launched_types(harness: ProvisionerHarness) -> list[str]:
    """The cheapest type of each NodeClaim, in order of creation."""
    return [
        next(one["values"][0] for one in raw["spec"]["requirements"] if one["key"].endswith("instance-type"))
        for raw in harness.claims.found.values()
    ]


def add_live_node(harness: ProvisionerHarness, memory: str) -> None:
    for kind, raw in zip(
        ("nodeclaims", "nodes"), nodeclaim_and_node("old", memory, image=IMAGE, of="m.large"), strict=True
    ):
        harness.apply_objects(kind, raw)


async def test_next_plan_uses_discovered_memory(harness: ProvisionerHarness) -> None:
    add_pod(harness, "first")
    await plan(harness, 1)
    add_live_node(harness, "7Gi")
    add_pod(harness, "second")
    await plan(harness, 2)
    assert launched_types(harness) == ["m.large", "m.xlarge"]


async def test_new_host_plans_with_memory_stored_in_the_workflow(harness: ProvisionerHarness) -> None:
    add_pod(harness, "first")
    await plan(harness, 1, DiscoveredCapacity(images={IMAGE: {"m.large": 7 * GIB}}))
    assert launched_types(harness) == ["m.xlarge"]


async def test_smaller_of_live_and_stored_memory_counts(harness: ProvisionerHarness) -> None:
    add_live_node(harness, "8Gi")
    add_pod(harness, "first")
    await plan(harness, 1, DiscoveredCapacity(images={IMAGE: {"m.large": 7 * GIB}}))
    assert launched_types(harness) == ["m.xlarge"]
    assert harness.provisioner.capacity_discovery.discovered.get_memory(IMAGE, "m.large") == 7 * GIB


async def test_memory_is_discovered_once_all_kinds_are_known(harness: ProvisionerHarness) -> None:
    add_live_node(harness, "7Gi")
    await harness.provisioner.preload_planner()
    assert not harness.provisioner.capacity_discovery.discovered.images
    await harness.provisioner.sync_planner()
    assert harness.provisioner.capacity_discovery.discovered.get_memory(IMAGE, "m.large") == 7 * GIB


async def test_new_planner_receives_discovered_memory(harness: ProvisionerHarness) -> None:
    add_live_node(harness, "7Gi")
    await harness.provisioner.sync_planner()
    await harness.provisioner.close()
    add_pod(harness, "first")
    await plan(harness, 1)
    assert launched_types(harness) == ["m.xlarge"]


async def test_shortfall_event_is_published_when_pods_are_rescheduled(harness: ProvisionerHarness) -> None:
    add_pod(harness, "first")
    await plan(harness, 1)
    (name,) = harness.claims.found
    _, node = nodeclaim_and_node(name, "7Gi", image=IMAGE, of="m.large")
    raw, _ = nodeclaim_and_node(name, image=IMAGE, of="m.large")
    requests = harness.claims.found[name]["spec"]["resources"]
    raw["spec"]["resources"] = requests
    raw["metadata"]["uid"] = f"uid-{name}"
    node["status"]["allocatable"] = {"cpu": "2", "memory": "6656Mi", "pods": "58"}
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", node)
    assert harness.provisioner.undersized_nodes.release([name])
    outcome = await plan(harness, 2)
    assert outcome.created == 1 and launched_types(harness) == ["m.large", "m.xlarge"]
    await harness.provisioner.sync_planner()
    assert ("SmallerThanPlanned", True) in {
        (reason, "6656Mi" in message and "7Gi" in message) for _, reason, message in harness.events.published
    }
