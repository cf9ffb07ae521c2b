"""Declared features of nodes: kube-scheduler binds the pods where Tenure would plan them."""

from collections.abc import AsyncIterator, Callable

import pytest

from tenure.apis.labels import DECLARED_FEATURE
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import STRATEGIC_MERGE, KubeClient
from tenure.kube.client.resources import NODES, PODS
from tenure.kube.facts.pods import pod_fact
from tenure.sandbox.controlplane.versions import selected_minor
from tests.support.kube.builders import node_json, pod_json
from tests.support.product.eventually import wait_until

pytestmark = pytest.mark.skipif(selected_minor() != "1.37", reason="Kubernetes 1.29 and 1.34 have no declared features")

FEATURE = "RestartAllContainersOnContainerExits"
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}


@pytest.fixture
async def scope(admin: KubeClient, unique: Callable[[str], str]) -> AsyncIterator[str]:
    """A label of two nodes, of which the second declares the feature."""
    name = unique("features")
    for suffix, features in (("plain", []), ("declaring", [FEATURE])):
        node, resources = f"{name}-{suffix}", {"cpu": "2", "memory": "4Gi", "pods": "10"}
        await admin.request("POST", NODES.path(), body=node_json(node, labels={"scope": name}))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready], "declaredFeatures": features}
        path = NODES.path(node, sub="status")
        await admin.request("PATCH", path, body={"status": status}, content_type=STRATEGIC_MERGE)
    yield name
    await admin.request("DELETE", PODS.path(f"{name}-pod", namespace="default"), params={"gracePeriodSeconds": "0"})
    for suffix in ("plain", "declaring"):
        await admin.request("DELETE", NODES.path(f"{name}-{suffix}"))


async def test_pod_is_bound_to_the_node_that_declares_its_feature(
    kube: KubeAdapters, admin: KubeClient, scope: str
) -> None:
    container = {"name": "main", "image": "none", "restartPolicy": "Never", "restartPolicyRules": [RULE]}
    pod = pod_json(f"{scope}-pod", nodeSelector={"scope": scope}, containers=[container])
    created = await admin.request("POST", PODS.path(namespace="default"), body=pod)
    assert pod_fact(created).node_selector == {"scope": scope, DECLARED_FEATURE.format(FEATURE): "true"}

    async def assert_bound() -> None:
        stored = await admin.get(PODS.path(f"{scope}-pod", namespace="default"))
        assert stored is not None and stored["spec"].get("nodeName") == f"{scope}-declaring", stored

    await wait_until(assert_bound)
    nodes = [await kube.nodes.get(f"{scope}-{suffix}") for suffix in ("plain", "declaring")]
    assert [one.declared_features for one in nodes if one] == [(), (FEATURE,)]
