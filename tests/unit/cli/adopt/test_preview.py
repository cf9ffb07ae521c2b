"""`tenure adopt` finds the Deployments of both controllers by name, else by the label of their charts."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.cli.adopt.preview import AdoptionReport, DeploymentReference, inspect_controllers
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.cluster import KubeLeases
from tenure.kube.client.client import KubeClient, Response
from tenure.model.errors import Forbidden
from tests.support.controller.builders import Json
from tests.support.product.karpenter import deployment

KARPENTER, TENURE = DeploymentReference("kube-system", "karpenter"), DeploymentReference("tenure", "tenure")


class ApiServer:
    """Has these Deployments, by the label of their chart, under other names than the default ones. Without any, they
    may not be listed."""

    def __init__(self, deployments: dict[str, list[Json]]) -> None:
        self._deployments = deployments

    async def get(self, path: str) -> None:
        return None

    async def request(self, method: str, path: str, *, params: dict[str, str] | None = None) -> Json:
        if path.endswith("/deployments") and not self._deployments:
            raise Forbidden(path)
        label = (params or {}).get("labelSelector", "").removeprefix("app.kubernetes.io/name=")
        return {"gitVersion": "v1.34.0", "items": self._deployments.get(label, []), "metadata": {}}

    async def send(self, method: str, path: str, **_: Any) -> Response:
        return Response(f"{method} {path}", 200, b"{}")


async def inspect(deployments: dict[str, list[Json]], *flags: str) -> AdoptionReport:
    client = cast(KubeClient, ApiServer(deployments))
    cluster = cast(KubeAdapters, SimpleNamespace(client=client, leases=KubeLeases(client)))
    return await inspect_controllers(cluster, flags, KARPENTER, TENURE)


async def test_worker_of_another_release_is_found_with_its_namespace() -> None:
    worker = deployment("platform", "nodes-tenure", 2, "image", {})
    found = await inspect({"tenure": [worker]}, "--cluster-name=demo")
    assert TENURE.of(found.tenure) == DeploymentReference("platform", "nodes-tenure")
    assert found.settings.system_namespace == "platform"
    assert KARPENTER.of(found.karpenter) == KARPENTER


async def test_deployments_need_not_be_listed() -> None:
    found = await inspect({}, "--cluster-name=demo")
    assert (found.karpenter, found.tenure) == (None, None)


async def test_cluster_name_of_another_cluster_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    karpenter = deployment("kube-system", "karpenter-2", 2, "image", {"CLUSTER_NAME": "prod"})
    monkeypatch.delenv("CLUSTER_NAME", raising=False)
    assert (await inspect({"karpenter": [karpenter]})).is_ready
    monkeypatch.setenv("CLUSTER_NAME", "staging")
    found = await inspect({"karpenter": [karpenter]})
    assert [one.todo for one in found.findings if one.level == "problem"] == [
        "unset CLUSTER_NAME here, or set it to prod"
    ]
