"""Promise 3 on the real parts: AWS's word reaches the node by queue or status, and its pool's policy decides."""

from functools import partial

import pytest

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.cli.disruption.approve import tell_node
from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.workflows import NodeLife
from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tests.scenarios.announced import SOON, announce, count, instance_of, knows, name_of, running, state_of, stop, warn
from tests.support.product.drains import protect
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import lifecycle_policy, pod_spec
from tests.support.product.product import Product
from tests.support.product.queue import nothing_is_queued
from tests.support.product.scene import Scene

NOTIFY = {"action": "notify"}
MAINTENANCE = {"scheduledChange": NOTIFY, "instanceStatus": NOTIFY, "systemStatus": NOTIFY}


@pytest.mark.row("002-a")
async def test_maintenance_without_a_policy_drains_the_node(product: Product) -> None:
    async with product.scene("002-a") as scene:
        (claim,) = await running(scene, 1)
        announce(product, claim)
        await eventually(lambda: scene.event(name_of(claim), "InstanceUnhealthy", "scheduledChange"), seconds=SOON)
        await eventually(lambda: scene.claims_are_gone([name_of(claim)]), seconds=SOON)
        await eventually(lambda: scene.pods_run(1))
        await scene.nodes_were_bought(2)


@pytest.mark.row("002-b")
async def test_maintenance_that_a_policy_only_wants_to_be_told_of(product: Product) -> None:
    async with product.scene("002-b") as scene:
        (claim,) = await running(scene, 1, MAINTENANCE)
        announce(product, claim)
        for about in (name_of(claim), claim["status"]["nodeName"]):
            await eventually(partial(scene.event, about, "InstanceUnhealthy", "nothing follows"), seconds=SOON)
        await eventually(lambda: product.metric("tenure_aws_events_total", nodepool=scene.name, kind="scheduledChange"))
        await eventually(partial(nothing_is_queued, product))
        await throughout(lambda: scene.claims_stand([name_of(claim)]), seconds=5)


@pytest.mark.row("002-d")
async def test_a_spot_interruption_drains_whatever_the_policy_says_of_maintenance(product: Product) -> None:
    async with product.scene("002-d") as scene, product.scene("002-d-ignores") as ignores:
        (claim,) = await running(scene, 1, MAINTENANCE)
        (kept,) = await running(ignores, 1, {"spotInterruption": {"action": "ignore"}})
        announce(product, claim)
        await eventually(lambda: scene.event(name_of(claim), "InstanceUnhealthy"), seconds=SOON)
        warn(product, claim, kept)
        await eventually(lambda: scene.event(name_of(claim), "SpotInterrupted"), seconds=SOON)
        await eventually(lambda: scene.claims_are_gone([name_of(claim)]), seconds=SOON)
        await throughout(lambda: ignores.claims_stand([name_of(kept)]), seconds=5)


@pytest.mark.row("002-e")
async def test_one_event_for_two_pools_follows_each_pool_s_policy(product: Product) -> None:
    async with product.scene("002-e") as drains, product.scene("002-e-stays") as stays:
        (goes,) = await running(drains, 1)
        (kept,) = await running(stays, 1, MAINTENANCE)
        announce(product, goes, kept)
        await eventually(lambda: drains.claims_are_gone([name_of(goes)]), seconds=SOON)
        await eventually(lambda: stays.event(name_of(kept), "InstanceUnhealthy", "nothing follows"), seconds=SOON)
        await throughout(lambda: stays.claims_stand([name_of(kept)]), seconds=5)


@pytest.mark.row("002-f")
async def test_the_same_event_in_every_status_is_told_once(product: Product) -> None:
    async with product.scene("002-f") as scene:
        (claim,) = await running(scene, 1, MAINTENANCE)
        event = {"code": "instance-retirement", "id": "instance-event-002f", "not_before": "2036-12-01T04:00:00Z"}
        product.aws.set_status(instance_of(claim), events=[event])
        await eventually(lambda: scene.event(name_of(claim), "InstanceUnhealthy", "2036-12-01T04:00"), seconds=SOON)
        await throughout(lambda: scene.claims_stand([name_of(claim)]), seconds=75)
        assert await count(scene, name_of(claim), "InstanceUnhealthy") == 1
        product.aws.set_status(instance_of(claim), events=[event | {"not_before": "2036-12-02T04:00:00Z"}])
        await eventually(lambda: scene.event(name_of(claim), "InstanceUnhealthy", "moved from 2036-12-01"))
        product.aws.set_status(instance_of(claim))


