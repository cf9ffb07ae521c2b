"""Promise 3 on real components: AWS events reach the node through queue or status, and the policy decides the
action.
"""

from functools import partial

import pytest

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.cli.disruption.approve import send_node_decision
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tenure.policy.lifecycle.verdict import describe_blocker
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.drains import annotate_do_not_disrupt
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.interruption_events import (
    SOON,
    announce_maintenance,
    assert_queue_empty,
    count_events,
    instance_id,
    nodeclaim_name,
    nodeclaim_state,
    run_pods_with_rules,
    send_spot_warning,
    stop_instance,
    wait_until_rules_observed,
)
from tests.support.product.objects import lifecycle_policy, pod_spec
from tests.support.product.product import InstalledProduct

NOTIFY = {"action": "notify"}
MAINTENANCE = {"scheduledChange": NOTIFY, "instanceStatus": NOTIFY, "systemStatus": NOTIFY}


@pytest.mark.row("002-a")
async def test_maintenance_without_a_policy_drains_the_node(product: InstalledProduct) -> None:
    async with product.scope("002-a") as scope:
        (claim,) = await run_pods_with_rules(scope, 1)
        announce_maintenance(product, claim)
        await wait_until(
            lambda: scope.assert_event(nodeclaim_name(claim), "InstanceUnhealthy", "scheduledChange"), seconds=SOON
        )
        await wait_until(lambda: scope.assert_nodeclaims_deleted([nodeclaim_name(claim)]), seconds=SOON)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("002-b")
async def test_maintenance_with_a_notify_policy_keeps_the_node(product: InstalledProduct) -> None:
    async with product.scope("002-b") as scope:
        (claim,) = await run_pods_with_rules(scope, 1, MAINTENANCE)
        announce_maintenance(product, claim)
        for about in (nodeclaim_name(claim), claim["status"]["nodeName"]):
            await wait_until(partial(scope.assert_event, about, "InstanceUnhealthy", "no action"), seconds=SOON)
        await wait_until(
            lambda: product.metric_value("tenure_aws_events_total", nodepool=scope.name, kind="scheduledChange")
        )
        await wait_until(partial(assert_queue_empty, product))
        await assert_throughout(lambda: scope.assert_nodeclaims_exist([nodeclaim_name(claim)]), seconds=5)


@pytest.mark.row("002-d")
async def test_spot_interruption_drains_despite_a_maintenance_policy(product: InstalledProduct) -> None:
    async with product.scope("002-d") as scope, product.scope("002-d-ignores") as ignoring:
        (claim,) = await run_pods_with_rules(scope, 1, MAINTENANCE)
        (retained,) = await run_pods_with_rules(ignoring, 1, {"spotInterruption": {"action": "ignore"}})
        announce_maintenance(product, claim)
        await wait_until(lambda: scope.assert_event(nodeclaim_name(claim), "InstanceUnhealthy"), seconds=SOON)
        send_spot_warning(product, claim, retained)
        await wait_until(lambda: scope.assert_event(nodeclaim_name(claim), "SpotInterrupted"), seconds=SOON)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([nodeclaim_name(claim)]), seconds=SOON)
        await assert_throughout(lambda: ignoring.assert_nodeclaims_exist([nodeclaim_name(retained)]), seconds=5)


@pytest.mark.row("002-e")
async def test_one_event_for_two_pools_follows_the_policy_of_each(product: InstalledProduct) -> None:
    async with product.scope("002-e") as draining, product.scope("002-e-stays") as retaining:
        (drained,) = await run_pods_with_rules(draining, 1)
        (retained,) = await run_pods_with_rules(retaining, 1, MAINTENANCE)
        announce_maintenance(product, drained, retained)
        await wait_until(lambda: draining.assert_nodeclaims_deleted([nodeclaim_name(drained)]), seconds=SOON)
        await wait_until(
            lambda: retaining.assert_event(nodeclaim_name(retained), "InstanceUnhealthy", "no action"), seconds=SOON
        )
        await assert_throughout(lambda: retaining.assert_nodeclaims_exist([nodeclaim_name(retained)]), seconds=5)


