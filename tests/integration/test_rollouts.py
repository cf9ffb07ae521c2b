"""Roll-outs on the real parts: drift goes in waves, waits for people, halts over nodes that never come, and goes on."""

from functools import partial
from typing import Any

from tenure.cli.disruption.approve import tell
from tenure.model.rollout import ApproveRollout
from tenure.sandbox.nodes.fault_rules import NeverRegister
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import lifecycle_policy
from tests.support.product.product import Product
from tests.support.product.scene import Scene, names
from workflows import search_attributes

PATIENCE = 240.0
"""Seconds for nodes to be replaced one after the other."""
SOAK = 40.0


async def test_one_node_goes_and_is_watched_and_then_the_rest(product: Product) -> None:
    async with product.scene("waves") as scene:
        waves = [{"nodes": "1", "soak": f"{SOAK:g}s"}, {}]
        old = await _running(scene, 3, waves=waves, health={"nodesReady": "100%", "every": "10s"})
        await _relabel(scene)
        await eventually(lambda: _a_command_waits(scene, "wave 1 of 2"))
        await eventually(partial(_are_left, scene, old, 2), seconds=PATIENCE)
        await eventually(lambda: scene.event(scene.name, "RolloutWaveSoaks"))
        await throughout(partial(_are_left, scene, old, 2), seconds=SOAK / 4)
        await eventually(partial(scene.claims_are_gone, old), seconds=PATIENCE)
        await eventually(lambda: scene.event(scene.name, "RolloutFinished"))
        await eventually(lambda: scene.pods_run(3))
        await scene.nodes_were_bought(6)


async def test_a_wave_that_needs_a_person_waits_for_one(product: Product) -> None:
    async with product.scene("asked") as scene:
        old = await _running(scene, 1, approval={"required": True})
        await _relabel(scene)
        plan = await _plan(scene, "RolloutWaits")
        await throughout(partial(_are_left, scene, old, 1), seconds=10)
        await _approve(scene, plan)
        await eventually(partial(scene.claims_are_gone, old), seconds=PATIENCE)
        await eventually(lambda: scene.event(scene.name, "RolloutApproved", "ann"))
        await scene.nodes_were_bought(2)


async def test_a_replacement_that_never_comes_halts_it_and_a_person_lets_it_go_on(product: Product) -> None:
    async with product.scene("halted") as scene:
        old = await _running(scene, 2, health={"failedStarts": 1, "failingFor": "10s", "every": "10s"})
        await scene.trouble(NeverRegister(), count=2)
        await _relabel(scene)
        plan = await _plan(scene, "RolloutHalted")
        await eventually(lambda: scene.instances_alive(2))
        bought = len(scene.launched())
        await throughout(partial(_is_calm, scene, old, bought), seconds=30)
        await eventually(lambda: scene.pods_run(2))
        await _approve(scene, plan)
        await eventually(partial(scene.claims_are_gone, old), seconds=PATIENCE)
        await eventually(lambda: scene.event(scene.name, "RolloutFinished"))
        await scene.nodes_were_bought(bought + 2)


async def _running(scene: Scene, nodes: int, **rollout: Any) -> list[str]:
    """The names of its NodeClaims."""
    await scene.make(lifecycle_policy(scene.name, scene.name, rollout=rollout))
    return names(await scene.run(nodes))


async def _relabel(scene: Scene) -> None:
    """All nodes drift."""
    await scene.product.patch(scene.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})


async def _are_left(scene: Scene, old: list[str], count: int) -> None:
    left = set(old) & set(names(await scene.claims()))
    assert len(left) == count, f"{scene.name}: {sorted(left)} of {old} are left"


async def _a_command_waits(scene: Scene, words: str) -> None:
    """One that would take a node of this pool says so."""
    query = f"WorkflowType = 'DisruptionWorkflow' AND {search_attributes.NODE_POOL.name} = '{scene.name}'"
    found = [one async for one in scene.product.temporal.list_workflows(query)]
    said = [one.typed_search_attributes.get(search_attributes.BLOCKED_BY) or "" for one in found]
    assert any(words in one for one in said), f"{scene.name}: commands are blocked by {said}"


async def _is_calm(scene: Scene, old: list[str], bought: int) -> None:
    """Nothing goes, and nothing is bought."""
    await scene.claims_stand(old)
    assert len(scene.launched()) == bought


async def _plan(scene: Scene, reason: str) -> str:
    """Its name, from the event that says what to type."""
    event = await eventually(lambda: scene.event(scene.name, reason, "tenure approve"), seconds=PATIENCE)
    return str(event["message"].partition("tenure approve ")[2].split()[0].strip(","))


async def _approve(scene: Scene, plan: str) -> None:
    sandbox = scene.product.sandbox.plan
    said = ApproveRollout(plan=plan, by="ann", reason="seen")
    assert "approved" in await tell(scene.product.temporal, sandbox.cluster_name, said)
