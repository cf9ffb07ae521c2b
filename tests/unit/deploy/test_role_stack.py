"""The CloudFormation stack of the worker's role: the policies of deploy/iam, and trust of one service account."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from moto.iam.models import ManagedPolicy

from deploy.resources import IAM_FILES, render
from tests.unit.deploy.stacks import ACCOUNT, CLUSTER, REGION, client, create_stack, mocked_aws
from tools.cloudformation_role import FILE, OPTIONAL, build_template

PROVIDER = "oidc.eks.eu-west-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
PSEUDO = {"AWS::Partition", "AWS::Region", "AWS::AccountId"}
ALL = {name: "true" for name, _, _ in OPTIONAL.values()}
POLICIES_OF_A_ROLE, MANAGED_POLICY, TRUST_POLICY = 10, 6144, 2048
"""Limits of IAM, in characters without white space."""
LONGEST = {"ClusterName": "c" * 100, "NodeRoleName": "n" * 128, "InterruptionQueueName": "q" * 80}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ManagedPolicy, "create_from_cloudformation_json", classmethod(create_policy))
    with mocked_aws(monkeypatch):
        yield


ORIGINAL_CREATE = ManagedPolicy.create_from_cloudformation_json.__func__


def create_policy(kind: Any, name: str, resource: dict[str, Any], *where: Any, **more: Any) -> Any:
    """Parse a policy document that is text, as CloudFormation does; moto would quote it again."""
    properties = {**resource["Properties"], "PolicyDocument": parse_document(resource["Properties"]["PolicyDocument"])}
    return ORIGINAL_CREATE(kind, name, {**resource, "Properties": properties}, *where, **more)


def stack(**parameters: str) -> dict[str, str]:
    return create_stack(FILE, **parameters)


def parse_document(text_or_document: Any) -> Any:
    return json.loads(text_or_document) if isinstance(text_or_document, str) else text_or_document


def granted(**parameters: str) -> list[dict[str, Any]]:
    """Policies of the role of a stack with these parameters."""
    iam, role = client("iam"), stack(**parameters)["RoleName"]
    arns = [one["PolicyArn"] for one in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]]
    versions = [(arn, iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]) for arn in arns]
    return [
        parse_document(iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"])
        for arn, version in versions
    ]


def trust(**parameters: str) -> dict[str, Any]:
    """Statements of the trust policy by Sid."""
    role = stack(**parameters)["RoleName"]
    policy = parse_document(client("iam").get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"])
    return {one["Sid"]: one for one in policy["Statement"]}


def shipped(*, without: str = "", names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    values = {
        "AWS::Partition": "aws",
        "AWS::Region": REGION,
        "AWS::AccountId": ACCOUNT,
        "ClusterName": CLUSTER,
        "NodeRoleName": f"KarpenterNodeRole-{CLUSTER}",
        "InterruptionQueueName": CLUSTER,
        **(names or {}),
    }
    return [render(file.read_text(), values) for file in IAM_FILES if file.stem not in without.split()]


def sids(policies: list[dict[str, Any]]) -> list[str]:
    return sorted(one["Sid"] for policy in policies for one in policy["Statement"])


def in_order(policies: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in policies)


def texts(value: Any) -> Iterator[str]:
    """All texts in Fn::Sub."""
    if isinstance(value, dict):
        for key, one in value.items():
            found = one[0] if key == "Fn::Sub" and isinstance(one, list) else one
            yield from [str(found)] if key == "Fn::Sub" else ()
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def length(policy: dict[str, Any]) -> int:
    return len(re.sub(r"\s", "", json.dumps(policy)))


def test_role_has_exactly_the_shipped_policies() -> None:
    assert in_order(granted(**ALL)) == in_order(shipped())


def test_lifecycle_policy_permissions_are_optional() -> None:
    assert sids(granted()) == sids(shipped(without="node-repair stop-start"))


@pytest.mark.parametrize("stem", OPTIONAL)
def test_each_optional_policy_can_be_excluded(stem: str) -> None:
    found = granted(**{**ALL, OPTIONAL[stem][0]: "false"})
    assert in_order(found) == in_order(shipped(without=stem))


def test_node_role_and_queue_names_are_parameters() -> None:
    names = {"NodeRoleName": "nodes/of-shop", "InterruptionQueueName": "events-of-shop"}
    assert in_order(granted(**ALL, **names)) == in_order(shipped(names=names))


def test_pod_identity_trusts_one_service_account() -> None:
    found = trust()
    assert set(found) == {"AllowPodIdentity"}
    [statement] = found.values()
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}",
        "aws:RequestTag/kubernetes-namespace": "tenure",
        "aws:RequestTag/kubernetes-service-account": "tenure",
    }


def test_oidc_provider_enables_irsa() -> None:
    found = trust(OidcProvider=PROVIDER, Namespace="autoscaling", ServiceAccount="worker")
    assert set(found) == {"AllowPodIdentity", "AllowServiceAccount"}
    statement = found["AllowServiceAccount"]
    assert statement["Principal"] == {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{PROVIDER}"}
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert statement["Condition"]["StringEquals"] == {
        f"{PROVIDER}:aud": "sts.amazonaws.com",
        f"{PROVIDER}:sub": "system:serviceaccount:autoscaling:worker",
    }


def test_every_placeholder_is_a_parameter_or_pseudo_parameter() -> None:
    found = {name for one in texts(build_template()) for name in re.findall(r"\$\{([^}]*)\}", one)}
    assert found <= set(build_template()["Parameters"]) | PSEUDO
    assert {"ClusterName", "NodeRoleName", "InterruptionQueueName", "OidcProvider"} | PSEUDO <= found


def test_policies_stay_within_iam_limits_with_longest_names() -> None:
    policies = shipped(names={**LONGEST, "AWS::Region": "ap-southeast-2", "AWS::Partition": "aws-us-gov"})
    assert [one for one in policies if length(one) > MANAGED_POLICY] == []
    assert len(policies) <= POLICIES_OF_A_ROLE
    names = {"Namespace": "n" * 63, "ServiceAccount": "s" * 253, "OidcProvider": PROVIDER.replace("ABC", "ABC" * 9)}
    statements = trust(ClusterName="c" * 100, **names)
    assert length({"Version": "2012-10-17", "Statement": [*statements.values()]}) <= TRUST_POLICY


def test_template_is_short_enough_for_inline_use() -> None:
    assert len(FILE.read_bytes()) <= 51_200
