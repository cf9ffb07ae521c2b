"""Tables for the policy evaluator, from the IAM reference."""

from typing import Any

import pytest

from tenure.sandbox.aws.iam.conditions import condition_holds
from tenure.sandbox.aws.iam.policy import decide, read_policy


def allow(action: Any = "*", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def authorize(statements: list[dict[str, Any]], action: str, resource: str = "*", **context: list[str]) -> str:
    policy = read_policy({"Version": "2012-10-17", "Statement": statements})
    return decide(policy, action, resource, context)


@pytest.mark.parametrize(
    ("pattern", "action", "expected"),
    [
        ("ec2:RunInstances", "ec2:RunInstances", "allow"),
        ("EC2:runinstances", "ec2:RunInstances", "allow"),
        ("ec2:Describe*", "ec2:DescribeInstances", "allow"),
        ("ec2:Describe*", "ec2:TerminateInstances", "implicit-deny"),
        ("ec2:Describe?mages", "ec2:DescribeImages", "allow"),
        ("*", "iam:PassRole", "allow"),
        (["iam:PassRole", "ec2:*"], "ec2:CreateFleet", "allow"),
    ],
)
def test_actions_match_patterns(pattern: Any, action: str, expected: str) -> None:
    assert authorize([allow(pattern)], action) == expected


@pytest.mark.parametrize(
    ("pattern", "resource", "expected"),
    [
        ("arn:aws:ec2:us-west-2::image/*", "arn:aws:ec2:us-west-2::image/ami-1", "allow"),
        ("arn:aws:ec2:us-west-2:*:subnet/*", "arn:aws:ec2:us-west-2:123456789012:subnet/subnet-1", "allow"),
        ("arn:aws:ec2:us-east-1:*:subnet/*", "arn:aws:ec2:us-west-2:123456789012:subnet/subnet-1", "implicit-deny"),
        ("arn:aws:ec2:us-west-2::image/*", "arn:aws:ec2:us-west-2:123456789012:image/ami-1", "implicit-deny"),
        ("arn:aws:sqs:*:*:demo", "arn:aws:sqs:us-west-2:123456789012:Demo", "implicit-deny"),
    ],
)
def test_resources_match_patterns(pattern: str, resource: str, expected: str) -> None:
    assert authorize([allow("*", pattern)], "ec2:RunInstances", resource) == expected


def test_deny_takes_precedence_over_allow() -> None:
    deny = {"Effect": "Deny", "Action": "ec2:TerminateInstances", "Resource": "*"}
    assert authorize([allow(), deny], "ec2:TerminateInstances") == "deny"
    assert authorize([allow(), deny], "ec2:RunInstances") == "allow"


def test_not_action_and_not_resource() -> None:
    statement = {"Effect": "Allow", "NotAction": "iam:*", "NotResource": "arn:aws:s3:::*"}
    assert authorize([statement], "ec2:RunInstances", "arn:aws:ec2:a:b:c/d") == "allow"
    assert authorize([statement], "iam:PassRole", "arn:aws:iam::1:role/x") == "implicit-deny"
    assert authorize([statement], "s3:GetObject", "arn:aws:s3:::bucket") == "implicit-deny"


def test_all_conditions_of_a_statement_must_match() -> None:
    condition = {"StringEquals": {"a": "1"}, "StringLike": {"b": ["x*", "y*"]}}
    assert authorize([allow(Condition=condition)], "s:A", a=["1"], b=["yes"]) == "allow"
    assert authorize([allow(Condition=condition)], "s:A", a=["1"], b=["no"]) == "implicit-deny"
    assert authorize([allow(Condition=condition)], "s:A", b=["yes"]) == "implicit-deny"


TAG = "aws:RequestTag/karpenter.sh/nodepool"
KEY = TAG.lower()
CASES: list[tuple[str, str, list[str], dict[str, list[str]], bool]] = [
    ("StringEquals", TAG, ["default"], {KEY: ["default"]}, True),
    ("StringEquals", TAG, ["default"], {KEY: ["Default"]}, False),
    ("StringEquals", TAG, ["default"], {}, False),
    ("StringEquals", TAG, ["a", "b"], {KEY: ["b"]}, True),
    ("StringEqualsIfExists", TAG, ["default"], {}, True),
    ("StringEqualsIfExists", TAG, ["default"], {KEY: ["other"]}, False),
    ("StringEqualsIgnoreCase", TAG, ["DEFAULT"], {KEY: ["default"]}, True),
    ("StringNotEquals", TAG, ["default"], {KEY: ["default"]}, False),
    ("StringNotEquals", TAG, ["default"], {}, True),
    ("StringNotEquals", TAG, ["a", "b"], {KEY: ["c"]}, True),
    ("StringLike", TAG, ["*"], {KEY: ["anything"]}, True),
    ("StringLike", TAG, ["*"], {}, False),
    ("StringLike", TAG, ["d?fault"], {KEY: ["default"]}, True),
    ("StringNotLike", TAG, ["d*"], {KEY: ["default"]}, False),
    ("ForAllValues:StringEquals", "aws:TagKeys", ["a", "b"], {"aws:tagkeys": ["a"]}, True),
    ("ForAllValues:StringEquals", "aws:TagKeys", ["a", "b"], {"aws:tagkeys": ["a", "c"]}, False),
    ("ForAllValues:StringEquals", "aws:TagKeys", ["a", "b"], {}, True),
    ("ForAnyValue:StringEquals", "aws:TagKeys", ["a", "b"], {"aws:tagkeys": ["a", "c"]}, True),
    ("ForAnyValue:StringEquals", "aws:TagKeys", ["a", "b"], {"aws:tagkeys": ["c"]}, False),
    ("ForAnyValue:StringEquals", "aws:TagKeys", ["a", "b"], {}, False),
    ("ForAllValues:StringNotEquals", "aws:TagKeys", ["a"], {"aws:tagkeys": ["b", "a"]}, False),
    ("ArnEquals", "k", ["arn:aws:iam::*:role/x*"], {"k": ["arn:aws:iam::1:role/xy"]}, True),
    ("ArnEquals", "k", ["arn:aws:*"], {"k": ["arn:aws:iam::1:role/xy"]}, False),
    ("ArnLike", "k", ["arn:aws:iam:*:1:role/xy"], {"k": ["arn:aws:iam::1:role/xy"]}, True),
    ("ArnNotEquals", "k", ["arn:aws:iam::1:role/xy"], {"k": ["arn:aws:iam::1:role/xy"]}, False),
    ("Bool", "k", ["true"], {"k": ["True"]}, True),
    ("Bool", "k", ["true"], {}, False),
    ("Null", "k", ["true"], {}, True),
    ("Null", "k", ["true"], {"k": ["v"]}, False),
    ("Null", "k", ["false"], {"k": ["v"]}, True),
    ("NumericLessThan", "k", ["5"], {"k": ["4"]}, True),
    ("NumericGreaterThanEquals", "k", ["5"], {"k": ["4"]}, False),
]


@pytest.mark.parametrize(("operator", "key", "values", "context", "expected"), CASES)
def test_conditions_match_context(
    operator: str, key: str, values: list[str], context: dict[str, list[str]], expected: bool
) -> None:
    assert condition_holds(operator, key, values, context) is expected


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"Version": "2008-10-17", "Statement": [allow()]}, "2012-10-17"),
        ({"Version": "2012-10-17", "Statement": []}, "Statement"),
        ({"Version": "2012-10-17", "Statement": [allow(Effect="Maybe")]}, "Effect"),
        ({"Version": "2012-10-17", "Statement": [allow(NotAction="x")]}, "NotAction"),
        ({"Version": "2012-10-17", "Statement": [allow(Colour="blue")]}, "Colour"),
        ({"Version": "2012-10-17", "Statement": [allow(resource="arn:${AWS::Partition}:x")]}, "placeholders"),
        ({"Version": "2012-10-17", "Statement": [allow(Condition={"StringIsh": {"a": "b"}})]}, "StringIsh"),
    ],
)
def test_invalid_policy_is_rejected(document: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_policy(document)


def test_statement_may_be_an_object() -> None:
    policy = read_policy({"Version": "2012-10-17", "Statement": allow("ec2:*")})
    assert decide(policy, "ec2:CreateFleet", "*", {}) == "allow"
