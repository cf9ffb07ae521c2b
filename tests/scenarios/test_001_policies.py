"""Promise 2 where policies have a say: slow is not stuck, overdue is seen everywhere, what follows is the pool's."""

from datetime import UTC, datetime
from functools import partial

import pytest

from tenure.apis import labels
from tenure.cli.nodes.startups import read, slowest
from tenure.cli.nodes.stuck import find
from tenure.controller.metrics.nodeclaims import NAME
from tenure.kube.client.resources import LIFECYCLE_POLICIES, NODE_CLAIMS
from tenure.sandbox.nodes.fault_rules import AddTaint, NeverRegister, SlowReady
from tenure.sandbox.nodes.userdata.kubelet_join import Taint
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import TWO_CPUS, lifecycle_policy
from tests.support.product.product import Product
from tests.support.product.scene import Scene, condition, reason
from workflows.metrics import STARTUP

CILIUM = "node.cilium.io/agent-not-ready"
TAINTS = tuple(Taint(key=CILIUM, value="true", effect=effect) for effect in ("NoExecute", "NoSchedule"))
DECLARED = [taint.to_object() for taint in TAINTS]


async def stuck(product: Product) -> dict[str, list[str]]:
    """What `tenure stuck` tells: names of NodeClaims, and what follows for the overdue ones."""
    overdue, slow, follows, _ = await find(product.connection)
    return {
        "overdue": [one.name for one in overdue],
        "slow": [one.name for one in slow],
        "kept": [one.name for one in overdue if follows.get(one.workflow_id) == "alarm"],
    }


@pytest.mark.row("001-h")
async def test_a_node_slower_than_others_is_slow_and_neither_stuck_nor_alarmed(product: Product) -> None:
    """The worker's own deadline is 60 s; the pool's is longer, and counts."""
    async with product.scene("001-h") as scene:
        await scene.make(lifecycle_policy(scene.name, scene.name, initialization={"deadline": "5m"}))
        await scene.trouble(SlowReady(seconds=3600.0))
        await scene.deploy(1)
        name = await eventually(lambda: scene.newest_claim(1))
        await eventually(lambda: scene.is_blocked_by(name, "slow: ", labels.NODE_NOT_READY))
        told = await eventually(partial(_tells, product, "slow", name))
        assert name not in told["overdue"]
        assert not [one for one in await scene.events(name) if one["reason"] == "InitializationOverdue"]
        life = await scene.life(name)
        assert life.deadline and life.since and not life.overdue
        assert (life.deadline - life.since).total_seconds() == pytest.approx(300, abs=2)
        await scene.one_node_was_bought()
        await scene.kubelet_is_ready(life.node_name)
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()
        await eventually(lambda: _goes_on(scene, name))


async def _tells(product: Product, how: str, name: str) -> dict[str, list[str]]:
    """`tenure stuck` lists it so."""
    told = await stuck(product)
    assert name in told[how], told
    return told


async def _holds_for(product: Product, policy: str, pools: list[str]) -> None:
    found = await product.find(LIFECYCLE_POLICIES.path(policy))
    assert found and condition(found, "Ready") == "True" and found["status"].get("nodePools") == pools, found


async def _goes_on(scene: Scene, name: str) -> None:
    assert not (await scene.life(name)).blocked_by


@pytest.mark.row("001-i")
async def test_what_is_overdue_is_seen_everywhere_until_it_is_so_no_more(product: Product) -> None:
    async with product.scene("001-i", startup_taints=DECLARED) as scene:
        policy = await scene.make(lifecycle_policy(scene.name, scene.name, initialization={"deadline": "25s"}))
        await scene.trouble(AddTaint(taints=TAINTS))
        await scene.deploy(1)
        name = await eventually(lambda: scene.newest_claim(1))
        await eventually(lambda: scene.event(name, "InitializationOverdue", "waits for a person", CILIUM))
        await eventually(lambda: scene.says(name, "Initialization", "waits for a person"))
        await eventually(lambda: product.metric(NAME, nodepool=scene.name, phase="Initialization"))
        await eventually(lambda: scene.is_blocked_by(name, "waits for a person", labels.STARTUP_TAINTS_EXIST))
        told = await eventually(partial(_tells, product, "kept", name))
        assert name in told["overdue"]
        await throughout(scene.one_node_was_bought, seconds=5)
        await remove_taints(scene, (await scene.life(name)).node_name)
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: is_in_time(scene, name))
        await eventually(lambda: counts_none(product, scene.name))
        await eventually(lambda: _holds_for(product, policy["metadata"]["name"], [scene.name]))


