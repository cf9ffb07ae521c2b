"""The doctor's AWS checks on the stand-in: each finding names the problem and a fix, and no check changes anything."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import boto3
import pytest

from deploy.resources import policy_statements
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.aws.adapters import AwsAdapters
from tenure.aws.doctor.account import Caller
from tenure.aws.doctor.checks import AwsDoctor, Policies
from tenure.aws.settings import AwsSettings
from tenure.model.errors import Finding
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tests.adapters.aws.conftest import as_key
from tests.support.aws.builders import build_nodeclass
from tests.support.aws.steps import resolve_nodeclass


def statements(caller: Caller) -> Sequence[Mapping[str, Any]]:
    return policy_statements(
        {
            "ClusterName": "demo",
            "AWS::Region": "us-west-2",
            "AWS::AccountId": caller.account,
            "AWS::Partition": "aws",
            "NodeRoleName": "KarpenterNodeRole-demo",
            "InterruptionQueueName": "demo",
        }
    )


async def run_doctor(
    endpoint: str,
    *classes: EC2NodeClass,
    key: str = "admin",
    role: str = "",
    queue: str = "",
    pools: Sequence[NodePool] = (),
    aws_auth: Collection[str] | None = None,
    policies: Policies = statements,
    **settings: Any,
) -> list[Finding]:
    """`settings`: fields of AwsSettings. By default, the endpoint of the cluster is the stand-in."""
    values: dict[str, Any] = {"cluster_endpoint": endpoint, **settings}
    with as_key(key):
        doctor = AwsDoctor(
            AwsSettings(cluster_name="demo", region="us-west-2", endpoint_url=endpoint, pool_size=4, **values)
        )
    try:
        return await doctor.check(
            policies=policies, role=role, queue=queue, node_classes=classes, pools=pools, aws_auth=aws_auth
        )
    finally:
        doctor.close()


def worst_finding(found: Sequence[Finding], area: str) -> Finding:
    order = ("ok", "advice", "unknown", "problem")
    return max((one for one in found if one.area == area), key=lambda one: order.index(one.level))


def admin_client(endpoint: str, service: str) -> Any:
    with as_key("admin"):
        return boto3.client(service, region_name="us-west-2", endpoint_url=endpoint)  # type: ignore[call-overload]


def with_name(one: EC2NodeClass, name: str) -> EC2NodeClass:
    return one.model_copy(update={"metadata": one.metadata.model_copy(update={"name": name})})


async def test_correct_account_has_no_problem_and_is_not_changed(
    endpoint: str, control: AwsControl, cloud: AwsAdapters
) -> None:
    one = await resolve_nodeclass(cloud)
    control.clear_counters()
    found = await run_doctor(endpoint, one, key=WORKER_KEY)
    assert [finding for finding in found if finding.level == "problem"] == []
    assert {"RunInstances", "CreateLaunchTemplate"} <= {
        finding.subject.rpartition(" ")[2] for finding in found if finding.area == "trial" and finding.level == "ok"
    }
    ec2 = admin_client(endpoint, "ec2")
    assert ec2.describe_instances()["Reservations"] == []
    assert not [
        one for one in ec2.describe_launch_templates()["LaunchTemplates"] if "doctor" in one["LaunchTemplateName"]
    ]


async def test_denied_read_is_named(endpoint: str, control: AwsControl) -> None:
    control.bind_key(
        "narrow",
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": ["ec2:*", "eks:*", "sts:*", "ssm:*", "iam:*"], "Resource": "*"},
                {"Effect": "Deny", "Action": "ec2:DescribeSpotPriceHistory", "Resource": "*"},
            ],
        },
    )
    found = await run_doctor(endpoint, key="narrow")
    (finding,) = [one for one in found if one.subject == "ec2:DescribeSpotPriceHistory"]
    assert finding.level == "problem" and "deploy/iam" in finding.todo


async def test_selector_without_result_is_named_by_its_field(endpoint: str, control: AwsControl) -> None:
    none = {"tags": {"no": "such"}}
    nodeclass = build_nodeclass(
        subnetSelectorTerms=[none],
        securityGroupSelectorTerms=[none],
        amiFamily="AL2023",
        amiSelectorTerms=[{"id": "ami-0000000000000dead"}],
        role="no-such-role",
    )
    findings = {
        one.subject.rpartition(" ")[2]: one for one in await run_doctor(endpoint, nodeclass) if one.area == "selectors"
    }
    assert {key: one.level for key, one in findings.items()} == dict.fromkeys(
        ("subnets", "groups", "images", "role"), "problem"
    )
    assert "subnetSelectorTerms" in findings["subnets"].todo and "spec.role" in findings["role"].todo


async def test_invalid_nodeclass_does_not_hide_another(endpoint: str, control: AwsControl) -> None:
    odd = with_name(build_nodeclass(uid="odd", amiSelectorTerms=[{"alias": "al2023@a@b"}]), "odd")
    fine = with_name(build_nodeclass(uid="fine"), "fine")
    found = [one for one in await run_doctor(endpoint, odd, fine) if one.area == "selectors"]
    assert any(one.level == "problem" and "odd" in one.subject for one in found)
    assert any(one.level == "ok" and one.subject == "EC2NodeClass fine images" for one in found)


async def test_missing_interruption_queue_is_reported(endpoint: str, control: AwsControl) -> None:
    missing = worst_finding(await run_doctor(endpoint, queue="no-such-queue"), "events")
    assert missing.level == "problem" and "INTERRUPTION_QUEUE" in missing.todo
    assert worst_finding(await run_doctor(endpoint), "events").level == "advice"


async def test_karpenters_queue_and_rules_only_lack_retention(endpoint: str, control: AwsControl) -> None:
    found = [one for one in await run_doctor(endpoint, queue="demo") if one.area == "events" and one.level != "ok"]
    [finding] = found
    assert finding.subject == "queue demo retention" and "outage of Temporal of 5 minutes" in finding.message


async def test_denied_queue_action_of_the_worker_is_named(endpoint: str, control: AwsControl) -> None:
    allow_statement = {"Effect": "Allow", "NotAction": "sqs:ReceiveMessage", "Resource": "*"}
    control.bind_key(WORKER_KEY, {"Version": "2012-10-17", "Statement": [allow_statement]})
    denied = worst_finding(await run_doctor(endpoint, role=CONTROLLER, queue="demo"), "permissions")
    assert (denied.level, denied.subject) == ("problem", "AllowInterruptionQueueActions")
    assert "sqs:ReceiveMessage" in denied.message and "deploy/iam" in denied.todo


async def test_zonal_shift_is_reported_when_the_setting_is_on(endpoint: str, control: AwsControl) -> None:
    control.shift_zone("usw2-az1")
    found = await run_doctor(endpoint, zonal_shift=True)
    (finding,) = [one for one in found if one.subject == "zonal shift"]
    assert finding.level == "advice" and "usw2-az1" in finding.message


CONTROLLER = "arn:aws:iam::123456789012:role/KarpenterControllerRole-demo"


def node_pool(*requirements: dict[str, Any]) -> NodePool:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": reference, "requirements": list(requirements)}}
    return NodePool.from_object({"metadata": {"name": "general", "uid": "u"}, "spec": {"template": template}})


async def test_denied_policy_statement_of_the_workers_role_is_named(endpoint: str, control: AwsControl) -> None:
    allowed = await run_doctor(endpoint, role=CONTROLLER)
    assert worst_finding(allowed, "permissions").level == "ok"
    allow_statement = {"Effect": "Allow", "NotAction": "ec2:TerminateInstances", "Resource": "*"}
    control.bind_key(WORKER_KEY, {"Version": "2012-10-17", "Statement": [allow_statement]})
    denied = worst_finding(await run_doctor(endpoint, role=CONTROLLER), "permissions")
    assert (denied.level, denied.subject) == ("problem", "AllowScopedDeletion")
    assert "ec2:TerminateInstances" in denied.message and "deploy/iam" in denied.todo


async def test_karpenters_role_only_lacks_actions_of_lifecycle_policies(endpoint: str, control: AwsControl) -> None:
    allow_statement = {"Effect": "Allow", "NotAction": "ec2:RebootInstances", "Resource": "*"}
    control.bind_key(WORKER_KEY, {"Version": "2012-10-17", "Statement": [allow_statement]})
    found = worst_finding(await run_doctor(endpoint, role=CONTROLLER), "permissions")
    assert (found.level, found.subject) == ("advice", "AllowScopedReboot")


@pytest.mark.parametrize(("vcpus", "level"), [(1000, "ok"), (0, "problem")])
async def test_exhausted_vcpu_quota_of_a_nodepool_is_a_problem(
    endpoint: str, control: AwsControl, vcpus: int, level: str
) -> None:
    control.set_quota("L-1216C47A", vcpus)
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    (found,) = [one for one in await run_doctor(endpoint, pools=[node_pool(on_demand)]) if one.area == "quotas"]
    assert (found.subject, found.level) == ("Standard vCPUs, on-demand", level)
    assert level == "ok" or "L-1216C47A" in found.todo


async def test_only_quotas_of_the_nodepools_instance_types_are_checked(endpoint: str, control: AwsControl) -> None:
    gpus = node_pool({"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["g", "p"]})
    found = {one.subject for one in await run_doctor(endpoint, pools=[gpus]) if one.area == "quotas"}
    assert found == {f"{kind} vCPUs, {market}" for kind in ("G and VT", "P") for market in ("spot", "on-demand")}
