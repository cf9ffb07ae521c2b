"""The doctor's AWS checks on the stand-in: each finding names the problem and a fix, and no check changes anything."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import boto3

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


async def test_invalid_nodeclass_does_not_hide_another(endpoint: str, control: AwsControl) -> None:
    odd = with_name(build_nodeclass(uid="odd", amiSelectorTerms=[{"alias": "al2023@a@b"}]), "odd")
    fine = with_name(build_nodeclass(uid="fine"), "fine")
    found = [one for one in await run_doctor(endpoint, odd, fine) if one.area == "selectors"]
    assert any(one.level == "problem" and "odd" in one.subject for one in found)
    assert any(one.level == "ok" and one.subject == "EC2NodeClass fine images" for one in found)


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


CONTROLLER = "arn:aws:iam::123456789012:role/KarpenterControllerRole-demo"


def node_pool(*requirements: dict[str, Any]) -> NodePool:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": reference, "requirements": list(requirements)}}
    return NodePool.from_object({"metadata": {"name": "general", "uid": "u"}, "spec": {"template": template}})


async def test_only_quotas_of_the_nodepools_instance_types_are_checked(endpoint: str, control: AwsControl) -> None:
    gpus = node_pool({"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["g", "p"]})
    found = {one.subject for one in await run_doctor(endpoint, pools=[gpus]) if one.area == "quotas"}
    assert found == {f"{kind} vCPUs, {market}" for kind in ("G and VT", "P") for market in ("spot", "on-demand")}
