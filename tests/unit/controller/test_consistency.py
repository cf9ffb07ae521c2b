"""The consistency check over the caches: said once, taken back, and nothing written while all is well."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.consistency import Consistency
from tenure.kube.client.list_watch import Delta
from tenure.model.errors import TryLater
from tests.support.controller.builders import NOW, claim, node
from tests.support.fakes.kubernetes import FakeClaims, FakeEvents


class Scene:
    def __init__(self) -> None:
        self.caches = Caches(lambda: NOW, lambda: None)
        self.claims, self.events = FakeClaims(), FakeEvents()
        self.patched: list[str] = []
        patch = self.claims.patch

        async def patching(name: str, uid: str, **fields: Any) -> Any:
            self.patched.append(name)
            return await patch(name, uid, **fields)

        self.claims.patch = patching  # type: ignore[method-assign]
        self.consistency = Consistency(
            caches=self.caches, claims=self.claims, events=self.events, now=lambda: NOW + timedelta(hours=1)
        )

    def add(
        self, name: str, *, has: Mapping[str, str], said: str = "", phase: str = "Initialized", deleting: bool = False
    ) -> None:
        raw = claim(name, phase=phase, deleting=deleting)
        raw["spec"]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        raw["status"]["capacity"] = {"cpu": "4", "memory": "16Gi"}
        raw["status"]["providerID"] = f"aws:///us-west-2a/i-{name}"
        if said:
            raw["status"]["conditions"].append({"type": "ConsistentStateFound", "status": said})
        self.caches.hear("nodeclaims", [Delta(raw, gone=False)])
        made = node(f"node-{name}")
        made["spec"]["providerID"] = f"aws:///us-west-2a/i-{name}"
        made["status"]["capacity"] = dict(has)
        self.caches.hear("nodes", [Delta(made, gone=False)])
        self.claims.add(name, uid=f"uid-{name}")

    def shown(self, name: str) -> str:
        return self.claims.condition(name, "ConsistentStateFound")


WHOLE = {"cpu": "4", "memory": "15500Mi"}
HALF = {"cpu": "4", "memory": "8Gi"}


async def test_a_node_with_half_its_memory_is_told_of_and_one_that_is_whole_is_marked_so_once() -> None:
    scene = Scene()
    scene.add("half", has=HALF)
    scene.add("whole", has=WHOLE)
    scene.add("known", has=WHOLE, said="True")
    await scene.consistency.look()
    assert scene.shown("half") == "False ConsistencyCheckFailed" and scene.shown("whole") == "True"
    assert scene.events.said == [
        ("half", "FailedConsistencyCheck", "memory: the Node has 8Gi of 16Gi (50 %)"),
    ]
    assert scene.patched == ["half", "whole"]


async def test_a_node_that_has_grown_is_consistent_again() -> None:
    scene = Scene()
    scene.add("a", has=WHOLE, said="False")
    await scene.consistency.look()
    assert scene.shown("a") == "True" and scene.events.said == []


@pytest.mark.parametrize("odd", [{"phase": "Registered"}, {"deleting": True}])
async def test_nodes_that_start_or_go_are_not_looked_at(odd: dict[str, Any]) -> None:
    scene = Scene()
    scene.add("a", has=HALF, **odd)
    await scene.consistency.look()
    assert scene.patched == []


async def test_one_that_cannot_be_written_to_holds_up_no_other() -> None:
    scene = Scene()
    scene.add("a", has=HALF)
    scene.add("b", has=HALF)
    scene.claims.faults["patch"] = [TryLater("503")]
    await scene.consistency.look()
    assert scene.shown("a") == "" and scene.shown("b") == "False ConsistencyCheckFailed"
