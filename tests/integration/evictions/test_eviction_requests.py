"""EvictionRequests of drains on real components: a responder delays its pod, and an undone drain withdraws."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.apis.labels import EVICTION_REQUESTER
from tenure.kube.client.resources import EVICTION_REQUESTS, EVICTIONS, NODE_CLAIMS
from tenure.sandbox.controlplane.versions import selected_minor
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import apply_drain_rules, optional_right, single_pod
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import count_events
from tests.support.product.objects import Object, daemon_set
from tests.support.product.product import DedicatedProduct

pytestmark = pytest.mark.skipif(selected_minor() != "1.37", reason="make test-kubernetes runs it with Kubernetes 1.37")

RESPONDER = "acme.example/mover"
RESPONDERS = {"evictionResponders": [{"name": RESPONDER, "priority": 10000}]}
SETTING = "eviction_requests"
SECONDS = 120.0
"""A drain reads the progress of responders at least every minute."""


async def test_drain_follows_a_responder_before_the_eviction_api(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(EVICTION_REQUESTS="true")
    async with optional_right(own_product, SETTING), own_product.scope("moved", after="Never") as scope:
        (claim,) = await scope.run_pods(1, **RESPONDERS)
        name, pod = claim["metadata"]["name"], await single_pod(scope)
        await own_product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: active_responder(scope, pod))
        await report_progress(scope, pod, message="copied 40 of 100 GiB", heartbeatTime=timestamp())
        await wait_until(lambda: scope.assert_blocked_by(name, RESPONDER, "copied 40 of 100 GiB"), seconds=SECONDS)
        assert (await single_pod(scope))["metadata"]["uid"] == pod["metadata"]["uid"]
        await report_progress(scope, pod, completionTime=timestamp())
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]), seconds=SECONDS)
        assert await count_events(scope, pod["metadata"]["name"], "Evicted") == 0


async def test_undone_drain_withdraws_its_request(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(EVICTION_REQUESTS="true")
    async with optional_right(own_product, SETTING), own_product.scope("withdrawn", after="1s") as scope:
        (claim,) = await scope.run_pods(1)
        (name,), node = object_names([claim]), claim["status"]["nodeName"]
        await apply_drain_rules(scope, name, whenBlocked="giveUp", blockedFor="20s")
        agent = daemon_set(f"{scope.name}-agent", pool=scope.name)
        del agent["spec"]["template"]["spec"]["tolerations"]
        agent["spec"]["template"]["spec"] |= RESPONDERS
        await scope.apply_manifest(agent)
        await wait_until(lambda: scope.assert_pods_running(1, f"{scope.name}-agent"))
        (pod,) = await scope.pods(f"{scope.name}-agent")
        await scope.scale_deployment(0)
        await wait_until(lambda: active_responder(scope, pod), seconds=SECONDS)
        await scope.assert_node_disrupted(node)
        await wait_until(lambda: assert_withdrawn(scope, pod), seconds=SECONDS)
        await wait_until(lambda: scope.assert_node_not_disrupted(node))
        await scope.assert_nodeclaims_exist([name])
        assert [one["metadata"]["uid"] for one in await scope.pods(f"{scope.name}-agent")] == [pod["metadata"]["uid"]]


async def active_responder(scope: ClusterScope, pod: Object) -> Object:
    """The Eviction of the pod, while its responder is active."""
    path = EVICTIONS.path(namespace="default")
    found = (await scope.product.kube.request("GET", path))["items"]
    mine = [one for one in found if one["spec"]["target"]["pod"]["uid"] == pod["metadata"]["uid"]]
    assert mine, "no Eviction"
    states = {one["name"]: one["state"] for one in mine[-1]["status"]["targetResponders"]}
    assert states[RESPONDER] == "Active", states
    assert mine[-1]["metadata"]["labels"][EVICTION_REQUESTER] == "requester"
    eviction: Object = mine[-1]
    return eviction


async def report_progress(scope: ClusterScope, pod: Object, **report: str) -> None:
    """What the responder would write."""

    async def write() -> None:
        eviction = await active_responder(scope, pod)
        metadata = eviction["metadata"]
        responders = [
            {**one, **report} if one["name"] == RESPONDER else one for one in eviction["status"]["responders"]
        ]
        path = EVICTIONS.path(metadata["name"], namespace="default", sub="status")
        body: dict[str, Any] = {"metadata": {"resourceVersion": metadata["resourceVersion"]}}
        await scope.product.patch(path, body | {"status": {"responders": responders}})

    await wait_until(write)


async def assert_withdrawn(scope: ClusterScope, pod: Object) -> None:
    request = await scope.product.kube.request(
        "GET", EVICTION_REQUESTS.path(f"tenure-{pod['metadata']['uid']}", namespace="default")
    )
    assert request["spec"]["intent"] == "Withdrawn"
    reasons = {one["type"]: (one["status"], one["reason"]) for one in request["status"]["conditions"]}
    assert reasons["Failed"] == ("True", "CanceledDueToNoRequesters")


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
