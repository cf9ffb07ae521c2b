"""`tenure adopt` finds the Deployments of both controllers by name, else by the label of their charts."""

from types import SimpleNamespace
from typing import Any, cast

from tenure.cli.adopt.preview import DeploymentReference, inspect_controllers
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.cluster import KubeLeases
from tenure.kube.client.client import KubeClient, Response
from tests.support.controller.builders import Json
from tests.support.product.karpenter import deployment

KARPENTER, TENURE = DeploymentReference("kube-system", "karpenter"), DeploymentReference("tenure", "tenure")


class ApiServer:
    """Has these Deployments, by the label of their chart, under other names than the default ones."""

    def __init__(self, deployments: dict[str, list[Json]]) -> None:
        self._deployments = deployments

    async def get(self, path: str) -> None:
        return None

    async def request(self, method: str, path: str, *, params: dict[str, str] | None = None) -> Json:
        label = (params or {}).get("labelSelector", "").removeprefix("app.kubernetes.io/name=")
        return {"gitVersion": "v1.34.0", "items": self._deployments.get(label, []), "metadata": {}}

    async def send(self, method: str, path: str, **_: Any) -> Response:
        return Response(f"{method} {path}", 200, b"{}")


async def test_worker_of_another_release_is_found_with_its_namespace() -> None:
    server = ApiServer({"tenure": [deployment("platform", "nodes-tenure", 2, "image", {})]})
    client = cast(KubeClient, server)
    cluster = cast(KubeAdapters, SimpleNamespace(client=client, leases=KubeLeases(client)))
    found = await inspect_controllers(cluster, ["--cluster-name=demo"], KARPENTER, TENURE)
    assert TENURE.of(found.tenure) == DeploymentReference("platform", "nodes-tenure")
    assert found.settings.system_namespace == "platform"
    assert KARPENTER.of(found.karpenter) == KARPENTER