@pytest.mark.row("001-i")
async def test_a_pool_that_wants_overdue_nodes_replaced_gets_another(product: Product) -> None:
    async with product.scene("001-i") as scene:
        rules = {"deadline": "25s", "whenOverdue": "replace"}
        await scene.make(lifecycle_policy(scene.name, scene.name, initialization=rules))
        await scene.trouble(SlowReady(seconds=3600.0), count=1)
        await scene.deploy(1)
        first = await eventually(lambda: scene.newest_claim(1))
        await eventually(lambda: scene.event(first, "InitializationTimeout", labels.NODE_NOT_READY))
        await eventually(lambda: scene.claims_are_gone([first]))
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)


@pytest.mark.row("001-e")
async def test_a_deadline_that_a_person_shortens_holds_for_nodes_that_wait_already(product: Product) -> None:
    async with product.scene("001-e") as scene:
        await scene.make(lifecycle_policy(scene.name, scene.name, registration={"whenOverdue": "alarm"}))
        await scene.trouble(NeverRegister(), count=1)
        await scene.deploy(1)
        first = await eventually(lambda: scene.newest_claim(1))
        await eventually(lambda: scene.says(first, "Registration", "waits for a person"))
        await throughout(scene.one_node_was_bought, seconds=5)
        await scene.make(lifecycle_policy(scene.name, scene.name, registration={"whenOverdue": "terminate"}))
        await eventually(lambda: scene.event(first, "RegistrationTimeout"))
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)


@pytest.mark.row("001-i")
async def test_policies_that_contradict_each_other_say_so(product: Product) -> None:
    async with product.scene("001-i") as scene:
        older, younger = f"{scene.name}-a", f"{scene.name}-b"
        await scene.make(lifecycle_policy(older, scene.name, drain={"deadline": "1h"}))
        await scene.make(lifecycle_policy(younger, scene.name, drain={"deadline": "2h"}))
        for one, other in ((older, younger), (younger, older)):
            await eventually(partial(says_conflict, scene, one, other))
            await eventually(partial(scene.event, one, "Conflict", other))


@pytest.mark.row("001-j")
async def test_start_up_times_are_measured_by_phase_pool_and_type_and_the_slowest_is_found(product: Product) -> None:
    async with product.scene("001-j") as scene:
        await scene.trouble(SlowReady(seconds=25.0), count=1)
        await scene.run(20)
        for phase in ("Launch", "Registration", "Initialization"):
            await eventually(partial(_were_measured, scene, phase, 20))
        claims = [one for one in await read(str(product.sandbox.kubeconfig)) if one.pool == scene.name]
        found = slowest(claims, datetime.now(UTC))
        assert len(found) == 20 and found[0].initialization
        others = [one.initialization.total_seconds() for one in found[1:] if one.initialization]
        assert found[0].initialization.total_seconds() >= 20 > sum(others) / len(others)


async def _were_measured(scene: Scene, phase: str, count: int) -> None:
    place = {"phase": phase, "nodepool": scene.name, "instance_type": TWO_CPUS}
    measured = await scene.product.metric(f"{STARTUP}_count", **place)
    assert measured == count, f"{measured} of {phase}"


async def says_conflict(scene: Scene, name: str, other: str) -> None:
    found = await scene.product.find(LIFECYCLE_POLICIES.path(name))
    assert found is not None and condition(found, "Ready") == "False"
    said = reason(found, labels.VALIDATION_SUCCEEDED)
    assert said.startswith("Conflict") and other in said and "drain.deadline" in said, said


async def is_in_time(scene: Scene, claim: str) -> None:
    assert not (await scene.life(claim)).overdue, f"{claim} is still overdue"
    found = await scene.product.kube.request("GET", NODE_CLAIMS.path(claim))
    assert not condition(found, labels.OVERDUE), f"{claim} still says that it is overdue"


async def counts_none(product: Product, pool: str) -> None:
    try:
        await product.metric(NAME, nodepool=pool, phase="Initialization")
    except AssertionError as none:
        if str(none).startswith(NAME):
            return
    raise AssertionError(f"NodeClaims of {pool} still count as overdue")


async def remove_taints(scene: Scene, node: str) -> None:
    found = await scene.product.kube.request("GET", f"/api/v1/nodes/{node}")
    kept = [taint for taint in found["spec"].get("taints") or () if taint["key"] != CILIUM]
    await scene.product.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": kept}})
