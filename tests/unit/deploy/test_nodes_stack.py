"""The CloudFormation stack of the nodes: a role that joins the cluster, and its access entry."""

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.commands import associate_role
from deploy.resources import HERE
from tenure.aws.doctor.node_role import NODE_TYPES, POLICIES
from tests.support.aws.commands import find_mistake
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


def test_cluster_with_a_node_role_gets_the_association_alone() -> None:
    """As with Karpenter. moto has no associations, so this reads the template."""
    template = read_template(FILE)
    conditions = {name: one.get("Condition") for name, one in template["Resources"].items()}
    assert conditions == {
        "NodeRole": "HasNodeRole",
        "NodeAccessEntry": "HasAccessEntry",
        "WorkerIdentity": "HasPodIdentity",
    }
    assert template["Conditions"]["HasAccessEntry"]["Fn::And"][0] == {"Fn::Condition": "HasNodeRole"}
    assert {one["Condition"] for one in template["Outputs"].values()} == {"HasNodeRole"}


def test_command_of_a_remedy_has_the_fields_of_the_association() -> None:
    template = read_template(FILE)
    command = associate_role("prod", region="eu-west-1")
    for option, parameter in (("namespace", "Namespace"), ("service-account", "ServiceAccount")):
        assert f"--{option} {template['Parameters'][parameter]['Default']} " in command
    assert find_mistake(command) == ""


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
