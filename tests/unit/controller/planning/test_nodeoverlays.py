"""NodeOverlays in the controller: used by plans, and their validation is written once per change."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from tenure.controller import settings
from tenure.controller.disruption.status import OverlayStatusWriter
from tenure.kube.client.resources import NODE_OVERLAYS
from tenure.model.errors import TryLater
from tenure.scheduling.nodeoverlays import ACCEPTED, OverlayValidation
from tests.support.controller.builders import CacheHarness
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness, running_provisioner

SMALL, LARGE = "m.large", "m.2xlarge"


class FakeOverlayPort:
    """Records written validations. The next `failures` calls fail."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self.failures = 0

    async def write_validation(
        self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime
    ) -> bool:
        if self.failures:
            self.failures -= 1
            raise TryLater("told to fail")
        self.written.append((name, reason))
        return True


def overlay(name: str, *types: str, generation: int = 1, **spec: Any) -> dict[str, Any]:
    requirements = (
        [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)}] if types else []
    )
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return {"metadata": metadata, "spec": {"requirements": requirements, **spec}}


@pytest.fixture
def overlay_port() -> FakeOverlayPort:
    return FakeOverlayPort()


@pytest.fixture
async def harness(overlay_port: FakeOverlayPort) -> AsyncIterator[ProvisionerHarness]:
    async with running_provisioner(overlay_port) as harness:
        yield harness


async def test_plan_uses_overlay_after_its_validation_is_written(
    harness: ProvisionerHarness, overlay_port: FakeOverlayPort
) -> None:
    harness.add_pods(1)
    harness.apply_objects("nodeoverlays", overlay("cheap", LARGE, price="0.001"))
    outcome = await harness.plan()
    assert outcome.created == 1
    (claim,) = harness.claims.found.values()
    (types,) = [
        one["values"] for one in claim["spec"]["requirements"] if one["key"] == "node.kubernetes.io/instance-type"
    ]
    assert types[0] == LARGE
    assert claim["metadata"]["annotations"]["karpenter.sh/price-overlay-applied"] == "true"
    assert overlay_port.written == [("cheap", "")]


async def test_overlay_validation_is_written_once_per_change(
    harness: ProvisionerHarness, overlay_port: FakeOverlayPort
) -> None:
    harness.apply_objects("nodeoverlays", overlay("b", SMALL, price="1"), overlay("a", price="2"))
    for _ in range(3):
        await harness.provisioner.sync_planner()
    assert sorted(overlay_port.written) == [("a", "Conflict"), ("b", "")]
    harness.delete_objects("nodeoverlays", overlay("b", SMALL, price="1"))
    await harness.provisioner.sync_planner()
    assert overlay_port.written[2:] == [("a", "")]


async def test_validation_is_not_written_before_all_kinds_are_known(
    harness: ProvisionerHarness, overlay_port: FakeOverlayPort
) -> None:
    harness.apply_objects("nodeoverlays", overlay("a", price="2"))
    await harness.provisioner.preload_planner()
    assert overlay_port.written == []
    harness.apply_objects("nodeoverlays", overlay("b", SMALL, price="1"))
    await harness.provisioner.sync_planner()
    assert sorted(overlay_port.written) == [("a", "Conflict"), ("b", "")]


async def test_failed_write_of_a_validation_is_retried() -> None:
    harness, overlay_port = CacheHarness(), FakeOverlayPort()
    harness.apply_objects("nodeoverlays", overlay("a"))
    writer = OverlayStatusWriter(harness.cache, overlay_port, lambda: harness.now)
    overlay_port.failures = 1
    await writer.write({"a": ACCEPTED})
    await writer.write({"a": ACCEPTED})
    assert overlay_port.written == [("a", "")]
    harness.apply_objects("nodeoverlays", overlay("a", generation=2))
    await writer.write({"a": ACCEPTED, "gone": OverlayValidation(reason="Conflict")})
    assert overlay_port.written == [("a", ""), ("a", "")]


def test_status_update_is_no_change_for_the_planner() -> None:
    harness = CacheHarness()
    harness.apply_objects("nodeoverlays", overlay("a"))
    assert [one.key for one in harness.cache.drain_planner_changes()] == ["a"]
    harness.apply_objects("nodeoverlays", overlay("a") | {"status": {"conditions": []}})
    assert harness.cache.drain_planner_changes() == ()
    assert [one.key for one in harness.cache.snapshot_changes()] == ["a"]


def test_nodeoverlays_are_watched_only_with_their_feature_gate() -> None:
    assert settings.gated_kinds(()) == []
    assert settings.gated_kinds({"NodeOverlay", "ReservedCapacity"}) == [NODE_OVERLAYS]