@pytest.mark.row("002-f")
async def test_repeated_status_event_is_reported_once(product: InstalledProduct) -> None:
    async with product.scope("002-f") as scope:
        (claim,) = await run_pods_with_rules(scope, 1, MAINTENANCE)
        event = {"code": "instance-retirement", "id": "instance-event-002f", "not_before": "2036-12-01T04:00:00Z"}
        product.aws.set_status(instance_id(claim), events=[event])
        await wait_until(
            lambda: scope.assert_event(nodeclaim_name(claim), "InstanceUnhealthy", "2036-12-01T04:00"), seconds=SOON
        )
        await assert_throughout(lambda: scope.assert_nodeclaims_exist([nodeclaim_name(claim)]), seconds=75)
        assert await count_events(scope, nodeclaim_name(claim), "InstanceUnhealthy") == 1
        product.aws.set_status(instance_id(claim), events=[event | {"not_before": "2036-12-02T04:00:00Z"}])
        await wait_until(
            lambda: scope.assert_event(nodeclaim_name(claim), "InstanceUnhealthy", "moved from 2036-12-01")
        )
        product.aws.set_status(instance_id(claim))


@pytest.mark.row("002-g")
async def test_failed_status_check_forces_the_drain_unless_policy_is_notify(product: InstalledProduct) -> None:
    async with product.scope("002-g") as forced, product.scope("002-g-told") as notified:
        (drained,) = await run_pods_with_rules(forced, 1)
        (retained,) = await run_pods_with_rules(notified, 1, MAINTENANCE)
        for scope in (forced, notified):
            await annotate_do_not_disrupt(scope, "true")
        for claim in (drained, retained):
            product.aws.set_status(instance_id(claim), instance="impaired", impaired_seconds=300)
        await wait_until(
            lambda: notified.assert_event(nodeclaim_name(retained), "InstanceUnhealthy", "instanceStatus"), seconds=SOON
        )
        await wait_until(lambda: forced.assert_nodeclaims_deleted([nodeclaim_name(drained)]), seconds=SOON)
        await assert_throughout(lambda: notified.assert_nodeclaims_exist([nodeclaim_name(retained)]), seconds=5)
        product.aws.set_status(instance_id(retained))


@pytest.mark.row("002-i")
async def test_node_waits_for_approval_and_reports_the_deadline(product: InstalledProduct) -> None:
    async with product.scope("002-i") as scope:
        approval = {"scheduledChange": {"action": "waitForApproval", "lead": "1h"}}
        (claim,) = await run_pods_with_rules(scope, 1, approval)
        name = nodeclaim_name(claim)
        announce_maintenance(product, claim)
        await wait_until(lambda: scope.assert_blocked_by(name, "waits for approval until"), seconds=SOON)
        nodeclaim = await wait_until(lambda: _assert_has_deadline(scope, name))
        client = product.temporal
        with pytest.raises(UsageError, match="by: '': invalid name"):
            await send_node_decision(client, nodeclaim.workflow_id, name, ApproveEvent(by=""))
        await send_node_decision(client, nodeclaim.workflow_id, name, RejectEvent(by="ben", reason="quarter's end"))
        await wait_until(lambda: scope.assert_event(name, "InterruptionRejected", "rejected by ben: quarter's end"))
        await wait_until(lambda: scope.assert_blocked_by(name, "rejected by ben", "AWS acts soon after"))
        await assert_throughout(lambda: scope.assert_nodeclaims_exist([name]), seconds=5)
        await send_node_decision(client, nodeclaim.workflow_id, name, ApproveEvent(by="ann"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]), seconds=SOON)


