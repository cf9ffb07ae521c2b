"""Features with an optional right: they work with setting and right, and make no call without the setting."""

import json

from tenure.apis.labels import ZONE
from tenure.kube.adapters.workloads import RESTARTED_AT
from tenure.kube.client.resources import LIFECYCLE_POLICIES, NODE_CLAIMS, WORKLOADS
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.drains import SURGE, delete_with_drain_rules, optional_right, single_pod
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import count_events
from tests.support.product.objects import Object, lifecycle_policy
from tests.support.product.product import DedicatedProduct

ZONE_SPREAD = json.dumps(
    {
        "podTopologySpread": {
            "defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
        }
    }
)


async def test_single_replica_is_surged_before_its_node_is_drained(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(**SURGE)
    async with (
        optional_right(own_product, "surge_single_replicas"),
        own_product.scope("surged", after="Never") as scope,
    ):
        (claim,) = await scope.run_pods(1)
        await delete_with_drain_rules(scope, claim, surgeSingleReplicas=True)
        await wait_until(lambda: assert_deleted_without_downtime(scope, claim["metadata"]["name"]))
        deployment = await deployment_of(scope)
        assert deployment["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT]
        assert deployment["metadata"]["generation"] == 2
        await scope.wait_until_nodes_launched(2)


async def test_pod_is_evicted_and_policy_names_the_missing_setting(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("unsurged", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        pod, name = (await single_pod(scope))["metadata"]["name"], claim["metadata"]["name"]
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, drain={"surgeSingleReplicas": True}))
        await wait_until(lambda: assert_policy_names_setting(scope))
        await own_product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_event(pod, "Evicted"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        assert (await deployment_of(scope))["metadata"]["generation"] == 1
        assert await count_events(scope, pod, "SurgeFailed") == 0


async def test_default_spread_launches_one_node_in_each_zone(own_product: DedicatedProduct) -> None:
    """Each pod fills a node. Without the setting, all nodes would be in the cheapest zone."""
    async with optional_right(own_product, "scheduler_config"):
        await own_product.ensure_worker(SCHEDULER_CONFIG=ZONE_SPREAD)
        async with own_product.scope("spread") as scope:
            await scope.apply_manifest(service(scope.name))
            claims = await scope.run_pods(3)
            assert len({one["metadata"]["labels"][ZONE] for one in claims}) == 3, claims
            (pod, *_) = await scope.pods()
            written = [one.get("labelSelector") for one in pod["spec"].get("topologySpreadConstraints", ())]
            assert written == [], "defaults are not written into pods"
        await own_product.stop_workers()


def service(name: str) -> Object:
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def deployment_of(scope: ClusterScope) -> Object:
    found: Object = await scope.product.kube.request(
        "GET", WORKLOADS["Deployment"].path(scope.name, namespace="default")
    )
    return found


async def assert_policy_names_setting(scope: ClusterScope) -> None:
    policy = await scope.product.kube.request("GET", LIFECYCLE_POLICIES.path(scope.name))
    conditions = (policy.get("status") or {}).get("conditions") or ()
    found = [(one["status"], one["reason"]) for one in conditions if one["type"] == "ValidationSucceeded"]
    assert found == [("True", "DisabledBySetting")], conditions
    assert "set SURGE_SINGLE_REPLICAS=true" in str(conditions)


class NoReadyPod(Exception):
    """No pod was Ready at one check. Not an AssertionError, so that `wait_until` does not retry."""


async def assert_deleted_without_downtime(scope: ClusterScope, claim: str) -> None:
    """At every check at least one pod is Ready."""
    pods = await scope.pods()
    if not any(has_ready_containers(one) for one in pods):
        raise NoReadyPod(str([(one["metadata"]["name"], one["status"]) for one in pods]))
    await scope.assert_nodeclaims_deleted([claim])


def has_ready_containers(pod: dict[str, object]) -> bool:
    """Checks ContainersReady. The node lifecycle controller briefly removes Ready from pods that start just when
    their node becomes Ready; no drain can prevent that.
    """
    status = pod["status"]
    assert isinstance(status, dict)
    return any(one["type"] == "ContainersReady" and one["status"] == "True" for one in status.get("conditions") or ())
