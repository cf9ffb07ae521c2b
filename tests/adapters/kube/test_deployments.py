"""What Tenure reads of a controller's Deployment: environment, flags and references; and scaling it down and up."""

from collections.abc import Callable
from typing import Any

from tenure.apis.labels import REPLICAS_BEFORE
from tenure.kube.adapters.workloads import KubeDeployments, deployment_state
from tenure.kube.client.client import KubeClient

Json = dict[str, Any]
Unique = Callable[[str], str]


def deployment(name: str = "karpenter", replicas: int = 2, **container: Any) -> Json:
    match_labels = {"app.kubernetes.io/name": name}
    main = {"name": "controller", "image": "karpenter/controller:1.14.1", **container}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": match_labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": match_labels},
            "template": {
                "metadata": {"labels": match_labels},
                # Unschedulable: the tests need the Deployment alone.
                "spec": {"containers": [main], "nodeSelector": {"kubernetes.io/hostname": "nowhere"}},
            },
        },
    }


def test_flags_override_the_environment() -> None:
    found = deployment_state(
        deployment(
            env=[{"name": "CLUSTER_NAME", "value": "demo"}, {"name": "LOG_LEVEL", "value": "info"}],
            args=["--log-level=debug", "--isolated-vpc", "--batch-idle-duration", "2s"],
        )
    )
    assert found.environment == {
        "CLUSTER_NAME": "demo",
        "LOG_LEVEL": "debug",
        "ISOLATED_VPC": "true",
        "BATCH_IDLE_DURATION": "2s",
    }
    assert (found.qualified_name, found.replicas) == ("default/karpenter", 2)


def test_variables_from_other_objects_are_named() -> None:
    fields = {"valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}}
    found = deployment_state(
        deployment(
            env=[{"name": "MEMORY_LIMIT", **fields}],
            envFrom=[{"configMapRef": {"name": "more"}}, {"secretRef": {"name": "keys"}}],
        )
    )
    assert found.environment == {} and found.external_variables == ("MEMORY_LIMIT", "ConfigMap more", "Secret keys")


async def test_stopped_deployment_starts_with_its_previous_replicas(admin: KubeClient, unique: Unique) -> None:
    name = unique("karpenter")
    path = "/apis/apps/v1/namespaces/default/deployments"
    await admin.request("POST", path, body=deployment(name, replicas=3))
    found = KubeDeployments(admin)
    try:
        for _ in range(2):
            assert await found.stop("default", name)
            stopped = await found.get("default", name)
            assert stopped is not None and (stopped.replicas, stopped.replicas_before) == (0, 3)
        for _ in range(2):
            assert await found.start("default", name, default_replicas=1)
            started = await admin.request("GET", f"{path}/{name}")
            assert started["spec"]["replicas"] == 3
            assert REPLICAS_BEFORE not in (started["metadata"].get("annotations") or {})
        assert [one.name for one in await found.list_by_name_label(name)] == [name]
        assert not await found.stop("default", "nobody") and await found.get("default", "nobody") is None
    finally:
        await admin.request("DELETE", f"{path}/{name}")
