"""Requests of a pod template after admission, compared with the pods that the API server admits."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import LIMIT_RANGES, NAMESPACES, PODS, RUNTIME_CLASSES
from tenure.kube.facts.pod_admission import (
    apply_admission_defaults,
    explain_rejection,
    limit_range_rules,
    runtime_class_defaults,
)
from tenure.kube.facts.pod_requests import pod_requests
from tenure.model.errors import BadInput, Forbidden
from tenure.sandbox.controlplane.versions import selected_minor
from tests.support.product.eventually import wait_until

Json = dict[str, Any]
Unique = Callable[[str], str]

CONTAINERS: dict[str, Json] = {
    "nothing": {},
    "request": {"requests": {"cpu": "100m"}},
    "limit": {"limits": {"cpu": "1", "memory": "128Mi"}},
    "both": {"requests": {"cpu": "200m"}, "limits": {"cpu": "1"}},
}


def spec_of(*resources: Json, **more: Any) -> Json:
    containers = [{"name": f"c{number}", "image": "none", "resources": one} for number, one in enumerate(resources)]
    return {"containers": containers, "schedulerName": "none", **more}


SPECS = {
    **{name: spec_of(one) for name, one in CONTAINERS.items()},
    "several": spec_of(*CONTAINERS.values()),
    "init": spec_of({}, initContainers=[{"name": "init", "image": "none"}]),
    "sidecar": spec_of({}, initContainers=[{"name": "sidecar", "image": "none", "restartPolicy": "Always"}]),
}
if selected_minor() != "1.29":
    # Kubernetes 1.29 has no pod-level requests. It removes the field from the pod.
    SPECS["pod-level"] = spec_of({}, resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "2Gi"}})


FILLS_POD_LEVEL_REQUESTS_LATE = selected_minor() == "1.37"
"""Kubernetes 1.37 derives pod-level requests after admission, from the requests of LimitRanges
(PodLevelResourcesFixDefaulting). Tenure follows older versions, whose requests are the limits, so they are higher."""


@pytest.fixture
async def namespace(admin: KubeClient, unique: Unique) -> AsyncIterator[str]:
    """A namespace whose ServiceAccount exists, so that it admits pods."""
    name = unique("admission")
    await admin.request("POST", NAMESPACES.path(), body={"metadata": {"name": name}})

    await wait_until(lambda: admit(admin, name, SPECS["nothing"]))
    yield name
    await admin.request("DELETE", NAMESPACES.path(name))


async def admit(admin: KubeClient, namespace: str, spec: Json) -> Json:
    """The spec of the pod that the API server would store. AssertionError: not admitted, or not yet."""
    body = {"metadata": {"name": "p"}, "spec": spec}
    try:
        pod = await admin.request("POST", PODS.path(namespace=namespace), body=body, params={"dryRun": "All"})
    except Forbidden as fault:
        raise AssertionError(str(fault)) from fault
    admitted: Json = pod["spec"]
    return admitted


@pytest.mark.parametrize(
    "limits",
    [
        {"defaultRequest": {"cpu": "300m"}},
        {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "300m", "memory": "64Mi"}},
        {"default": {"cpu": "1", "memory": "128Mi"}},
        {"max": {"cpu": "2"}},
        {"min": {"memory": "32Mi"}},
    ],
    ids=str,
)
async def test_limit_range_gives_the_requests_of_the_api_server(
    admin: KubeClient, namespace: str, limits: Json
) -> None:
    raw = {"metadata": {"name": "defaults"}, "spec": {"limits": [{"type": "Container", **limits}]}}
    stored = await admin.request("POST", LIMIT_RANGES.path(namespace=namespace), body=raw)

    async def equals_admission() -> None:
        for name, spec in SPECS.items():
            expected = pod_requests(await admit(admin, namespace, spec))
            for one in (raw, stored):
                found = pod_requests(apply_admission_defaults(spec, [limit_range_rules(one)], {}), limits_too=True)
                if name == "pod-level" and FILLS_POD_LEVEL_REQUESTS_LATE:
                    assert found.items() >= {**expected, "memory": found["memory"]}.items(), name
                    assert found["memory"] >= expected["memory"], name
                else:
                    assert found == expected, name

    # LimitRanger reads LimitRanges from a cache.
    await wait_until(equals_admission, seconds=20)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "Container", "min": {"cpu": "150m"}},
        {"type": "Container", "max": {"cpu": "500m"}},
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "min": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "1"}},
        {"type": "Pod", "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "2"}},
    ],
    ids=str,
)
async def test_limit_range_rejects_the_pods_of_the_api_server(admin: KubeClient, namespace: str, item: Json) -> None:
    raw = {"metadata": {"name": "bounds"}, "spec": {"limits": [item]}}
    rules = [limit_range_rules(await admin.request("POST", LIMIT_RANGES.path(namespace=namespace), body=raw))]
    expected = {}
    for name, spec in SPECS.items():
        expected[name] = explain_rejection("p", apply_admission_defaults(spec, rules, {}), rules)
    assert len({bool(error) for error in expected.values()}) == 2

    async def equals_admission() -> None:
        for name, spec in SPECS.items():
            assert await rejection(admin, namespace, spec) == expected[name], name

    await wait_until(equals_admission, seconds=20)


async def rejection(admin: KubeClient, namespace: str, spec: Json) -> str:
    """The API server's error without the request; empty if it admits the pod."""
    try:
        await admit(admin, namespace, spec)
    except (AssertionError, BadInput) as error:
        return str(error).partition(": ")[2]
    return ""


async def test_runtime_class_gives_the_pod_of_the_api_server(admin: KubeClient, namespace: str, unique: Unique) -> None:
    name = unique("runtime")
    scheduling = {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "runtime", "operator": "Exists"}]}
    overhead = {"podFixed": {"cpu": "2", "memory": "1Gi"}}
    raw = {"metadata": {"name": name}, "handler": "kata", "overhead": overhead, "scheduling": scheduling}
    await admin.request("POST", RUNTIME_CLASSES.path(), body=raw)
    try:
        spec = spec_of({"requests": {"cpu": "1"}}, runtimeClassName=name, nodeSelector={"team": "a"})
        expected = await wait_until(lambda: admit(admin, namespace, spec))
        found = apply_admission_defaults(spec, (), {name: runtime_class_defaults(raw)})
        assert pod_requests(found) == pod_requests(expected)
        assert found["nodeSelector"] == expected["nodeSelector"]
        assert all(one in expected["tolerations"] for one in found["tolerations"])
    finally:
        await admin.request("DELETE", RUNTIME_CLASSES.path(name))