@pytest.mark.row("002-g")
async def test_a_failing_status_check_forces_the_node_unless_the_policy_only_wants_to_be_told(
    product: Product,
) -> None:
    async with product.scene("002-g") as forced, product.scene("002-g-told") as told:
        (goes,) = await running(forced, 1)
        (kept,) = await running(told, 1, MAINTENANCE)
        for scene in (forced, told):
            await protect(scene, "true")
        for claim in (goes, kept):
            product.aws.set_status(instance_of(claim), instance="impaired", impaired_seconds=300)
        await eventually(lambda: told.event(name_of(kept), "InstanceUnhealthy", "instanceStatus"), seconds=SOON)
        await eventually(lambda: forced.claims_are_gone([name_of(goes)]), seconds=SOON)
        await throughout(lambda: told.claims_stand([name_of(kept)]), seconds=5)
        product.aws.set_status(instance_of(kept))


@pytest.mark.row("002-i")
async def test_a_node_waits_for_approval_and_says_until_when(product: Product) -> None:
    async with product.scene("002-i") as scene:
        approval = {"scheduledChange": {"action": "waitForApproval", "lead": "1h"}}
        (claim,) = await running(scene, 1, approval)
        name = name_of(claim)
        announce(product, claim)
        await eventually(lambda: scene.is_blocked_by(name, "waits for approval until"), seconds=SOON)
        life = await eventually(lambda: _has_a_deadline(scene, name))
        client = product.temporal
        with pytest.raises(Refused, match="by: '' is no name"):
            await tell_node(client, life.workflow_id, name, ApproveEvent(by=""))
        await tell_node(client, life.workflow_id, name, RejectEvent(by="ben", reason="quarter's end"))
        await eventually(lambda: scene.event(name, "InterruptionRejected", "rejected by ben: quarter's end"))
        await eventually(lambda: scene.is_blocked_by(name, "rejected by ben", "AWS acts soon after"))
        await throughout(lambda: scene.claims_stand([name]), seconds=5)
        await tell_node(client, life.workflow_id, name, ApproveEvent(by="ann"))
        await eventually(lambda: scene.claims_are_gone([name]), seconds=SOON)


@pytest.mark.row("002-l")
async def test_a_budget_holds_for_what_is_voluntary_and_for_nothing_else(product: Product) -> None:
    async with product.scene("002-l", budget="1") as scene:
        voluntary = {"rebalanceRecommendation": {"action": "drain", "voluntary": True}}
        claims = await running(scene, 5, voluntary)
        names = [name_of(one) for one in claims]
        await protect_all(scene)
        for claim in claims:
            product.aws.recommend_rebalance(instance_of(claim))
        await eventually(partial(_asked, scene, names), seconds=SOON)
        await throughout(partial(_at_most_one_goes, scene, names), seconds=5)
        warn(product, *claims)
        await eventually(partial(_all_go, scene, names), seconds=SOON)
        await release_all(scene)
        await eventually(lambda: scene.claims_are_gone(names))


async def _has_a_deadline(scene: Scene, name: str) -> NodeLife:
    life = await scene.life(name)
    assert life.deadline is not None, life
    return life


async def protect_all(scene: Scene) -> None:
    await _annotate(scene, "true")


async def release_all(scene: Scene) -> None:
    await _annotate(scene, None)


async def _annotate(scene: Scene, value: str | None) -> None:
    """So that a drain that has begun does not end before it is looked at."""
    for pod in await scene.pods():
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        await scene.product.patch(path, {"metadata": {"annotations": {DO_NOT_DISRUPT: value}}})


async def _going(scene: Scene, names: list[str]) -> list[str]:
    found = {name_of(one): one for one in await scene.claims()}
    return [one for one in names if one not in found or "deletionTimestamp" in found[one]["metadata"]]


async def _asked(scene: Scene, names: list[str]) -> None:
    waiting = [one for one in names if "budget 1 of 5" in (await scene.life(one)).blocked_by]
    assert len(waiting) == len(names) - 1, waiting


async def _at_most_one_goes(scene: Scene, names: list[str]) -> None:
    going = await _going(scene, names)
    assert len(going) <= 1, going


async def _all_go(scene: Scene, names: list[str]) -> None:
    going = await _going(scene, names)
    assert len(going) == len(names), going


