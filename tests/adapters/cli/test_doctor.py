"""`tenure doctor` on real components: it checks all of them, and an unreachable one is a finding."""

import pytest

from tenure.cli.admin.doctor import run_checks
from tenure.settings import Settings, load
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


async def test_doctor_checks_all_components(shared_sandbox: SharedSandbox) -> None:
    found = await run_checks(settings_of(shared_sandbox))
    assert {"cluster", "rights", "account", "permissions", "temporal"} <= {one.area for one in found}, found
    (rights,) = [one for one in found if one.area == "rights"]
    assert rights.level == "ok" and "system:serviceaccount:tenure:tenure" in rights.subject
    assert not [one for one in found if one.level == "problem" and one.area in ("cluster", "rights", "account")]
    assert all(one.todo for one in found if one.level != "ok")


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