@pytest.mark.row("002-l")
async def test_budget_limits_voluntary_interruptions_only(product: InstalledProduct) -> None:
    async with product.scope("002-l", budget="1") as scope:
        voluntary = {"rebalanceRecommendation": {"action": "drain", "voluntary": True}}
        claims = await run_pods_with_rules(scope, 5, voluntary)
        names = [nodeclaim_name(one) for one in claims]
        await protect_all(scope)
        for claim in claims:
            product.aws.recommend_rebalance(instance_id(claim))
        await wait_until(partial(_assert_others_wait_for_budget, scope, names), seconds=SOON)
        await assert_throughout(partial(_assert_at_most_one_deleting, scope, names), seconds=5)
        send_spot_warning(product, *claims)
        await wait_until(partial(_assert_all_deleting, scope, names), seconds=SOON)
        await release_all(scope)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(names))


async def _assert_has_deadline(scope: ClusterScope, name: str) -> NodeClaimSummary:
    nodeclaim = await scope.nodeclaim_workflow(name)
    assert nodeclaim.deadline is not None, nodeclaim
    return nodeclaim


async def protect_all(scope: ClusterScope) -> None:
    await _annotate_do_not_disrupt(scope, "true")


async def release_all(scope: ClusterScope) -> None:
    await _annotate_do_not_disrupt(scope, None)


async def _annotate_do_not_disrupt(scope: ClusterScope, value: str | None) -> None:
    """The annotation keeps a started drain from completing before the test observes it."""
    for pod in await scope.pods():
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        await scope.product.patch(path, {"metadata": {"annotations": {DO_NOT_DISRUPT: value}}})


async def _deleting_names(scope: ClusterScope, names: list[str]) -> list[str]:
    found = {nodeclaim_name(one): one for one in await scope.nodeclaims()}
    return [one for one in names if one not in found or "deletionTimestamp" in found[one]["metadata"]]


async def _assert_others_wait_for_budget(scope: ClusterScope, names: list[str]) -> None:
    waiting = [one for one in names if "budget 1 of 5" in (await scope.nodeclaim_state(one)).blocked_by]
    assert len(waiting) == len(names) - 1, waiting


async def _assert_at_most_one_deleting(scope: ClusterScope, names: list[str]) -> None:
    deleting = await _deleting_names(scope, names)
    assert len(deleting) <= 1, deleting


async def _assert_all_deleting(scope: ClusterScope, names: list[str]) -> None:
    deleting = await _deleting_names(scope, names)
    assert len(deleting) == len(names), deleting


@pytest.mark.row("002-n")
async def test_instance_stopped_and_started_by_aws_keeps_its_node(product: InstalledProduct) -> None:
    async with product.scope("002-n") as scope:
        rules = {"action": "ignore", "away": "10m"}
        (claim,) = await run_pods_with_rules(scope, 1, {"instanceStopping": rules, "scheduledChange": rules})
        name = nodeclaim_name(claim)
        announce_maintenance(product, claim)
        stop_instance(product, claim)
        await wait_until(lambda: scope.assert_blocked_by(name, "its instance is stopped, and the node"), seconds=SOON)
        await wait_until(partial(_assert_ready_status, scope, claim, "Unknown", "False"))
        await assert_throughout(lambda: scope.assert_nodeclaims_exist([name]), seconds=30)
        product.aws.start_instance(instance_id(claim))
        await wait_until(partial(_assert_rebooted, scope, claim))
        await wait_until(partial(_assert_ready_status, scope, claim, "True"))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()
        await wait_until(lambda: _assert_unblocked(scope, name))