@pytest.mark.row("002-n")
async def test_an_instance_that_aws_stops_and_starts_is_kept_and_initialized_again(product: Product) -> None:
    async with product.scene("002-n") as scene:
        left = {"action": "ignore", "away": "10m"}
        (claim,) = await running(scene, 1, {"instanceStopping": left, "scheduledChange": left})
        name = name_of(claim)
        announce(product, claim)
        stop(product, claim)
        await eventually(lambda: scene.is_blocked_by(name, "its instance is away, the node is kept"), seconds=SOON)
        await eventually(partial(_ready, scene, claim, "Unknown", "False"))
        await throughout(lambda: scene.claims_stand([name]), seconds=30)
        product.aws.start_instance(instance_of(claim))
        await eventually(partial(_rebooted, scene, claim))
        await eventually(partial(_ready, scene, claim, "True"))
        await eventually(lambda: scene.pods_run(1))
        await scene.one_node_was_bought()
        await eventually(lambda: _waits_for_nothing(scene, name))


@pytest.mark.row("002-n")
async def test_an_instance_is_stopped_and_started_before_aws_does_it_and_its_node_is_kept(product: Product) -> None:
    async with product.scene("002-n-moved", after="Never") as scene:
        (claim,) = await running(scene, 1, {"scheduledChange": {"action": "stopStart", "away": "10m"}})
        name = name_of(claim)
        announce(product, claim)
        await eventually(partial(_rebooted, scene, claim), seconds=SOON)
        await eventually(partial(_ready, scene, claim, "True"))
        await eventually(lambda: scene.event(name, "StopStartOver", "is back"))
        await eventually(lambda: scene.pods_run(1))
        await throughout(lambda: scene.claims_stand([name]), seconds=5)
        state = await state_of(scene, claim)
        assert state.stop is not None and state.stop.step == "done" and state.launched is not None
        assert state.launched.provider_id == claim["status"]["providerID"]
        # Its pod had to go elsewhere: nothing but that keeps it from going as an empty one.
        await eventually(lambda: scene.is_blocked_by(name, "consolidateAfter of NodePool"))


async def _waits_for_nothing(scene: Scene, name: str) -> None:
    life = await scene.life(name)
    assert not life.blocked_by, life


async def _ready(scene: Scene, claim: dict[str, dict[str, str]], *statuses: str) -> None:
    node = await scene.product.kube.request("GET", f"/api/v1/nodes/{claim['status']['nodeName']}")
    (ready,) = [one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready"]
    assert ready in statuses, ready


async def _rebooted(scene: Scene, claim: dict[str, dict[str, str]]) -> None:
    state = await state_of(scene, claim)
    assert state.reboots == 1 and state.phase.value == "Ready", (state.reboots, state.phase)


@pytest.mark.row("002-o")
async def test_stateless_pods_leave_and_the_node_waits_for_the_stateful_ones(product: Product) -> None:
    async with product.scene("002-o") as scene:
        rules = {"workloads": [{"matchLabels": {"app": "002-o-db"}, "action": "waitForApproval", "lead": "1h"}]}
        await scene.make(lifecycle_policy(scene.name, scene.name, interruption=rules))
        small = pod_spec(scene.name, cpu="400m")["containers"]
        await scene.deploy(2, containers=small)
        await scene.deploy(1, "002-o-db", containers=small)
        await eventually(lambda: scene.pods_run(2))
        await eventually(lambda: scene.pods_run(1, "002-o-db"))
        (claim,) = await eventually(lambda: scene.nodes_are_initialized(1))
        name, node = name_of(claim), claim["status"]["nodeName"]
        await knows(scene, claim, rules)
        announce(product, claim)
        await eventually(partial(_have_left, scene, node), seconds=SOON)
        said = ("default/002-o-db", "interruption.workloads[0]", "waits for approval until")
        await eventually(lambda: scene.is_blocked_by(name, *said), seconds=SOON)
        await eventually(lambda: scene.says(name, "Draining", *said))
        await throughout(lambda: scene.pods_run(1, "002-o-db"), seconds=5)
        await throughout(lambda: scene.claims_stand([name]), seconds=1)
        life = await scene.life(name)
        await tell_node(product.temporal, life.workflow_id, name, ApproveEvent(by="ann"))
        await eventually(lambda: scene.claims_are_gone([name]), seconds=SOON)
        await eventually(lambda: scene.pods_run(1, "002-o-db"))


async def _have_left(scene: Scene, node: str) -> None:
    here = [one["metadata"]["name"] for one in await scene.pods() if one["spec"].get("nodeName") == node]
    assert not here, here
