"""The doctor's checks whether nodes can join: access by aws-auth, denied reads, calls."""

from collections.abc import Collection
from typing import Any

import pytest

from tenure.aws.doctor.node_role import AREA
from tenure.model.errors import Finding
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.test_doctor import admin_client, node_pool, run_doctor
from tests.support.aws.builders import build_nodeclass

ROLE = "KarpenterNodeRole-demo"
ARN = f"arn:aws:iam::123456789012:role/{ROLE}"


def replace_access_entry(eks: Any, kind: str = "") -> None:
    eks.delete_access_entry(clusterName="demo", principalArn=ARN)
    if kind:
        eks.create_access_entry(clusterName="demo", principalArn=ARN, type=kind)


async def check_nodes(endpoint: str, *, key: str = "admin", aws_auth: Collection[str] | None = ()) -> list[Finding]:
    found = await run_doctor(endpoint, build_nodeclass(role=ROLE), key=key, pools=[node_pool()], aws_auth=aws_auth)
    return [one for one in found if one.area == AREA]


async def test_initial_state_has_no_defect(endpoint: str, control: AwsControl) -> None:
    found = await check_nodes(endpoint)
    assert [one.level for one in found] == ["ok"] * 3, found


@pytest.mark.parametrize(("aws_auth", "level"), [((ARN,), "ok"), ((), "problem"), (None, "unknown")])
async def test_config_map_replaces_the_access_entry(
    aws_auth: Collection[str] | None, level: str, endpoint: str, control: AwsControl
) -> None:
    replace_access_entry(admin_client(endpoint, "eks"))
    found = await check_nodes(endpoint, aws_auth=aws_auth)
    assert [one.level for one in found if "access of" in one.subject] == [level]


async def test_denied_read_is_unknown(endpoint: str, control: AwsControl) -> None:
    statements = [
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Deny", "Action": ["iam:GetRole", "eks:DescribeAccessEntry"], "Resource": "*"},
    ]
    control.bind_key("narrow", {"Version": "2012-10-17", "Statement": statements})
    found = await check_nodes(endpoint, key="narrow")
    assert [one.level for one in found] == ["unknown"] * 2, found
    assert all("run the doctor once with iam:GetRole" in one.todo for one in found)


async def test_role_and_profile_are_read_once(endpoint: str, control: AwsControl) -> None:
    iam = admin_client(endpoint, "iam")
    iam.create_instance_profile(InstanceProfileName="own")
    iam.add_role_to_instance_profile(InstanceProfileName="own", RoleName=ROLE)
    classes = [build_nodeclass(role=ROLE), build_nodeclass(role="", instanceProfile="own")]
    control.clear_counters()
    await run_doctor(endpoint, *classes)
    assert (control.count_calls("iam:GetRole"), control.count_calls("iam:GetInstanceProfile")) == (1, 1)
