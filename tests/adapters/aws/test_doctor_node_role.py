"""The doctor's checks whether nodes can join: each defect has one finding with the command that corrects it."""

import json
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pytest

from tenure.aws.doctor.node_role import AREA
from tenure.model.errors import Finding
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.test_doctor import admin_client, node_pool, run_doctor
from tests.support.aws.builders import build_nodeclass

ROLE = "KarpenterNodeRole-demo"
ARN = f"arn:aws:iam::123456789012:role/{ROLE}"
POLICY = "arn:aws:iam::aws:policy/"
ALLOWED = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


def detach(iam: Any, *names: str) -> None:
    for name in names:
        iam.detach_role_policy(RoleName=ROLE, PolicyArn=f"{POLICY}{name}")


def trust_lambda(iam: Any) -> None:
    statement = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    iam.update_assume_role_policy(RoleName=ROLE, PolicyDocument=json.dumps(document))


def detach_with_inline_policy(iam: Any) -> None:
    detach(iam, "AmazonEC2ContainerRegistryPullOnly")
    iam.put_role_policy(RoleName=ROLE, PolicyName="own", PolicyDocument=json.dumps(ALLOWED))


def replace_access_entry(eks: Any, kind: str = "") -> None:
    eks.delete_access_entry(clusterName="demo", principalArn=ARN)
    if kind:
        eks.create_access_entry(clusterName="demo", principalArn=ARN, type=kind)


class Defect(NamedTuple):
    service: str
    cause: Callable[[Any], None]
    level: str
    message: str
    todo: str


DEFECTS = {
    "no worker policy": Defect(
        "iam",
        lambda iam: detach(iam, "AmazonEKSWorkerNodePolicy"),
        "problem",
        "none of AWS's policies to join the cluster",
        f"aws iam attach-role-policy --role-name {ROLE} --policy-arn {POLICY}AmazonEKSWorkerNodePolicy",
    ),
    "no registry policy": Defect(
        "iam",
        lambda iam: detach(iam, "AmazonEC2ContainerRegistryPullOnly"),
        "problem",
        "none of AWS's policies to pull images",
        f"aws iam attach-role-policy --role-name {ROLE} --policy-arn {POLICY}AmazonEC2ContainerRegistryPullOnly",
    ),
    "own policies": Defect("iam", detach_with_inline_policy, "advice", "its other policies are not checked", "attach"),
    "trust": Defect("iam", trust_lambda, "problem", "EC2 cannot assume it", "ec2.amazonaws.com"),
    "no access entry": Defect(
        "eks",
        replace_access_entry,
        "problem",
        "no access entry for the nodes' role",
        f"aws eks create-access-entry --cluster-name demo --principal-arn {ARN} --type EC2_LINUX",
    ),
    "access entry of a user": Defect(
        "eks",
        lambda eks: replace_access_entry(eks, "STANDARD"),
        "problem",
        "type STANDARD, which nodes cannot use",
        "aws eks delete-access-entry",
    ),
    "no role for spot": Defect(
        "iam",
        lambda iam: iam.delete_role(RoleName="AWSServiceRoleForEC2Spot"),
        "problem",
        "AWSServiceRoleForEC2Spot does not exist",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
}


async def check_nodes(endpoint: str, *, key: str = "admin", aws_auth: Collection[str] | None = ()) -> list[Finding]:
    found = await run_doctor(endpoint, build_nodeclass(role=ROLE), key=key, pools=[node_pool()], aws_auth=aws_auth)
    return [one for one in found if one.area == AREA]


async def test_initial_state_has_no_defect(endpoint: str, control: AwsControl) -> None:
    found = await check_nodes(endpoint)
    assert [one.level for one in found] == ["ok"] * 3, found


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=list(DEFECTS))
async def test_defect_is_named_alone_with_its_remedy(defect: Defect, endpoint: str, control: AwsControl) -> None:
    defect.cause(admin_client(endpoint, defect.service))
    [found] = [one for one in await check_nodes(endpoint) if one.level != "ok"]
    assert found.level == defect.level and defect.message in found.message and defect.todo in found.todo


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
