"""Promise 2, for nodes that were up: taints that come late or come back, flapping, reboots."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import NODES, PODS
from tenure.model.nodeclaim_state import ClaimState, Phase
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import Product
from tests.support.product.scene import Scene, conditions, names, reason
from tests.support.product.settings import GRACE

AGENT = {"key": "cni.example.com/agent-not-ready", "value": "true", "effect": "NoSchedule"}
PROXY = {"key": "proxy.example.com/not-ready", "effect": "NoSchedule"}
STRANGER = {"key": "stranger.example.com/keep-out", "effect": "NoSchedule"}
GPU = "nvidia.com/gpu"
SHORT = 15
"""Seconds for which a node of these tests is away at a time: less than half of the grace, and enough to be seen."""


@pytest.mark.row("001-a")
async def test_startup_taints_may_go_in_any_order_and_come_late(product: Product) -> None:
    async with product.scene("001-a", startup_taints=[AGENT, PROXY]) as scene:
        await scene.deploy(1)
        (claim,) = await eventually(lambda: scene.initialization_waits(labels.STARTUP_TAINTS_EXIST))
        node = claim["status"]["nodeName"]
        await _taint(scene, node, off=PROXY)
        await _taint(scene, node, on=PROXY)
        await _taint(scene, node, off=AGENT)
        (waiting,) = await eventually(partial(_waits_for, scene, PROXY, AGENT))
        assert labels.STARTUP_TAINTS_EXIST in reason(waiting, labels.INITIALIZED_CONDITION)
        await throughout(scene.one_node_was_bought, seconds=3)
        await _taint(scene, node, off=PROXY)
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()


@pytest.mark.row("001-b")
async def test_a_startup_taint_that_comes_back_keeps_the_pending_pod_waiting(product: Product) -> None:
    async with product.scene("001-b", after="60s", startup_taints=[AGENT]) as scene:
        claim, node = await _up(scene)
        await _taint(scene, node, on=AGENT)
        await _replace_the_pod(scene)
        await eventually(lambda: _a_pod_waits(scene))
        await eventually(lambda: _record(scene, claim, lambda found: found.endswith("Z/")))
        await throughout(scene.one_node_was_bought, seconds=8)
        await _taint(scene, node, off=AGENT)
        await eventually(lambda: scene.pods_run(1))
        assert [pod["spec"]["nodeName"] for pod in await scene.pods()] == [node]
        await eventually(lambda: _record(scene, claim, lambda found: not found.endswith("/")))
        await scene.one_node_was_bought()


@pytest.mark.row("001-c")
async def test_a_startup_taint_that_comes_back_and_stays_is_a_real_one_after_the_grace(product: Product) -> None:
    async with product.scene("001-c", after="120s", startup_taints=[AGENT]) as scene:
        claim, node = await _up(scene)
        await _taint(scene, node, on=AGENT)
        began = _moment((await eventually(lambda: _record(scene, claim, bool))).rpartition(" ")[2].rstrip("/"))
        await _replace_the_pod(scene)
        second = await eventually(lambda: scene.newest_claim(2))
        assert await _born(scene, second) - began >= timedelta(seconds=GRACE)
        await eventually(lambda: scene.event(claim, "NotReadyGraceOver", node, AGENT["key"]))
        await _taint(scene, await eventually(partial(_tainted_node, scene, second)), off=AGENT)
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)


@pytest.mark.row("001-c")
async def test_a_node_that_flaps_uses_its_grace_up(product: Product) -> None:
    """No stretch is as long as the grace; together they are, and the third has no whole one left."""
    async with product.scene("001-c", after="120s") as scene:
        (claim,) = await scene.run(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        for stretches in (1, 2):
            await scene.trouble(NotReady(for_seconds=SHORT), node=node)
            await eventually(lambda: scene.node_is_cordoned_off(node))
            await eventually(lambda: scene.node_is(node, ready="True"))
            await eventually(partial(_record, scene, name, partial(_over, stretches)))
        await scene.one_node_was_bought()
        await scene.trouble(NotReady(), node=node)
        await eventually(lambda: scene.node_is_cordoned_off(node))
        await _replace_the_pod(scene)
        await eventually(lambda: scene.newest_claim(2))
        await eventually(lambda: scene.event(name, "NotReadyGraceOver", node, "in 3 stretches"))
        assert (await scene.state(name)).flaps == 3
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)


@pytest.mark.row("001-b")
async def test_a_machine_that_reboots_keeps_its_pods_and_is_initialized_again(product: Product) -> None:
    async with product.scene("001-b", after="60s") as scene:
        (claim,) = await scene.run(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        before = names(await scene.pods())
        boot_id = (await scene.node_is(node, ready="True"))["status"]["nodeInfo"]["bootID"]
        await scene.trouble(NotReady(for_seconds=SHORT, new_boot_id=True), node=node)
        await eventually(lambda: scene.node_is_cordoned_off(node))
        state = await eventually(partial(_went_through_initialization_again, scene, name))
        assert state.boot_id != boot_id and state.reboots == 1
        (after,) = await scene.claims()
        initialized = [conditions(one)[labels.INITIALIZED_CONDITION] for one in (claim, after)]
        assert initialized[0] == initialized[1], "the condition never reverts"
        assert names(await scene.pods()) == before
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()


@pytest.mark.row("001-b")
async def test_a_gpu_that_goes_with_its_kubelet_is_waited_for(product: Product) -> None:
    async with product.scene("001-b", after="60s", types=["g4dn.xlarge"]) as scene:
        (claim,) = await scene.run(1, containers=pod_spec(scene.name, **{GPU: "1"})["containers"])
        node = claim["status"]["nodeName"]
        await scene.trouble(NotReady(for_seconds=SHORT), node=node)
        await eventually(lambda: scene.node_is_cordoned_off(node))
        await product.patch_status(NODES.path(node), {"allocatable": {GPU: "0"}})
        await _replace_the_pod(scene)
        await eventually(lambda: scene.node_is(node, ready="True"))
        await eventually(lambda: _a_pod_waits(scene))
        await throughout(scene.one_node_was_bought, seconds=4)
        await product.patch_status(NODES.path(node), {"allocatable": {GPU: "1"}})
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()


@pytest.mark.row("001-d")
async def test_a_taint_that_nobody_declared_and_that_comes_late_is_explained_too(product: Product) -> None:
    async with product.scene("001-d", after="30s") as scene:
        (claim,) = await scene.run(1)
        await _taint(scene, claim["status"]["nodeName"], on=STRANGER)
        await _replace_the_pod(scene)
        await eventually(lambda: scene.newest_claim(2))
        first = claim["metadata"]["name"]
        await eventually(lambda: scene.event(first, "UndeclaredTaint", STRANGER["key"], "startupTaints"))
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: scene.claims_are_gone([first]))
        await scene.nodes_were_bought(2)


async def _up(scene: Scene) -> tuple[str, str]:
    """A pod runs on a node whose agent did its work: names of its NodeClaim and of the Node."""
    await scene.deploy(1)
    (claim,) = await eventually(lambda: scene.initialization_waits(labels.STARTUP_TAINTS_EXIST))
    await _taint(scene, claim["status"]["nodeName"], off=AGENT)
    await eventually(lambda: scene.pods_run(1))
    await eventually(lambda: scene.nodes_are_initialized(1))
    return claim["metadata"]["name"], claim["status"]["nodeName"]


async def _taint(scene: Scene, node: str, *, on: Object | None = None, off: Object | None = None) -> None:
    """As an agent on the node does it."""
    found = await scene.product.kube.request("GET", NODES.path(node))
    keys = {one["key"] for one in (on, off) if one}
    kept = [one for one in found["spec"].get("taints") or () if one["key"] not in keys]
    await scene.product.patch(NODES.path(node), {"spec": {"taints": [*kept, *([on] if on else [])]}})


async def _replace_the_pod(scene: Scene) -> None:
    (pod,) = await scene.pods()
    await scene.product.delete(PODS.path(pod["metadata"]["name"], namespace="default"))


async def _a_pod_waits(scene: Scene) -> None:
    phases = [(pod["status"].get("phase"), pod["spec"].get("nodeName")) for pod in await scene.pods()]
    assert phases == [("Pending", None)], phases


async def _waits_for(scene: Scene, taint: Object, gone: Object) -> list[Object]:
    claims = await scene.initialization_waits(taint["key"])
    told = [reason(one, labels.INITIALIZED_CONDITION) for one in claims]
    assert not any(gone["key"] in one for one in told), told
    return claims


async def _record(scene: Scene, claim: str, good: Callable[[str], bool]) -> str:
    """When its node was away, as the NodeClaim says."""
    (found,) = [one for one in await scene.claims() if one["metadata"]["name"] == claim]
    record = str(found["metadata"].get("annotations", {}).get(labels.AWAY, ""))
    assert good(record), f"{claim} was away {record!r}"
    return record


def _over(stretches: int, record: str) -> bool:
    return len(record.split()) == stretches and not record.endswith("/")


async def _tainted_node(scene: Scene, claim: str) -> str:
    """The Node of a NodeClaim that has joined and waits for its agent."""
    (found,) = [one for one in await scene.claims() if one["metadata"]["name"] == claim]
    told = reason(found, labels.INITIALIZED_CONDITION)
    assert AGENT["key"] in told, told
    return str(found["status"]["nodeName"])


async def _born(scene: Scene, claim: str) -> datetime:
    (found,) = [one for one in await scene.claims() if one["metadata"]["name"] == claim]
    return _moment(found["metadata"]["creationTimestamp"])


async def _went_through_initialization_again(scene: Scene, claim: str) -> ClaimState:
    state = await scene.state(claim)
    phases = [step.phase for step in state.story]
    assert phases[-3:] == [Phase.READY, Phase.INITIALIZATION, Phase.READY], phases
    return state


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)
