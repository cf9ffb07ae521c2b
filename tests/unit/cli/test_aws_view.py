"""The demo counts the worker's calls alone, and a template that was deleted in vain is still there."""

from collections.abc import Iterator

import pytest

from tenure.cli.sandbox.probes import AwsView, Instances, since
from tenure.sandbox.aws.admin.client import AwsControl

CALLS = {
    "ec2:CreateLaunchTemplate": {"count": 3, "errors": 1, "codes": {"RequestLimitExceeded": 1}},
    "ec2:DeleteLaunchTemplate": {"count": 2, "errors": 1, "codes": {"RequestLimitExceeded": 1}},
}


class Control(AwsControl):
    """Answers without a stand-in."""

    def counters(self, access_key: str | None = None) -> dict[str, dict[str, object]]:
        return CALLS if access_key == "worker" else {}

    def denials(self) -> list[dict[str, str]]:
        keys = ("worker", "other", "worker")
        return [{"access_key": key, "action": "ec2:RunInstances", "resource": "*"} for key in keys]

    def instances(self, *, after: int | None = None, wait: float = 0.0) -> dict[str, int]:
        return {"launched": 5, "terminated": 4}


@pytest.fixture
def view() -> Iterator[AwsView]:
    yield AwsView(Control("http://nowhere"), "worker")


async def test_what_the_worker_asked_and_made_is_counted(view: AwsView) -> None:
    assert await view.calls() == {"ec2:CreateLaunchTemplate": 3, "ec2:DeleteLaunchTemplate": 2}
    assert await view.launch_templates() == 1
    assert await view.denied() == ["ec2:RunInstances"]
    assert await view.instances() == Instances(launched=5, terminated=4)


def test_a_step_counts_only_its_own_calls() -> None:
    assert since(
        {"ec2:CreateFleet": 1, "ec2:DescribeInstances": 4},
        {"ec2:CreateFleet": 3, "ec2:DescribeInstances": 4, "ssm:GetParameter": 1},
    ) == {
        "ec2:CreateFleet": 2,
        "ssm:GetParameter": 1,
    }
