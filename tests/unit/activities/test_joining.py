"""Registration and initialization: read live, and written once."""

from datetime import timedelta

import pytest

from tenure.apis.labels import INITIALIZED, REGISTERED, TERMINATION_FINALIZER, UNREGISTERED_TAINT_KEY
from tenure.model.errors import Conflict
from tenure.model.nodeclaim_requests import Registered
from tests.support.fakes.kubernetes import BORN
from tests.unit.activities.builders import PROVIDER, REF, Scene, performed

STARTUP = [{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}]
CILIUM = ("node.cilium.io/agent-not-ready", "", "NoExecute")


async def test_a_node_that_joined_is_registered_and_shown(scene: Scene) -> None:
    scene.running()
    answer = await performed(scene.joining.register_node, REF)
    life = timedelta(hours=720)
    assert answer == Registered(
        outcome="registered", node_name="node-a", boot_id="boot-1", ready=True, expires=BORN + life, lifetime=life
    )
    node = scene.nodes.found["node-a"]
    assert node.labels[REGISTERED] == "true" and node.finalizers == (TERMINATION_FINALIZER,)
    assert all(key != UNREGISTERED_TAINT_KEY for key, _, _ in node.taints)
    assert scene.claims.found["a"]["status"]["nodeName"] == "node-a"
    assert scene.claims.condition("a", "Registered").startswith("True")


async def test_registering_says_what_initialization_waits_for(scene: Scene) -> None:
    scene.running(ready=False)
    answer = await performed(scene.joining.register_node, REF)
    assert not answer.ready
    assert scene.claims.condition("a", "Initialized") == "Unknown NodeNotReady"


async def test_registering_twice_is_registering_once(scene: Scene) -> None:
    scene.running()
    first = await performed(scene.joining.register_node, REF)
    known = scene.nodes.found["node-a"]
    assert await performed(scene.joining.register_node, REF) == first
    assert scene.nodes.found["node-a"] == known and scene.events.said == []


async def test_a_node_that_came_without_the_unregistered_taint_is_reported(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", taints=())
    await performed(scene.joining.register_node, REF)
    assert scene.events.reasons("a") == ["UnregisteredTaintMissing"]


async def test_a_node_of_another_instance_is_not_taken_for_ours(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", provider_id="aws:///us-west-2a/i-9999")
    assert (await performed(scene.joining.register_node, REF)).outcome == "no node"
    scene.nodes.join("node-z", PROVIDER)
    assert (await performed(scene.joining.register_node, REF)).node_name == "node-z"


@pytest.mark.parametrize(("nodes", "outcome"), [(0, "no node"), (1, "registered"), (2, "several nodes")])
async def test_a_node_is_found_by_its_provider_id(scene: Scene, nodes: int, outcome: str) -> None:
    scene.running()
    scene.nodes.found.clear()
    for number in range(nodes):
        scene.nodes.join(f"other-{number}", PROVIDER)
    assert (await performed(scene.joining.register_node, REF)).outcome == outcome


async def test_a_claim_that_is_gone_registers_and_initializes_nothing(scene: Scene) -> None:
    scene.running()
    scene.claims.add("a", uid="uid-other")
    assert (await performed(scene.joining.register_node, REF)).outcome == "gone"
    assert (await performed(scene.joining.initialize_node, REF)).outcome == "gone"
    assert scene.nodes.found["node-a"].labels == {}


async def test_a_ready_node_is_initialized_with_its_expiry(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", taints=())
    scene.claims.found["a"]["spec"]["expireAfter"] = "2h"
    answer = await performed(scene.joining.initialize_node, REF)
    assert answer.outcome == "initialized" and answer.boot_id == "boot-1"
    assert answer.expires is not None and answer.expires.isoformat() == "2026-01-01T02:00:00+00:00"
    assert scene.nodes.found["node-a"].labels[INITIALIZED] == "true"
    assert scene.claims.condition("a", "Initialized").startswith("True")


async def test_initialized_once_a_node_that_is_not_ready_since_stays_so_unless_it_rebooted(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", taints=())
    await performed(scene.joining.initialize_node, REF)
    scene.nodes.change("node-a", ready=False)
    assert (await performed(scene.joining.initialize_node, REF)).outcome == "initialized"
    assert scene.claims.condition("a", "Initialized").startswith("True")
    rebooted = REF.model_copy(update={"initialized": True})
    assert (await performed(scene.joining.initialize_node, rebooted)).outcome == "waiting"
    assert scene.claims.condition("a", "Initialized").startswith("True"), "it never reverts"


@pytest.mark.parametrize(("cpu", "said"), [(2000, "True"), (1000, "")])
async def test_an_initialized_node_is_what_was_bought_unless_the_watch_tells_otherwise(
    scene: Scene, cpu: int, said: str
) -> None:
    scene.running()
    claim = scene.claims.found["a"]
    claim["spec"]["resources"] = {"requests": {"cpu": "1"}}
    claim["status"]["capacity"] = {"cpu": "2"}
    scene.nodes.change("node-a", taints=(), capacity={"cpu": cpu}, allocatable={"cpu": cpu})
    await performed(scene.joining.initialize_node, REF)
    assert scene.claims.condition("a", "ConsistentStateFound").strip() == said


async def test_a_node_that_never_expires_has_no_expiry(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", taints=())
    scene.claims.found["a"]["spec"]["expireAfter"] = "Never"
    assert (await performed(scene.joining.initialize_node, REF)).expires is None


async def test_a_startup_taint_that_is_still_there_is_named(scene: Scene) -> None:
    scene.running()
    scene.claims.found["a"]["spec"]["startupTaints"] = STARTUP
    scene.nodes.change("node-a", taints=(CILIUM,))
    answer = await performed(scene.joining.initialize_node, REF)
    assert answer.outcome == "waiting" and answer.waiting_for.startswith("StartupTaintsExist: node.cilium.io")
    assert scene.claims.condition("a", "Initialized") == "Unknown StartupTaintsExist"
    assert INITIALIZED not in scene.nodes.found["node-a"].labels


async def test_a_taint_that_nobody_declared_is_explained(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", taints=(CILIUM,))
    assert (await performed(scene.joining.initialize_node, REF)).outcome == "initialized"
    assert scene.events.reasons("a") == ["UndeclaredTaint"]


async def test_a_node_that_left_is_waited_for(scene: Scene) -> None:
    scene.running()
    scene.nodes.found.clear()
    answer = await performed(scene.joining.initialize_node, REF)
    assert answer.waiting_for == "NodeNotFound: node-a left the cluster"


async def test_a_conflict_is_tried_again(scene: Scene) -> None:
    scene.running()
    scene.nodes.faults["register"] = [Conflict("the object has been modified")]
    with pytest.raises(Exception, match="has been modified"):
        await performed(scene.joining.register_node, REF)
    assert (await performed(scene.joining.register_node, REF)).outcome == "registered"
