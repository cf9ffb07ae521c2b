"""Identities of access keys, and IAM's policy simulator, which decides as the stand-in's authorizer does."""

import json
from typing import Any

import pytest

from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tenure.sandbox.aws.iam.policy import shipped_policies
from tests.support.sandbox.aws.kit import FakeAwsClient, raises_code

CONTROLLER = "arn:aws:iam::123456789012:role/KarpenterControllerRole-demo"
OWNED = {"aws:ResourceTag/kubernetes.io/cluster/demo": "owned", "aws:ResourceTag/karpenter.sh/nodepool": "x"}
INSTANCE = "arn:aws:ec2:us-west-2:123456789012:instance/i-1"


def simulate_decisions(
    kit: FakeAwsClient, arn: str, *actions: str, resource: str = "*", **context: str
) -> dict[str, str]:
    entries = [
        {"ContextKeyName": key, "ContextKeyType": "string", "ContextKeyValues": [value]}
        for key, value in context.items()
    ]
    response = kit.iam.simulate_principal_policy(
        PolicySourceArn=arn, ActionNames=list(actions), ResourceArns=[resource], ContextEntries=entries
    )
    return {one["EvalActionName"]: one["EvalDecision"] for one in response["EvaluationResults"]}


@pytest.fixture
def bound_kit(kit: FakeAwsClient) -> FakeAwsClient:
    policies = shipped_policies(cluster="demo", region="us-west-2", account="123456789012")
    kit.control.bind_key(WORKER_KEY, list(policies.values()))
    return kit


def test_worker_key_is_a_role_session_and_other_keys_are_users(kit: FakeAwsClient) -> None:
    arns = [kit.client("sts", key=key).get_caller_identity()["Arn"] for key in (WORKER_KEY, "somebody")]
    assert arns == [
        "arn:aws:sts::123456789012:assumed-role/KarpenterControllerRole-demo/worker",
        "arn:aws:iam::123456789012:user/somebody",
    ]
    assert kit.iam.get_role(RoleName="KarpenterControllerRole-demo")["Role"]["Arn"] == CONTROLLER


def test_simulation_evaluates_conditions_and_names_missing_context(bound_kit: FakeAwsClient) -> None:
    terminate = "ec2:TerminateInstances"
    assert simulate_decisions(bound_kit, CONTROLLER, terminate, resource=INSTANCE) == {terminate: "implicitDeny"}
    assert simulate_decisions(bound_kit, CONTROLLER, terminate, resource=INSTANCE, **OWNED) == {terminate: "allowed"}
    response = bound_kit.iam.simulate_principal_policy(
        PolicySourceArn=CONTROLLER, ActionNames=[terminate], ResourceArns=[INSTANCE]
    )
    assert set(OWNED) == set(response["EvaluationResults"][0]["MissingContextValues"])


def test_simulation_of_several_actions_names_matched_statements(bound_kit: FakeAwsClient) -> None:
    region = {"aws:RequestedRegion": "us-west-2"}
    assert simulate_decisions(bound_kit, CONTROLLER, "ec2:DescribeImages", "ec2:DescribeVpcs", **region) == {
        "ec2:DescribeImages": "allowed",
        "ec2:DescribeVpcs": "implicitDeny",
    }
    response = bound_kit.iam.simulate_principal_policy(
        PolicySourceArn=CONTROLLER, ActionNames=["pricing:GetProducts"], ResourceArns=["*"]
    )
    (matched,) = response["EvaluationResults"][0]["MatchedStatements"]
    assert matched["SourcePolicyId"] == "AllowPricingReadActions"


def test_simulation_uses_inline_and_attached_policies_of_a_role(kit: FakeAwsClient) -> None:
    arn = kit.iam.create_role(RoleName="mine", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    assert simulate_decisions(kit, arn, "ec2:RunInstances") == {"ec2:RunInstances": "implicitDeny"}
    inline: dict[str, Any] = {"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}
    deny: dict[str, Any] = {"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*"}
    for name, statement in (("a", inline), ("b", deny)):
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        kit.iam.put_role_policy(RoleName="mine", PolicyName=name, PolicyDocument=document)
    assert simulate_decisions(kit, arn, "ec2:RunInstances", "ec2:CreateFleet") == {
        "ec2:RunInstances": "explicitDeny",
        "ec2:CreateFleet": "allowed",
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [{**inline, "Action": "sqs:*"}]})
    managed = kit.iam.create_policy(PolicyName="queue", PolicyDocument=document)["Policy"]["Arn"]
    kit.iam.attach_role_policy(RoleName="mine", PolicyArn=managed)
    assert simulate_decisions(kit, arn, "sqs:ReceiveMessage") == {"sqs:ReceiveMessage": "allowed"}


def test_user_without_policy_is_allowed_and_unknown_role_is_an_error(kit: FakeAwsClient) -> None:
    user = "arn:aws:iam::123456789012:user/somebody"
    assert simulate_decisions(kit, user, "ec2:RunInstances") == {"ec2:RunInstances": "allowed"}
    with raises_code("NoSuchEntity"):
        simulate_decisions(kit, "arn:aws:iam::123456789012:role/nobody", "ec2:RunInstances")


def test_worker_is_denied_to_simulate(bound_kit: FakeAwsClient) -> None:
    with raises_code("AccessDenied"):
        bound_kit.client("iam", key=WORKER_KEY).simulate_principal_policy(
            PolicySourceArn=CONTROLLER, ActionNames=["ec2:RunInstances"]
        )


def test_custom_policy_can_be_simulated(kit: FakeAwsClient) -> None:
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    response = kit.iam.simulate_custom_policy(PolicyInputList=[json.dumps(document)], ActionNames=["s3:GetObject"])
    assert response["EvaluationResults"][0]["EvalDecision"] == "allowed"
