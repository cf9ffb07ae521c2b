"""`tenure doctor` checks the installed kinds by the HTTP code of a list request."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient, Response
from tenure.kube.doctor import check_chart, check_kinds, check_objects, check_version
from tenure.model.errors import Finding
from tests.support.cli.remedies import find_faulty_remedies


class Api:
    """Answers every request with one HTTP code."""

    def __init__(self, code: int) -> None:
        self.code = code

    async def send(self, method: str, path: str, *, params: dict[str, str]) -> Response:
        return Response(f"{method} {path}", self.code, b"{}")


class Server:
    """Answers /version."""

    def __init__(self, version: str) -> None:
        self.version = version

    async def request(self, method: str, path: str) -> dict[str, Any]:
        return {"gitVersion": self.version}


@pytest.mark.parametrize(
    ("code", "level", "message"),
    [
        (200, "ok", "served as v1"),
        (404, "problem", "the kind is not installed"),
        (403, "unknown", "cannot be listed (HTTP 403)"),
        (500, "unknown", "cannot be listed (HTTP 500)"),
    ],
)
async def test_kind_is_reported_as_not_installed_only_after_404(code: int, level: str, message: str) -> None:
    found = await check_kinds(cast(KubeClient, Api(code)))
    assert {one.level for one in found} == {level}
    assert all(one.message.startswith(message) for one in found)
    assert [one.subject for one in found] == [
        "nodepools.karpenter.sh",
        "nodeclaims.karpenter.sh",
        "ec2nodeclasses.karpenter.k8s.aws",
        "lifecyclepolicies.tenure.sh",
    ]


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("v1.28.9-eks-1", "advice"),
        ("v1.29.0", "ok"),
        ("v1.34.4", "ok"),
        ("v1.37.2-eks-3", "ok"),
        ("v1.38.0", "advice"),
        ("v2.0.0", "advice"),
        ("", "ok"),
    ],
)
async def test_unsupported_kubernetes_version_is_advised(version: str, level: str) -> None:
    (found,) = await check_version(cast(KubeClient, Server(version)), "demo", "eu-west-1")
    assert found.level == level
    assert found.message.startswith(version)


async def test_old_cluster_is_upgraded_and_new_cluster_needs_another_tenure() -> None:
    (old,) = await check_version(cast(KubeClient, Server("v1.28.9-eks-1")), "demo", "eu-west-1")
    assert old.todo.startswith(
        "aws eks update-cluster-version --name demo --region eu-west-1 --kubernetes-version 1.29"
    )
    (new,) = await check_version(cast(KubeClient, Server("v1.38.0")), "demo", "eu-west-1")
    assert "from the sources of a version of Tenure that supports it" in new.todo
    assert find_faulty_remedies([old, new]) == []


def nodepool(node_class: str, *, group: str = "karpenter.k8s.aws", kind: str = "EC2NodeClass") -> NodePool:
    reference = {"group": group, "kind": kind, "name": node_class}
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}}
    return NodePool.from_object({"metadata": {"name": "general", "uid": "u"}, "spec": spec})


def nodeclass(name: str = "default", **status: Any) -> EC2NodeClass:
    return EC2NodeClass.from_object({"metadata": {"name": name, "uid": "u"}, "spec": {}, "status": status})


async def check(*, pools: list[NodePool], classes: list[EC2NodeClass], holder: str = "") -> list[Finding]:
    """The findings to act on."""

    async def find_holder(namespace: str, name: str, *, now: datetime) -> str:
        return holder

    async def list_pools() -> list[NodePool]:
        return pools

    async def list_classes() -> list[EC2NodeClass]:
        return classes

    cluster = SimpleNamespace(
        pools=SimpleNamespace(list=list_pools),
        node_classes=SimpleNamespace(list=list_classes),
        leases=SimpleNamespace(find_holder=find_holder),
    )
    lease, now = "karpenter-leader-election", datetime.now(UTC)
    found, _, _ = await check_objects(cast(KubeAdapters, cluster), lease, now, cluster_name="prod")
    return [one for one in found if one.level != "ok"]


NOT_READY = [
    {"type": "SubnetsReady", "status": "False", "reason": "SubnetsNotFound", "message": "none matches"},
    {"type": "Ready", "status": "False", "reason": "UnhealthyDependents"},
]


@pytest.mark.parametrize(
    ("classes", "command"),
    [
        ([], "kubectl edit nodepool general"),
        ([nodeclass(conditions=NOT_READY)], "kubectl edit ec2nodeclass default"),
        ([nodeclass()], "kubectl -n tenure scale deploy/tenure"),
    ],
)
async def test_object_that_is_not_ready_has_a_command(classes: list[EC2NodeClass], command: str) -> None:
    found = await check(pools=[nodepool("default")], classes=classes)
    assert found and find_faulty_remedies(found) == []
    assert any(command in one.todo for one in found)


async def test_missing_nodepool_and_active_karpenter_have_commands() -> None:
    missing, karpenter = await check(pools=[], classes=[], holder="karpenter-7d9")
    assert missing.todo == (
        'sed "s/demo/prod/" examples/ec2nodeclass.yaml | kubectl apply -f - -f examples/nodepool.yaml'
    )
    assert "`tenure adopt`" in karpenter.todo
    assert find_faulty_remedies([missing, karpenter]) == []


@pytest.mark.parametrize("classes", [[], [nodeclass(conditions=[{"type": "Ready", "status": "True"}])]])
async def test_nodepool_of_another_provider_is_ignored(classes: list[EC2NodeClass]) -> None:
    auto_mode = nodepool("default", group="eks.amazonaws.com", kind="NodeClass")
    assert await check(pools=[auto_mode], classes=classes) == await check(pools=[], classes=classes)


async def test_missing_nodepool_selects_an_existing_nodeclass() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    (missing,) = await check(pools=[], classes=[nodeclass(conditions=ready)])
    assert missing.todo == "kubectl apply -f examples/nodepool.yaml"
    (missing,) = await check(pools=[], classes=[nodeclass("gpu", conditions=ready)])
    assert missing.todo.endswith("examples/nodepool.yaml, with spec.template.spec.nodeClassRef.name gpu")


class Deployments:
    """Lists one Deployment of the chart."""

    def __init__(self, chart: str, image: str) -> None:
        labels = {"app.kubernetes.io/version": chart}
        pod = {"containers": [{"name": "worker", "image": image}]}
        self.item = {
            "metadata": {"name": "nodes", "namespace": "system", "labels": labels},
            "spec": {"template": {"spec": pod}},
        }

    async def send(self, method: str, path: str, *, params: dict[str, str]) -> Response:
        assert (path, params) == (
            "/apis/apps/v1/deployments",
            {"labelSelector": "app.kubernetes.io/name=tenure"},
        )
        return Response(f"{method} {path}", 200, json.dumps({"items": [self.item]}).encode())


@pytest.mark.parametrize(
    ("chart", "image", "level"),
    [
        ("0.2.0", "registry.example:5000/tenure:0.2.0", "ok"),
        ("0.2.0", "registry.example/tenure:nightly", "ok"),
        ("0.2.0", "registry.example:5000/tenure@sha256:00", "ok"),
        ("0.1.0", "registry.example/tenure:0.2.0", "advice"),
        ("0.2.0", "registry.example/tenure:0.3.0", "advice"),
    ],
)
async def test_chart_and_image_have_the_version_of_the_doctor(chart: str, image: str, level: str) -> None:
    (found,) = await check_chart(cast(KubeClient, Deployments(chart, image)), "0.2.0")
    assert found.level == level
    expected = (
        "helm upgrade nodes deploy/charts/tenure -n system --reset-then-reuse-values" if level == "advice" else ""
    )
    assert found.todo.startswith(expected)