@pytest.mark.row("002-n")
async def test_instance_is_stopped_and_started_before_the_event_and_keeps_its_node(product: InstalledProduct) -> None:
    async with product.scope("002-n-moved", after="Never") as scope:
        (claim,) = await run_pods_with_rules(scope, 1, {"scheduledChange": {"action": "stopStart", "away": "10m"}})
        name = nodeclaim_name(claim)
        announce_maintenance(product, claim)
        await wait_until(partial(_assert_rebooted, scope, claim), seconds=SOON)
        await wait_until(partial(_assert_ready_status, scope, claim, "True"))
        await wait_until(lambda: scope.assert_event(name, "StopStartOver", "is back"))
        await wait_until(lambda: scope.assert_pods_running(1))
        await assert_throughout(lambda: scope.assert_nodeclaims_exist([name]), seconds=5)
        state = await nodeclaim_state(scope, claim)
        assert state.stop is not None and state.stop.step == "done" and state.launched is not None
        assert state.launched.provider_id == claim["status"]["providerID"]
        await wait_until(partial(_assert_empty_node_kept, scope))


async def _assert_empty_node_kept(scope: ClusterScope) -> None:
    """The pod moved to a new node. If the worker was down, the pod may have moved back before that node was ready."""
    names = [one["metadata"]["name"] for one in await scope.nodeclaims()]
    blockers = [describe_blocker(await scope.nodeclaim_state(name)) for name in names]
    assert ["consolidateAfter of NodePool" in one for one in blockers].count(True) == 1, blockers


async def _assert_unblocked(scope: ClusterScope, name: str) -> None:
    nodeclaim = await scope.nodeclaim_workflow(name)
    assert not nodeclaim.blocked_by, nodeclaim


async def _assert_ready_status(scope: ClusterScope, claim: dict[str, dict[str, str]], *statuses: str) -> None:
    node = await scope.product.kube.request("GET", f"/api/v1/nodes/{claim['status']['nodeName']}")
    (ready,) = [one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready"]
    assert ready in statuses, ready


async def _assert_rebooted(scope: ClusterScope, claim: dict[str, dict[str, str]]) -> None:
    state = await nodeclaim_state(scope, claim)
    assert state.reboots == 1 and state.phase.value == "Ready", (state.reboots, state.phase)


@pytest.mark.row("002-o")
async def test_stateless_pods_are_evicted_and_stateful_ones_wait_for_approval(product: InstalledProduct) -> None:
    async with product.scope("002-o") as scope:
        rules = {"workloads": [{"matchLabels": {"app": "002-o-db"}, "action": "waitForApproval", "lead": "1h"}]}
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, interruption=rules))
        small_containers = pod_spec(scope.name, cpu="400m")["containers"]
        await scope.create_deployment(2, containers=small_containers)
        await scope.create_deployment(1, "002-o-db", containers=small_containers)
        await wait_until(lambda: scope.assert_pods_running(2))
        await wait_until(lambda: scope.assert_pods_running(1, "002-o-db"))
        (claim,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        name, node = nodeclaim_name(claim), claim["status"]["nodeName"]
        await wait_until_rules_observed(scope, claim, rules)
        announce_maintenance(product, claim)
        await wait_until(partial(_assert_all_evicted, scope, node), seconds=SOON)
        expected = ("default/002-o-db", "interruption.workloads[0]", "waits for approval until")
        await wait_until(lambda: scope.assert_blocked_by(name, *expected), seconds=SOON)
        await wait_until(lambda: scope.assert_conditions_mention(name, "Draining", *expected))
        await assert_throughout(lambda: scope.assert_pods_running(1, "002-o-db"), seconds=5)
        await assert_throughout(lambda: scope.assert_nodeclaims_exist([name]), seconds=1)
        nodeclaim = await scope.nodeclaim_workflow(name)
        await send_node_decision(product.temporal, nodeclaim.workflow_id, name, ApproveEvent(by="ann"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]), seconds=SOON)
        await wait_until(lambda: scope.assert_pods_running(1, "002-o-db"))


async def _assert_all_evicted(scope: ClusterScope, node: str) -> None:
    remaining = [one["metadata"]["name"] for one in await scope.pods() if one["spec"].get("nodeName") == node]
    assert not remaining, remaining
