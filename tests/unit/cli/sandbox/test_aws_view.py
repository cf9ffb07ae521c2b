"""The demo counts only calls of the worker, and a template whose deletion failed still counts."""

from collections.abc import Iterator

import pytest

from tenure.cli.sandbox.probes import AwsProbe, Instances, calls_since
from tenure.sandbox.aws.admin.client import AwsControl

CALLS = {
    "ec2:CreateLaunchTemplate": {"count": 3, "errors": 1, "codes": {"RequestLimitExceeded": 1}},
    "ec2:DeleteLaunchTemplate": {"count": 2, "errors": 1, "codes": {"RequestLimitExceeded": 1}},
}


class Control(AwsControl):
    """Responds without a fake AWS server."""

    def get_counters(self, access_key: str | None = None) -> dict[str, dict[str, object]]:
        return CALLS if access_key == "worker" else {}

    def list_denials(self) -> list[dict[str, str]]:
        keys = ("worker", "other", "worker")
        return [{"access_key": key, "action": "ec2:RunInstances", "resource": "*"} for key in keys]

    def list_instances(self, *, after: int | None = None, wait: float = 0.0) -> dict[str, int]:
        return {"launched": 5, "terminated": 4}


@pytest.fixture
def view() -> Iterator[AwsProbe]:
    yield AwsProbe(Control("http://nowhere"), "worker")


async def test_calls_and_resources_of_worker_are_counted(view: AwsProbe) -> None:
    assert await view.count_calls() == {"ec2:CreateLaunchTemplate": 3, "ec2:DeleteLaunchTemplate": 2}
    assert await view.launch_templates() == 1
    assert await view.list_denied_actions() == ["ec2:RunInstances"]
    assert await view.count_instances() == Instances(launched=5, terminated=4)


def test_step_counts_only_its_own_calls() -> None:
    assert calls_since(
        {"ec2:CreateFleet": 1, "ec2:DescribeInstances": 4},
        {"ec2:CreateFleet": 3, "ec2:DescribeInstances": 4, "ssm:GetParameter": 1},
    ) == {
        "ec2:CreateFleet": 2,
        "ssm:GetParameter": 1,
    }
