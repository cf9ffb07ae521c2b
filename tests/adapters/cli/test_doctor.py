"""`tenure doctor` on real components: it checks all of them, and an unreachable one is a finding."""

import copy
from collections.abc import AsyncIterator

import pytest
import yaml

from deploy.resources import crd_files
from tenure.cli.admin.doctor import run_checks
from tenure.kube.client.client import KubeClient, connect
from tenure.kube.doctor import check_schemas, read_aws_auth
from tenure.settings import Settings, load
from tests.support.cli.remedies import find_faulty_remedies
from tests.support.product.shared_sandbox import SharedSandbox


def settings_of(shared_sandbox: SharedSandbox, **more: str) -> Settings:
    values = {
        "cluster-name": shared_sandbox.plan.cluster_name,
        "kubeconfig": str(shared_sandbox.kubeconfig),
        "aws-endpoint-url": shared_sandbox.aws_endpoint,
        "temporal-address": shared_sandbox.temporal_address,
        **more,
    }
    return load([part for key, value in values.items() for part in (f"--{key}", value)])


@pytest.fixture(autouse=True)
def credentials(shared_sandbox: SharedSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shared_sandbox.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)


@pytest.fixture
async def kube(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeClient]:
    client = await connect(str(shared_sandbox.kubeconfig))
    yield client
    await client.close()


async def test_doctor_checks_all_components(shared_sandbox: SharedSandbox) -> None:
    found = await run_checks(settings_of(shared_sandbox))
    assert {"cluster", "rights", "account", "permissions", "temporal"} <= {one.area for one in found}, found
    (rights,) = [one for one in found if one.area == "rights"]
    assert rights.level == "ok" and "system:serviceaccount:tenure:tenure" in rights.subject
    assert not [one for one in found if one.level == "problem" and one.area in ("cluster", "rights", "account")]
    assert all(one.todo for one in found if one.level != "ok") and find_faulty_remedies(found) == []


@pytest.mark.parametrize(
    ("setting", "expected", "file"),
    [
        ("nominate-pods=true", "may not patch pods/status", "nominate-pods.yaml"),
        ("surge-single-replicas=true", "may not patch deployments", "surge-single-replicas.yaml"),
        (
            "feature-gates=PodDeletionCostManagement=true",
            "may not patch pods",
            "PodDeletionCostManagement.yaml",
        ),
    ],
)
async def test_setting_without_its_optional_right_is_a_problem(
    shared_sandbox: SharedSandbox, setting: str, expected: str, file: str
) -> None:
    name, _, value = setting.partition("=")
    found = await run_checks(settings_of(shared_sandbox, **{name: value}))
    (missing,) = [one for one in found if one.area == "rights"]
    assert missing.level == "problem" and expected in missing.message
    assert missing.todo == f"kubectl apply -f deploy/rbac -f deploy/rbac/optional/{file}"


async def test_each_unreachable_component_is_a_problem(shared_sandbox: SharedSandbox) -> None:
    dead = "127.0.0.1:1"
    found = await run_checks(
        settings_of(
            shared_sandbox, **{"temporal-address": dead, "aws-endpoint-url": f"http://{dead}", "kubeconfig": "/no/such"}
        )
    )
    assert {one.area for one in found if one.level == "problem"} == {"cluster", "account", "temporal"}
    assert find_faulty_remedies(found) == []


async def test_crd_of_another_version_is_a_problem(kube: KubeClient) -> None:
    documents = {one["metadata"]["name"]: one for one in (yaml.safe_load(file.read_text()) for file in crd_files())}
    assert await check_schemas(kube, documents) == []
    changed = copy.deepcopy(documents)
    name = "nodepools.karpenter.sh"
    del changed[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["weight"]
    [found] = await check_schemas(kube, changed)
    assert (found.subject, found.level) == (name, "problem") and "tenure crds --apply" in found.todo


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("- {rolearn: arn-a, groups: [system:nodes]}\n- {rolearn: arn-b, groups: [ops]}", frozenset({"arn-a"})),
        ("", frozenset()),
        ("- just text", None),
        ("{", None),
    ],
)
async def test_aws_auth_lists_roles_of_nodes(roles: str, expected: frozenset[str] | None, kube: KubeClient) -> None:
    metadata = {"name": "aws-auth", "namespace": "kube-system"}
    path = "/api/v1/namespaces/kube-system/configmaps"
    await kube.request("POST", path, body={"metadata": metadata, "data": {"mapRoles": roles}})
    try:
        assert await read_aws_auth(kube) == expected
    finally:
        await kube.request("DELETE", f"{path}/aws-auth")
    assert await read_aws_auth(kube) == frozenset()
