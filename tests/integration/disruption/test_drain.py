"""Drains on real components: protected pods, escalation, and a kubelet that stops during the drain."""

from datetime import UTC, datetime, timedelta

from tenure.apis.labels import DO_NOT_DISRUPT, DRAIN_IN_PROGRESS, MAINTENANCE_IN_PROGRESS
from tenure.kube.client.resources import NODE_CLAIMS, NODES, PERSISTENT_VOLUMES, PODS
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.kube.builders import persistent_volume_json, volume_attachment_json
from tests.support.product.cluster_scope import ClusterScope, condition_reason, condition_status, object_names
from tests.support.product.drains import (
    annotate_do_not_disrupt,
    assert_budget_healthy,
    budget_path,
    delete_with_drain_rules,
    pod_disruption_budget,
    set_do_not_disrupt,
    single_pod,
    started_at,
    time_until,
)
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct

EBS = "ebs.csi.aws.com"
SECONDS = 20.0
"""On a busy machine. Idle passes are further apart."""


async def test_pod_with_temporary_protection_is_evicted_when_it_ends(product: InstalledProduct) -> None:
    async with product.scope("protected", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        protection = datetime.now(UTC) - started_at(await single_pod(scope)) + timedelta(seconds=60)
        pod = await annotate_do_not_disrupt(scope, f"{int(protection.total_seconds())}s")
        name = claim["metadata"]["name"]
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_conditions_mention(name, "do-not-disrupt", "passes at"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        assert datetime.now(UTC) >= started_at(pod) + timedelta(seconds=int(protection.total_seconds()))


async def test_drain_escalates_after_blocked_for(product: InstalledProduct) -> None:
    async with product.scope("escalated", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        pod = await annotate_do_not_disrupt(scope, "true")
        await delete_with_drain_rules(scope, claim, whenBlocked="escalate", blockedFor="5s")
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        await wait_until(
            lambda: scope.assert_event(pod["metadata"]["name"], "Disrupted", "terminationTime of the node")
        )


async def test_drain_names_the_attached_volume_and_escalates(product: InstalledProduct) -> None:
    async with product.scope("attached", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        name, missing = claim["metadata"]["name"], f"{scope.name}-missing"
        await scope.apply_manifest(persistent_volume_json(scope.name, driver=EBS))
        for volume in (scope.name, missing):  # No controller detaches them.
            await scope.apply_manifest(volume_attachment_json(volume, claim["status"]["nodeName"], driver=EBS))
        await delete_with_drain_rules(scope, claim, whenBlocked="escalate", blockedFor="10s")
        words = (f"VolumeAttachment {scope.name}", f"PersistentVolume {scope.name}", f"NodeClaim {name}")
        await wait_until(lambda: scope.assert_conditions_mention(name, "escalates at", *words))
        assert missing not in str((await scope.nodeclaims())[0]["status"]["conditions"])
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_drain_ends_when_its_volume_is_released(product: InstalledProduct) -> None:
    async with product.scope("released", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        name, early = claim["metadata"]["name"], f"{scope.name}-early"
        deleted_claim = {"namespace": "default", "name": scope.name, "uid": "deleted"}
        for volume, spec in ((scope.name, {}), (early, {"claimRef": deleted_claim})):
            await scope.apply_manifest(persistent_volume_json(volume, driver=EBS, **spec))
            await scope.apply_manifest(volume_attachment_json(volume, claim["status"]["nodeName"], driver=EBS))
        await wait_until(lambda: assert_volume_released(product, early))
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_blocked_by(name, f"VolumeAttachment {scope.name}:"))
        assert early not in str((await scope.nodeclaims())[0]["status"]["conditions"])
        await wait_until(lambda: assert_idle(scope, name))
        await product.patch(PERSISTENT_VOLUMES.path(scope.name), {"spec": {"claimRef": deleted_claim}})
        await time_until(
            lambda: scope.assert_nodeclaims_deleted([name]), "from the release to the termination", within=SECONDS
        )


async def assert_volume_released(product: InstalledProduct, name: str) -> None:
    found = await product.kube.request("GET", PERSISTENT_VOLUMES.path(name))
    assert (found.get("status") or {}).get("phase") == "Released", found


async def test_drain_with_stopped_kubelet_ends_after_node_not_ready(product: InstalledProduct) -> None:
    async with product.scope("dead", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        await annotate_do_not_disrupt(scope, "true")
        await delete_with_drain_rules(scope, claim, nodeNotReady="45s")
        await wait_until(lambda: scope.assert_conditions_mention(claim["metadata"]["name"], "do-not-disrupt"))
        await scope.inject_node_fault(NotReady(), node=claim["status"]["nodeName"])
        await wait_until(lambda: scope.assert_blocked_by(claim["metadata"]["name"], "the node has been NotReady since"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))


async def test_blocked_drain_follows_changes_of_its_pods_and_budgets(product: InstalledProduct) -> None:
    async with product.scope("awaiting", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        name, pod = claim["metadata"]["name"], (await single_pod(scope))["metadata"]["name"]
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=0))
        await wait_until(lambda: assert_budget_healthy(scope, 1))
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: assert_idle(scope, name))
        await set_do_not_disrupt(scope, pod, "true")
        await time_until(lambda: scope.assert_blocked_by(name, "do-not-disrupt"), "to another blocker", within=SECONDS)
        await set_do_not_disrupt(scope, pod, None)
        await time_until(lambda: scope.assert_blocked_by(name, "maxUnavailable 0"), "and back", within=SECONDS)
        await product.patch(budget_path(scope.name), {"spec": {"maxUnavailable": 1}})
        await time_until(lambda: assert_evicted(scope, pod), "from the budget to the eviction", within=SECONDS)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_pod_that_is_not_ready_is_evicted_once_its_budget_always_allows_it(product: InstalledProduct) -> None:
    async with product.scope("crashing", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        name, pod = claim["metadata"]["name"], (await single_pod(scope))["metadata"]["name"]
        not_ready = {"metadata": {"annotations": {"sandbox.tenure.sh/ready": "false"}}}
        await product.patch(PODS.path(pod, namespace="default"), not_ready)
        await scope.apply_manifest(pod_disruption_budget(scope.name, minAvailable=1))
        await wait_until(lambda: assert_budget_healthy(scope, 0))
        await product.delete(NODE_CLAIMS.path(name))
        hint = "set unhealthyPodEvictionPolicy: AlwaysAllow"
        await wait_until(lambda: scope.assert_conditions_mention(name, "this pod is not Ready", hint))
        await product.patch(budget_path(scope.name), {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_node_that_another_controller_maintains_is_kept_until_its_condition_ends(
    product: InstalledProduct,
) -> None:
    async with product.scope("maintained", after="1s") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], NODES.path(claim["status"]["nodeName"])
        foreign = {"type": MAINTENANCE_IN_PROGRESS, "status": "True", "reason": "FirmwareUpdate"}
        await product.patch_status(node, {"conditions": [foreign]})
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_blocked_by(name, MAINTENANCE_IN_PROGRESS))
        await product.patch_status(node, {"conditions": [{"type": MAINTENANCE_IN_PROGRESS, "$patch": "delete"}]})
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_draining_node_has_the_condition_drain_in_progress(product: InstalledProduct) -> None:
    async with product.scope("conditions", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        pod = await annotate_do_not_disrupt(scope, "true")
        await product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        await wait_until(lambda: assert_drain_published(scope))
        await set_do_not_disrupt(scope, pod["metadata"]["name"], None)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))


async def test_annotation_without_meaning_is_reported_once_with_the_accepted_values(product: InstalledProduct) -> None:
    async with product.scope("meaningless", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        pod = (await annotate_do_not_disrupt(scope, "True"))["metadata"]["name"]
        await product.patch(NODES.path(node), {"metadata": {"annotations": {DO_NOT_DISRUPT: "4h"}}})
        await wait_until(lambda: scope.assert_event(pod, "InvalidObject", "'True'", "or 'true'; it has no effect"))
        await wait_until(lambda: scope.assert_event(node, "InvalidObject", "a Node accepts only 'true'"))
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        for about in (pod, node):
            found = [one for one in await scope.events_of(about) if one["reason"] == "InvalidObject"]
            assert [one.get("count", 1) for one in found] == [1], found


async def assert_drain_published(scope: ClusterScope) -> None:
    (node,) = await scope.nodes()
    assert condition_status(node, DRAIN_IN_PROGRESS) == "True"
    assert condition_reason(node, DRAIN_IN_PROGRESS).startswith("TenureDraining")


async def assert_idle(scope: ClusterScope, nodeclaim: str) -> None:
    """The next pass without a signal is 80 seconds away."""
    drain = (await scope.nodeclaim_state(nodeclaim)).drain
    assert drain is not None and drain.idle_passes >= 3, drain


async def assert_evicted(scope: ClusterScope, pod: str) -> None:
    remaining = [one["metadata"]["name"] for one in await scope.pods() if "deletionTimestamp" not in one["metadata"]]
    assert pod not in remaining
