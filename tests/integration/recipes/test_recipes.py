"""Each recipe of the documentation on real components: its manifest is applied, and its main effect occurs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tenure.apis import labels
from tenure.cli.nodes.why import explain_nodes_or_pod, format_explanations
from tenure.kube.client.resources import EC2_NODE_CLASSES, LIFECYCLE_POLICIES, NODE_CLAIMS, NODE_POOLS, NODES
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.interruption_events import announce_maintenance, instance_id
from tests.support.product.objects import NODE_CLASS, Object
from tests.support.product.product import InstalledProduct
from tests.support.product.recipes import apply_recipe, load_for_scope, load_recipe

ALWAYS = {"schedule": "0 0 * * *", "duration": "24h", "timeZone": "UTC"}
SELECTED_BY_NODE_GROUP = {"nodeSelector": {"node-group": "workers"}}
REVIEWED_PODS = 3
RATE_OBSERVED_SECONDS = 15.0
"""Without the rate, the next replacement is launched a few seconds after the first node is gone."""
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


async def test_cluster_autoscaler_pods_of_a_node_group_run_in_the_nodepool(product: InstalledProduct) -> None:
    async with product.scope("autoscaler") as scope:
        await apply_recipe("cluster-autoscaler.yaml", scope)
        (claim,) = await scope.run_pods(1, **SELECTED_BY_NODE_GROUP)
        await scope.scale_deployment(0)
        await scope.assert_nodes_initialized(1)
        await wait_until(partial(_assert_explained, scope, claim, "consolidateAfter 10m", "younger than 10m"))


async def test_termination_handler_rebalance_recommendation_drains_the_node(product: InstalledProduct) -> None:
    async with product.scope("handler", capacity_type="spot") as scope:
        await apply_recipe("termination-handler.yaml", scope)
        await _wait_until_ready(scope)
        (claim,) = await scope.run_pods(1)
        product.aws.recommend_rebalance(instance_id(claim))
        await wait_until(partial(scope.assert_event, claim["metadata"]["name"], "SpotRebalanceRecommendation"))
        await wait_until(partial(scope.assert_nodeclaims_deleted, [claim["metadata"]["name"]]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


async def test_kured_drifted_nodes_are_replaced_one_at_a_time(product: InstalledProduct) -> None:
    async with product.scope("kured") as scope:
        (policy,) = load_for_scope("kured.yaml", scope)
        (window,) = policy["spec"]["disruption"]["windows"]
        window |= ALWAYS
        await scope.apply_manifest(policy)
        await _wait_until_ready(scope)
        old = object_names(await scope.run_pods(2))
        await _change_template(scope)
        remaining = await wait_until(partial(_assert_one_remains, scope, old))
        await scope.wait_until_nodes_launched(3)
        await assert_throughout(lambda: scope.assert_nodes_launched(3), seconds=RATE_OBSERVED_SECONDS)
        await scope.assert_nodeclaims_exist([remaining])


async def test_gpu_pod_runs_on_a_node_for_gpu_pods_only(product: InstalledProduct) -> None:
    async with product.scope("gpu-recipe") as scope:
        await apply_recipe("gpu.yaml", scope)
        await _wait_until_ready(scope)
        await scope.scale_deployment(1, "inflate-gpu")
        await wait_until(lambda: scope.assert_pods_running(1, "inflate-gpu"))
        (claim,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        (node,) = await scope.nodes()
        assert "nvidia.com/gpu" in {one["key"] for one in node["spec"]["taints"]}
        assert int(node["status"]["allocatable"]["nvidia.com/gpu"]) == 1
        rules = (await scope.nodeclaim_state(claim["metadata"]["name"])).observed.rules
        assert rules is not None and rules.initialization is not None
        assert rules.initialization.deadline == "30m"


async def test_stateful_pods_return_to_the_zones_of_their_volumes(product: InstalledProduct) -> None:
    async with product.scope("stateful") as scope:
        await apply_recipe("stateful.yaml", scope)
        await wait_until(partial(_provision_volumes, scope, 3))
        await wait_until(lambda: scope.assert_pods_running(3, "db"))
        before = await _zones_by_pod(scope)
        assert len(set(before.values())) == 3
        (lost, *_) = await wait_until(lambda: scope.assert_nodes_initialized(3))
        await product.delete(NODE_CLAIMS.path(lost["metadata"]["name"]))
        await wait_until(partial(scope.assert_nodeclaims_deleted, [lost["metadata"]["name"]]))
        await wait_until(lambda: scope.assert_pods_running(3, "db"))
        assert await _zones_by_pod(scope) == before
        await scope.wait_until_nodes_launched(4)
        for claim in await product.items(CLAIMS, label="app=db"):
            await product.delete(f"{CLAIMS}/{claim['metadata']['name']}")


async def test_maintenance_windows_defer_drift_and_aws_maintenance(product: InstalledProduct) -> None:
    async with product.scope("windows") as scope:
        (policy,) = load_for_scope("maintenance-windows.yaml", scope)
        del policy["spec"]["disruption"]["freezes"]
        closed = {"schedule": _in_twelve_hours(), "timeZone": "UTC"}
        for window in (
            policy["spec"]["disruption"]["windows"][0],
            policy["spec"]["interruption"]["scheduledChange"]["windows"][0],
        ):
            window |= closed
        await scope.apply_manifest(policy)
        await _wait_until_ready(scope)
        drifted, maintained = await scope.run_pods(2)
        announce_maintenance(product, maintained, days=2)
        name = maintained["metadata"]["name"]
        await wait_until(partial(scope.assert_blocked_by, name, "waits for its window, which opens at"))
        await _change_template(scope)
        await wait_until(partial(_assert_explained, scope, drifted, "outside of its windows, the next opens at"))
        await scope.assert_nodeclaims_exist(object_names([drifted, maintained]))


async def test_cost_review_worker_launches_the_simulated_nodes(product: InstalledProduct, tmp_path: Path) -> None:
    async with product.scope("review") as scope:
        _, types = await product.run_cli("instance-types", "export", "--node-class", NODE_CLASS)
        (tmp_path / "types.json").write_text(json.dumps(types))
        (workload,) = load_for_scope("cost-review/workloads.yaml", scope)
        workload["spec"]["replicas"] = REVIEWED_PODS
        _write(tmp_path / "workloads.yaml", [workload])
        current, proposed = [
            await _simulate(product, tmp_path, load_for_scope(f"cost-review/{pools}.yaml", scope))
            for pools in ("current", "proposed")
        ]
        assert current["unschedulable"] == proposed["unschedulable"] == {}
        assert 0 < proposed["pricePerHour"] < current["pricePerHour"]
        await apply_recipe("cost-review/proposed.yaml", scope)
        await scope.apply_manifest(workload)
        await wait_until(lambda: scope.assert_pods_running(REVIEWED_PODS, "review"))
        await wait_until(lambda: scope.assert_nodes_initialized(len(proposed["nodes"])))
        launched = {one["metadata"]["labels"][labels.INSTANCE_TYPE] for one in await scope.nodes()}
        assert launched <= {name for node in proposed["nodes"] for name in node["instanceTypes"]}


async def test_gitops_merged_objects_become_ready(product: InstalledProduct) -> None:
    async with product.scope("gitops") as scope:
        for one in load_recipe("gitops/nodes.yaml"):
            await scope.apply_manifest(one)
        for kind in (EC2_NODE_CLASSES, NODE_POOLS, LIFECYCLE_POLICIES):
            await wait_until(partial(product.assert_condition, kind.path("web"), "Ready", "True"))


async def _wait_until_ready(scope: ClusterScope) -> None:
    """The policy of the scope is in effect."""
    await wait_until(partial(scope.product.assert_condition, LIFECYCLE_POLICIES.path(scope.name), "Ready", "True"))


async def _change_template(scope: ClusterScope) -> None:
    """All nodes drift."""
    await scope.product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"image": "new"}}}}})


async def _assert_one_remains(scope: ClusterScope, old: Sequence[str]) -> str:
    remaining = {*old} & {*object_names(await scope.nodeclaims())}
    assert len(remaining) == 1, remaining
    return remaining.pop()


async def _assert_explained(scope: ClusterScope, claim: Object, *texts: str) -> None:
    """`tenure why` shows these texts for the NodeClaim."""
    found = format_explanations(await explain_nodes_or_pod(scope.product.connection, claim["metadata"]["name"]))
    assert all(text in found for text in texts), found


def _in_twelve_hours() -> str:
    """A daily cron schedule. A window of a few hours that it opens is closed now."""
    opening = datetime.now(UTC) + timedelta(hours=12)
    return f"{opening.minute} {opening.hour} * * *"


async def _simulate(product: InstalledProduct, folder: Path, pools: Sequence[Object]) -> Any:
    """The plan for these NodePools, with the workloads and instance types of the folder."""
    _write(folder / "pools.yaml", pools)
    files = {"nodepools": "pools.yaml", "pods": "workloads.yaml", "instance-types": "types.json"}
    options = [part for option, name in files.items() for part in (f"--{option}", str(folder / name))]
    code, plan = await product.run_cli("simulate", *options)
    assert code == 0
    return plan


def _write(path: Path, objects: Sequence[Object]) -> None:
    path.write_text(yaml.safe_dump_all(objects))


async def _zones_by_pod(scope: ClusterScope) -> dict[str, str]:
    zones = {one["metadata"]["name"]: one["metadata"]["labels"][labels.ZONE] for one in await scope.nodes()}
    return {one["metadata"]["name"]: zones[one["spec"]["nodeName"]] for one in await scope.pods("db")}


async def _provision_volumes(scope: ClusterScope, count: int) -> None:
    """Act as the CSI driver, which is not in the sandbox: create a volume for each claim of the StatefulSet, in the
    zone of the node that kube-scheduler selected. Nothing is attached.
    """
    claims = await scope.product.items(CLAIMS, label="app=db")
    for claim in claims:
        selected = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
        if selected and not claim["spec"].get("volumeName"):
            node = await scope.product.kube.request("GET", NODES.path(selected))
            await scope.apply_manifest(_volume(claim, node["metadata"]["labels"][labels.ZONE]))
    phases = [one["status"]["phase"] for one in claims]
    assert phases == ["Bound"] * count, phases


def _volume(claim: Object, zone: str) -> Object:
    """A volume that takes no time to attach."""
    in_zone = {"key": labels.ZONE, "operator": "In", "values": [zone]}
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": metadata["name"]},
        "spec": {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": claim["spec"]["storageClassName"],
            "nfs": {"server": "nowhere", "path": "/"},
            "claimRef": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}},
        },
    }
