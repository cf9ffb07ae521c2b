"""The doctor simulates the statements of used policies only, and its remedies add those that a stack omits."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy.commands import deploy_stack
from deploy.resources import policy_statements
from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import DRY_RUN
from tenure.aws.doctor.account import Caller
from tenure.aws.doctor.permissions import UsedPolicies, check_permissions
from tenure.model.errors import Fault, Finding
from tests.support.cli.remedies import find_faulty_remedies

REGION = "eu-west-1"
ROLE = "arn:aws:iam::123456789012:role/tenure"
VALUES = {"ClusterName": "prod", "AWS::Region": REGION, "AWS::AccountId": "123456789012", "AWS::Partition": "aws",
          "NodeRoleName": "KarpenterNodeRole-prod", "InterruptionQueueName": "events"}  # fmt: skip
OMITTED = {"arc-zonal-shift:GetManagedResource", "sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"}
"""Actions of a role from the stack with Interruption=false and ZonalShift=false."""


class Iam:
    """Denies `OMITTED`; dry runs of reads succeed."""

    region = REGION

    def __init__(self) -> None:
        self.iam = SimpleNamespace(simulate_principal_policy="simulate")
        self.ec2 = self

    def __getattr__(self, name: str) -> str:
        return name

    async def call(self, method: str, **request: Any) -> Any:
        if method != "simulate":
            raise Fault("would have succeeded", code=DRY_RUN)
        decisions = {one: "implicitDeny" if one in OMITTED else "allowed" for one in request["ActionNames"]}
        return {"EvaluationResults": [{"EvalActionName": k, "EvalDecision": v} for k, v in decisions.items()]}


async def check(usage: UsedPolicies) -> list[Finding]:
    """The findings to act on."""
    found = await check_permissions(
        cast(AwsClients, Iam()), Caller(), policy_statements(VALUES), "prod", usage, role=ROLE
    )
    assert find_faulty_remedies(found) == []
    return [one for one in found if one.level != "ok"]


async def test_statements_of_unused_policies_are_not_needed() -> None:
    assert await check(UsedPolicies(queue="", zonal_shift=False)) == []


@pytest.mark.parametrize(
    ("usage", "sid", "parameters"),
    [
        (
            UsedPolicies(queue="events", zonal_shift=False),
            "AllowInterruptionQueueActions",
            ("Interruption=true", "InterruptionQueueName=events"),
        ),
        (UsedPolicies(queue="prod", zonal_shift=False), "AllowInterruptionQueueActions", ("Interruption=true",)),
        (UsedPolicies(queue="", zonal_shift=True), "AllowZonalShiftStatusReadOnly", ("ZonalShift=true",)),
    ],
)
async def test_omitted_policy_is_added_by_the_parameter_of_the_stack(
    usage: UsedPolicies, sid: str, parameters: tuple[str, ...]
) -> None:
    (denied,) = await check(usage)
    assert (denied.level, denied.subject) == ("problem", sid)
    assert denied.todo.startswith(f"{deploy_stack('role', 'prod', *parameters, region=REGION)}, or ")
