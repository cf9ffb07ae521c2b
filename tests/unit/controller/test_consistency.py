"""The consistency check over the caches: said once, taken back, and nothing written while all is well."""

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

        async def patching(name: str, uid: str, **fields: Any) -> Any:
            self.patched.append(name)
            return await patch(name, uid, **fields)

        self.claims.patch = patching  # type: ignore[method-assign]
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
        made = node(f"node-{name}")
        made["spec"]["providerID"] = f"aws:///us-west-2a/i-{name}"
        made["status"]["capacity"] = dict(capacity)
        self.cache.on_deltas("nodes", [Delta(made, is_deleted=False)])
        self.claims.add(name, uid=f"uid-{name}")

    def condition_of(self, name: str) -> str:
        return self.claims.condition_text(name, "ConsistentStateFound")


FULL_MEMORY = {"cpu": "4", "memory": "15500Mi"}
HALF_MEMORY = {"cpu": "4", "memory": "8Gi"}


async def test_a_node_with_half_its_memory_is_told_of_and_one_that_is_whole_is_marked_so_once() -> None:
    harness = ConsistencyHarness()
    harness.add("half", capacity=HALF_MEMORY)
    harness.add("whole", capacity=FULL_MEMORY)
    harness.add("known", capacity=FULL_MEMORY, condition_status="True")
    await harness.checker.check_all()
    assert harness.condition_of("half") == "False ConsistencyCheckFailed" and harness.condition_of("whole") == "True"
    assert harness.events.published == [
        ("half", "FailedConsistencyCheck", "memory: the Node has 8Gi of 16Gi (50 %)"),
    ]
    assert harness.patched == ["half", "whole"]


async def test_a_node_that_has_grown_is_consistent_again() -> None:
    harness = ConsistencyHarness()
    harness.add("a", capacity=FULL_MEMORY, condition_status="False")
    await harness.checker.check_all()
    assert harness.condition_of("a") == "True" and harness.events.published == []


@pytest.mark.parametrize("odd", [{"phase": "Registered"}, {"deleting": True}])
async def test_nodes_that_start_or_go_are_not_looked_at(odd: dict[str, Any]) -> None:
    harness = ConsistencyHarness()
    harness.add("a", capacity=HALF_MEMORY, **odd)
    await harness.checker.check_all()
    assert harness.patched == []


async def test_one_that_cannot_be_written_to_holds_up_no_other() -> None:
    harness = ConsistencyHarness()
    harness.add("a", capacity=HALF_MEMORY)
    harness.add("b", capacity=HALF_MEMORY)
    harness.claims.faults["patch"] = [TryLater("503")]
    await harness.checker.check_all()
    assert harness.condition_of("a") == "" and harness.condition_of("b") == "False ConsistencyCheckFailed"
