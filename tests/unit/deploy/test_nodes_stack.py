"""The CloudFormation stack of the nodes: a role that joins the cluster, and its access entry."""

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.resources import HERE
from tenure.aws.doctor.node_role import NODE_TYPES, POLICIES
from tests.unit.deploy.stacks import CLUSTER, client, create_stack, mocked_aws, read_template

FOLDER = HERE / "cloudformation"
FILE = FOLDER / "nodes.yaml"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with mocked_aws(monkeypatch):
        yield


def test_ec2_may_assume_the_role() -> None:
    outputs = create_stack(FILE, AccessEntry="none")
    assert outputs["RoleName"] == f"KarpenterNodeRole-{CLUSTER}"
    role = client("iam").get_role(RoleName=outputs["RoleName"])["Role"]
    [statement] = role["AssumeRolePolicyDocument"]["Statement"]
    assert (statement["Principal"], statement["Action"]) == ({"Service": "ec2.amazonaws.com"}, "sts:AssumeRole")
    assert role["Arn"] == outputs["RoleArn"]


def test_role_has_policies_of_a_node() -> None:
    """moto does not attach policies of a stack, so this reads the template."""
    arns = read_template(FILE)["Resources"]["NodeRole"]["Properties"]["ManagedPolicyArns"]
    required = [one["Fn::Sub"].rpartition("/")[2] for one in arns if "Fn::Sub" in one]
    optional = {one["Fn::If"][0]: one["Fn::If"][1]["Fn::Sub"].rpartition("/")[2] for one in arns if "Fn::If" in one}
    assert [purpose for purpose, accepted in POLICIES.items() if not {*accepted} & {*required}] == []
    assert optional == {"HasCniPolicy": "AmazonEKS_CNI_Policy", "HasSessionManager": "AmazonSSMManagedInstanceCore"}


def test_access_entry_is_of_a_node_type() -> None:
    template = read_template(FILE)
    parameter = template["Parameters"]["AccessEntry"]
    assert set(parameter["AllowedValues"]) - {"none"} <= set(NODE_TYPES) and parameter["Default"] in NODE_TYPES
    entry: dict[str, Any] = template["Resources"]["NodeAccessEntry"]
    assert entry["Properties"]["PrincipalArn"] == {"Fn::GetAtt": ["NodeRole", "Arn"]}
    assert entry["Condition"] == "HasAccessEntry"
