"""Whether a role has the permissions of the shipped policy, by IAM's simulator.

The policy's statements give the actions, sample resources and condition values. EC2 reads are also tried as dry runs,
which reveal service control policies.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from deploy.commands import deploy_stack
from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import DRY_RUN
from tenure.aws.doctor.account import Caller
from tenure.aws.doctor.queue import as_list
from tenure.model.base import Value
from tenure.model.errors import Fault, Finding, Forbidden, NotFound, Subject, TryLater

AREA: Final = "permissions"
_SAMPLE: Final = "doctor"
_AT_ONCE: Final = 4
_READS: Final = tuple(
    """
    describe_capacity_reservations describe_images describe_instances describe_instance_status
    describe_instance_type_offerings describe_instance_types describe_launch_templates describe_placement_groups
    describe_security_groups describe_spot_price_history describe_subnets
    """.split()  # noqa: SIM905
)

_QUEUE: Final = "AllowInterruptionQueueActions"
_ZONAL_SHIFT: Final = "AllowZonalShiftStatusReadOnly"
_PARAMETERS: Final = {
    _QUEUE: "Interruption=true",
    _ZONAL_SHIFT: "ZonalShift=true",
    "AllowScopedReboot": "NodeRepair=true",
    "AllowScopedStopStart": "StopStart=true",
}
"""Parameters of the role's stack without which it omits a statement, which an existing stack may have as false."""
_OPTIONAL: Final = frozenset({"AllowScopedReboot", "AllowScopedStopStart"})
"""Permissions beyond Karpenter's policy, for optional LifecyclePolicy actions."""

Statement = Mapping[str, Any]


class UsedPolicies(Value):
    """Settings without which the worker needs no statements of their policies."""

    queue: str
    """INTERRUPTION_QUEUE; may be empty."""
    zonal_shift: bool
    """ENABLE_ZONAL_SHIFT."""

    def includes(self, statement: Statement) -> bool:
        unused = {_QUEUE: not self.queue, _ZONAL_SHIFT: not self.zonal_shift}
        return not unused.get(statement["Sid"], False)

    def parameters_for(self, statement: Statement, cluster: str) -> list[str]:
        """Parameters of the role's stack that add the statement."""
        sid = statement["Sid"]
        parameters = [_PARAMETERS[sid]] if sid in _PARAMETERS else []
        named = [f"InterruptionQueueName={self.queue}"] if sid == _QUEUE and self.queue != cluster else []
        return [*parameters, *named]


async def check_permissions(
    clients: AwsClients,
    caller: Caller,
    statements: Sequence[Statement],
    cluster: str,
    usage: UsedPolicies,
    *,
    role: str = "",
) -> list[Finding]:
    """`statements`: shipped policy, rendered for the cluster. `role`: ARN; empty for the caller's role."""
    reads = await asyncio.gather(*(_dry_read(clients, name, cluster) for name in _READS))
    found = [one for one in reads if one.level != "ok"] or [
        Subject(AREA, "ec2:Describe*").ok(f"all {len(_READS)} answer a dry run")
    ]
    writing = Subject(AREA, "writing actions")
    try:
        arn = role or await _arn_of(clients, caller)
        return found + await _simulate_all(clients, arn, statements, cluster, usage)
    except (Forbidden, NotFound) as fault:
        todo = "run the doctor once with an administrator's credentials and --role ARN of the worker's role"
        return [*found, writing.unknown(f"IAM's policy simulator is not available: {fault.message}", todo)]
    except Fault as fault:
        return [*found, writing.unknown(fault.message, "try again")]


async def _dry_read(clients: AwsClients, method: str, cluster: str) -> Finding:
    at = Subject(AREA, "ec2:" + "".join(part.capitalize() for part in method.split("_")))
    try:
        await clients.call(getattr(clients.ec2, method), DryRun=True)
    except Forbidden as fault:
        stack = deploy_stack("role", cluster, region=clients.region)
        todo = f"{stack}, or attach the policies in deploy/iam to another role"
        return at.problem(fault.message, todo)
    except Fault as fault:
        if fault.code != DRY_RUN:
            return at.unknown(fault.message, "try again")
    return at.ok("a dry run would have succeeded")


async def _arn_of(clients: AwsClients, caller: Caller) -> str:
    """The caller's role ARN, read from IAM, because a session's ARN does not contain the path of the role."""
    if ":assumed-role/" not in caller.arn:
        return caller.arn
    response = await clients.call(clients.iam.get_role, RoleName=caller.role)
    return str(response["Role"]["Arn"])


async def _simulate_all(
    clients: AwsClients, arn: str, shipped: Sequence[Statement], cluster: str, usage: UsedPolicies
) -> list[Finding]:
    statements = [one for one in shipped if usage.includes(one)]
    semaphore = asyncio.Semaphore(_AT_ONCE)

    async def simulate(statement: Statement) -> list[str]:
        async with semaphore:
            return await _denied_actions(clients, arn, statement)

    results = await asyncio.gather(*(simulate(one) for one in statements))
    found = []
    for statement, denied in zip(statements, results, strict=True):
        if denied:
            at = Subject(AREA, statement["Sid"])
            level = at.advice if statement["Sid"] in _OPTIONAL else at.problem
            parameters = usage.parameters_for(statement, cluster)
            stack = deploy_stack("role", cluster, *parameters, region=clients.region)
            other = f"attach the statement {statement['Sid']} of deploy/iam, or remove the Deny that overrides it"
            todo = f"{stack}, or with another role {other}"
            found.append(level(f"{arn} is denied {', '.join(denied)}", todo))
    allowed = len(statements) - len(found)
    return [
        *found,
        Subject(AREA, arn).ok(f"{allowed} of {len(statements)} used statements of the shipped policy are allowed"),
    ]


async def _denied_actions(clients: AwsClients, arn: str, statement: Statement) -> list[str]:
    """The actions of the statement that IAM would deny on any of its resources."""
    denied: set[str] = set()
    for resource in _sample_resources(statement):
        response = await clients.call(
            clients.iam.simulate_principal_policy,
            PolicySourceArn=arn,
            ActionNames=as_list(statement["Action"]),
            ResourceArns=[resource],
            ContextEntries=list(_sample_context(statement)),
        )
        results = response.get("EvaluationResults")
        if results is None:
            raise TryLater("iam:SimulatePrincipalPolicy answered without results")
        denied |= {one["EvalActionName"] for one in results if one["EvalDecision"] != "allowed"}
    return sorted(denied)


def _sample_resources(statement: Statement) -> list[str]:
    return [one if one == "*" else one.replace("*", _SAMPLE) for one in as_list(statement["Resource"])]


def _sample_context(statement: Statement) -> Iterable[Any]:
    """Context of a request that meets the statement's conditions: their first values, with samples for wildcards."""
    for operator, keys in (statement.get("Condition") or {}).items():
        for key, values in keys.items():
            listed = as_list(values)
            many = operator.startswith("ForA")
            chosen = listed if many else [listed[0].replace("*", _SAMPLE)]
            kind = "stringList" if many else "string"
            yield {"ContextKeyName": key, "ContextKeyValues": chosen, "ContextKeyType": kind}
