"""The consistency check: a failure is reported once and cleared again, and consistent nodes cause no writes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.consistency import ConsistencyChecker
from tenure.kube.client.list_watch import Delta
from tenure.model.errors import TryLater
from tests.support.controller.builders import NOW, claim, node
from tests.support.fakes.kubernetes import FakeEvents, FakeNodeClaims


class ConsistencyHarness:
    def __init__(self) -> None:
        self.cache = ClusterCache(lambda: NOW)
        self.claims, self.events = FakeNodeClaims(), FakeEvents()
        self.patched: list[str] = []
        patch = self.claims.patch

        async def record_patch(name: str, uid: str, **fields: Any) -> Any:
            self.patched.append(name)
            return await patch(name, uid, **fields)

        self.claims.patch = record_patch  # type: ignore[method-assign]
        self.checker = ConsistencyChecker(
            cache=self.cache, claims=self.claims, events=self.events, now=lambda: NOW + timedelta(hours=1)
        )

    def add(
        self,
        name: str,
        *,
        capacity: Mapping[str, str],
        condition_status: str = "",
        phase: str = "Initialized",
        deleting: bool = False,
    ) -> None:
        raw = claim(name, phase=phase, deleting=deleting)
        raw["spec"]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        raw["status"]["capacity"] = {"cpu": "4", "memory": "16Gi"}
        raw["status"]["providerID"] = f"aws:///us-west-2a/i-{name}"
        if condition_status:
            raw["status"]["conditions"].append({"type": "ConsistentStateFound", "status": condition_status})
        self.cache.on_deltas("nodeclaims", [Delta(raw, is_deleted=False)])
        raw_node = node(f"node-{name}")
        raw_node["spec"]["providerID"] = f"aws:///us-west-2a/i-{name}"
        raw_node["status"]["capacity"] = dict(capacity)
        self.cache.on_deltas("nodes", [Delta(raw_node, is_deleted=False)])
        self.claims.add(name, uid=f"uid-{name}")

    def condition_of(self, name: str) -> str:
        return self.claims.condition_text(name, "ConsistentStateFound")


FULL_MEMORY = {"cpu": "4", "memory": "15500Mi"}
HALF_MEMORY = {"cpu": "4", "memory": "8Gi"}


async def test_node_with_missing_memory_fails_and_consistent_node_is_marked_once() -> None:
    harness = ConsistencyHarness()
    harness.add("half", capacity=HALF_MEMORY)
    harness.add("whole", capacity=FULL_MEMORY)
    harness.add("known", capacity=FULL_MEMORY, condition_status="True")
    await harness.checker.check_all()
    assert harness.condition_of("half") == "False ConsistencyCheckFailed" and harness.condition_of("whole") == "True"
    assert harness.events.published == [
        ("half", "FailedConsistencyCheck", "expected 16Gi of resource memory, but found 8Gi (50.0% of expected)"),
    ]
    assert harness.patched == ["half", "whole"]


async def test_recovered_node_is_consistent_again() -> None:
    harness = ConsistencyHarness()
    harness.add("a", capacity=FULL_MEMORY, condition_status="False")
    await harness.checker.check_all()
    assert harness.condition_of("a") == "True" and harness.events.published == []


@pytest.mark.parametrize("changed", [{"phase": "Registered"}, {"deleting": True}])
async def test_starting_and_deleting_nodes_are_not_checked(changed: dict[str, Any]) -> None:
    harness = ConsistencyHarness()
    harness.add("a", capacity=HALF_MEMORY, **changed)
    await harness.checker.check_all()
    assert harness.patched == []


async def test_failed_write_does_not_block_other_nodes() -> None:
    harness = ConsistencyHarness()
    harness.add("a", capacity=HALF_MEMORY)
    harness.add("b", capacity=HALF_MEMORY)
    harness.claims.faults["patch"] = [TryLater("503")]
    await harness.checker.check_all()
    assert harness.condition_of("a") == "" and harness.condition_of("b") == "False ConsistencyCheckFailed"
