"""The doctor names each of 30 prepared defects alone, with the command that corrects it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest

from deploy.commands import deploy_stack, set_in_chart
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters
from tenure.aws.doctor.checks import Policies
from tenure.model.errors import Finding
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tests.adapters.aws.test_doctor import CONTROLLER, admin_client, node_pool, run_doctor, statements
from tests.adapters.aws.test_doctor_node_role import ARN, ROLE, replace_access_entry
from tests.support.aws.builders import build_nodeclass
from tests.support.aws.steps import resolve_nodeclass
from tests.support.cli.remedies import find_faulty_remedies

POLICY = "arn:aws:iam::aws:policy/"
QUEUE = "arn:aws:sqs:us-west-2:123456789012:demo"
SEND = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": QUEUE}
ALLOW_EVENTS = {**SEND, "Principal": {"Service": "events.amazonaws.com"}}
ON_DEMAND_QUOTA, SPOT_QUOTA = "L-1216C47A", "L-34B43A08"


def policy_of(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


@dataclass
class Account:
    """A correct account, of which a defect changes one thing."""

    endpoint: str
    control: AwsControl
    node_class: EC2NodeClass
    queue: str = "demo"
    key: str = "admin"
    policies: Policies = lambda _: ()
    """Simulating the shipped policies takes most of the time, so only defects of permissions do."""
    queue_attributes: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def iam(self) -> Any:
        return admin_client(self.endpoint, "iam")

    @property
    def eks(self) -> Any:
        return admin_client(self.endpoint, "eks")

    @property
    def events(self) -> Any:
        return admin_client(self.endpoint, "events")

    def set_queue(self, **attributes: str) -> None:
        """Repeats the attributes that were set before, because moto removes the policy otherwise."""
        self.queue_attributes |= attributes
        sqs = admin_client(self.endpoint, "sqs")
        sqs.set_queue_attributes(
            QueueUrl=sqs.get_queue_url(QueueName="demo")["QueueUrl"], Attributes=self.queue_attributes
        )

    def set_queue_policy(self, *statements: dict[str, Any]) -> None:
        self.set_queue(Policy=json.dumps(policy_of(*statements)))

    def set_class(self, **spec: Any) -> None:
        spec_of_class = build_nodeclass(**spec).spec
        self.node_class = self.node_class.model_copy(update={"spec": spec_of_class})

    def subnet_ids(self) -> list[str]:
        return [one.id for one in self.node_class.status.subnets]

    def deny_worker(self, action: str) -> None:
        self.policies = statements
        self.control.bind_key(WORKER_KEY, policy_of({"Effect": "Allow", "NotAction": action, "Resource": "*"}))

    def deny_doctor(self, action: str) -> None:
        self.control.bind_key("narrow", policy_of({"Effect": "Allow", "NotAction": action, "Resource": "*"}))
        self.key = "narrow"

    async def check(self) -> list[Finding]:
        return await run_doctor(
            self.endpoint,
            self.node_class,
            key=self.key,
            role=CONTROLLER,
            queue=self.queue,
            pools=[node_pool()],
            aws_auth=(),
            policies=self.policies,
            **self.settings,
        )


@pytest.fixture
async def account(endpoint: str, control: AwsControl, cloud: AwsAdapters) -> Account:
    found = Account(endpoint, control, await resolve_nodeclass(cloud))
    found.set_queue(MessageRetentionPeriod="345600")
    found.set_queue_policy(ALLOW_EVENTS)
    for quota in (ON_DEMAND_QUOTA, SPOT_QUOTA):
        control.set_quota(quota, 1000)
    return found


def detach(account: Account, name: str) -> None:
    account.iam.detach_role_policy(RoleName=ROLE, PolicyArn=f"{POLICY}{name}")


def detach_with_inline_policy(account: Account) -> None:
    detach(account, "AmazonEC2ContainerRegistryPullOnly")
    document = json.dumps(policy_of({"Effect": "Allow", "Action": "s3:*", "Resource": "*"}))
    account.iam.put_role_policy(RoleName=ROLE, PolicyName="own", PolicyDocument=document)


def trust_lambda(account: Account) -> None:
    statement = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    account.iam.update_assume_role_policy(RoleName=ROLE, PolicyDocument=json.dumps(policy_of(statement)))


def select_tag(account: Account, field_name: str) -> None:
    account.set_class(**{field_name: [{"tags": {"karpenter.sh/discovery": "other"}}]})


def exhaust_subnets(account: Account, number: int) -> None:
    for subnet_id in account.subnet_ids()[:number]:
        account.control.set_free_addresses(subnet_id, 3)


def select_one_subnet(account: Account) -> None:
    account.set_class(subnetSelectorTerms=[{"id": account.subnet_ids()[0]}])


def restrict_endpoint(account: Account) -> None:
    account.control.configure(endpoint_private_access=False, public_access_cidr="203.0.113.0/24")


def shift_zone(account: Account) -> None:
    account.settings["zonal_shift"] = True
    account.control.shift_zone("usw2-az1")


def disable_zonal_shift(account: Account) -> None:
    account.settings["zonal_shift"] = True
    account.control.configure(zonal_shift_registered=False)


def limit_receives(account: Account) -> None:
    sqs = admin_client(account.endpoint, "sqs")
    sqs.create_queue(QueueName="dead")
    account.set_queue(RedrivePolicy=json.dumps({"deadLetterTargetArn": f"{QUEUE[:-4]}dead", "maxReceiveCount": 5}))


def delete_rule(account: Account) -> None:
    targets = account.events.list_targets_by_rule(Rule="demo-spot-interruption")["Targets"]
    account.events.remove_targets(Rule="demo-spot-interruption", Ids=[one["Id"] for one in targets])
    account.events.delete_rule(Name="demo-spot-interruption")


class Defect(NamedTuple):
    cause: Callable[[Account], Any]
    level: str
    message: str
    todo: str


REGION = "--region us-west-2"
ATTACH = f"aws iam attach-role-policy --role-name {ROLE} {REGION} --policy-arn {POLICY}"
CREATE_ENTRY = f"aws eks create-access-entry --cluster-name demo {REGION} --principal-arn {ARN} --type EC2_LINUX"
TAG = "--tags Key=karpenter.sh/discovery,Value=other"
INCREASE = f"aws service-quotas request-service-quota-increase {REGION} --service-code ec2 --quota-code"
EDIT = "kubectl edit ec2nodeclass default, and correct"
SET_ATTRIBUTES = f"aws sqs set-queue-attributes {REGION} --queue-url $(aws sqs get-queue-url --queue-name demo {REGION}"


def deploy(name: Literal["events", "nodes", "role"], *parameters: str) -> str:
    return deploy_stack(name, "demo", *parameters, region="us-west-2")


CREATE_SUBNET = f"aws ec2 create-subnet {REGION} --vpc-id VPC-ID"
PATTERN = '{"source":["aws.ec2"],"detail-type":["EC2 Spot Instance Interruption Warning"]}'
DEFECTS = {
    "no worker policy": Defect(
        lambda one: detach(one, "AmazonEKSWorkerNodePolicy"),
        "problem",
        "none of AWS's policies to join the cluster",
        f"{ATTACH}AmazonEKSWorkerNodePolicy",
    ),
    "no registry policy": Defect(
        lambda one: detach(one, "AmazonEC2ContainerRegistryPullOnly"),
        "problem",
        "none of AWS's policies to pull images",
        f"{ATTACH}AmazonEC2ContainerRegistryPullOnly",
    ),
    "own policies": Defect(detach_with_inline_policy, "advice", "its other policies are not checked", ATTACH),
    "trust": Defect(
        trust_lambda, "problem", "EC2 cannot assume it", f"aws iam update-assume-role-policy --role-name {ROLE}"
    ),
    "no access entry": Defect(
        lambda one: replace_access_entry(one.eks), "problem", "no access entry for the nodes' role", CREATE_ENTRY
    ),
    "access entry of a user": Defect(
        lambda one: replace_access_entry(one.eks, "STANDARD"),
        "problem",
        "type STANDARD, which nodes cannot use",
        "aws eks delete-access-entry",
    ),
    "no role for spot": Defect(
        lambda one: one.iam.delete_role(RoleName="AWSServiceRoleForEC2Spot"),
        "problem",
        "AWSServiceRoleForEC2Spot does not exist",
        f"aws iam create-service-linked-role {REGION} --aws-service-name spot.amazonaws.com",
    ),
    "no tagged subnet": Defect(
        lambda one: select_tag(one, "subnetSelectorTerms"),
        "problem",
        "no subnets match",
        f"aws ec2 create-tags {REGION} --resources SUBNET-ID {TAG}, or {EDIT} spec.subnetSelectorTerms",
    ),
    "no tagged security group": Defect(
        lambda one: select_tag(one, "securityGroupSelectorTerms"),
        "problem",
        "no groups match",
        f"aws ec2 create-tags {REGION} --resources GROUP-ID {TAG}, or {EDIT} spec.securityGroupSelectorTerms",
    ),
    "no image": Defect(
        lambda one: one.set_class(amiFamily="AL2023", amiSelectorTerms=[{"id": "ami-0000000000000dead"}]),
        "problem",
        "no images match",
        f"{EDIT} spec.amiSelectorTerms",
    ),
    "invalid alias": Defect(
        lambda one: one.set_class(amiSelectorTerms=[{"alias": "al2023@a@b"}]),
        "problem",
        "al2023@a@b",
        f"{EDIT} the alias in spec.amiSelectorTerms",
    ),
    "no role": Defect(
        lambda one: one.set_class(role="no-such-role"),
        "problem",
        "no-such-role",
        f"{deploy('nodes', 'CreateNodeRole=true', 'NodeRoleName=no-such-role')}, or {EDIT} spec.role",
    ),
    "no instance profile": Defect(
        lambda one: one.set_class(role="", instanceProfile="no-such-profile"),
        "problem",
        "no-such-profile",
        f"aws iam create-instance-profile {REGION} --instance-profile-name no-such-profile",
    ),
    "exhausted subnets": Defect(
        lambda one: exhaust_subnets(one, 3),
        "problem",
        "almost exhausted",
        CREATE_SUBNET,
    ),
    "exhausted subnet": Defect(
        lambda one: exhaust_subnets(one, 1),
        "advice",
        "few are left in",
        CREATE_SUBNET,
    ),
    "one zone": Defect(select_one_subnet, "advice", "1 in us-west-2", f"{EDIT} spec.subnetSelectorTerms"),
    "DNS of the API server": Defect(
        lambda one: one.settings.update(cluster_endpoint="https://cluster.demo.invalid"),
        "problem",
        "cluster.demo.invalid does not resolve",
        "--set dnsPolicy=Default",
    ),
    "port of the API server": Defect(
        lambda one: one.settings.update(cluster_endpoint="https://127.0.0.1:1"),
        "problem",
        "127.0.0.1 does not answer on port 1",
        f"aws eks describe-cluster --name demo {REGION} --query cluster.resourcesVpcConfig",
    ),
    "restricted endpoint": Defect(
        restrict_endpoint,
        "advice",
        "only 203.0.113.0/24 may reach the endpoint",
        f"aws eks update-cluster-config --name demo {REGION} --resources-vpc-config endpointPrivateAccess=true",
    ),
    "shifted zone": Defect(shift_zone, "advice", "usw2-az1", "aws arc-zonal-shift cancel-zonal-shift"),
    "no zonal shift": Defect(disable_zonal_shift, "problem", "zonal shift", "--zonal-shift-config enabled=true"),
    "no queue of this name": Defect(
        lambda one: setattr(one, "queue", "no-such-queue"),
        "problem",
        "not found in us-west-2",
        deploy("events", "InterruptionQueueName=no-such-queue"),
    ),
    "no queue": Defect(
        lambda one: setattr(one, "queue", ""),
        "advice",
        "no notice of spot interruptions",
        f"{deploy('events')}, then {set_in_chart('settings.INTERRUPTION_QUEUE=demo')}",
    ),
    "queue without policy": Defect(
        lambda one: one.set_queue(Policy=""), "problem", "no statement allows events.amazonaws.com", SET_ATTRIBUTES
    ),
    "open queue": Defect(
        lambda one: one.set_queue_policy(ALLOW_EVENTS, {**SEND, "Principal": "*"}),
        "advice",
        "allows everyone to send",
        SET_ATTRIBUTES,
    ),
    "short retention": Defect(
        lambda one: one.set_queue(MessageRetentionPeriod="300"),
        "advice",
        "an outage of Temporal of 5 minutes",
        SET_ATTRIBUTES,
    ),
    "few receives": Defect(limit_receives, "advice", "then they move to the dead-letter queue", "maxReceiveCount"),
    "key of SQS": Defect(
        lambda one: one.set_queue(KmsMasterKeyId="alias/aws/sqs"),
        "problem",
        "EventBridge cannot use alias/aws/sqs",
        SET_ATTRIBUTES,
    ),
    "no rule": Defect(
        delete_rule,
        "problem",
        "no rule sends them here",
        f"aws events put-rule --name tenure-demo-spotInterruption {REGION} --event-pattern '{PATTERN}'",
    ),
    "disabled rule": Defect(
        lambda one: one.events.disable_rule(Name="demo-spot-interruption"),
        "problem",
        "is disabled",
        "aws events enable-rule --name demo-spot-interruption --region us-west-2",
    ),
    "exhausted quota": Defect(
        lambda one: one.control.set_quota(ON_DEMAND_QUOTA, 0),
        "problem",
        "0 of 0 vCPUs are in use",
        f"{INCREASE} {ON_DEMAND_QUOTA} --desired-value 64",
    ),
    "denied termination": Defect(
        lambda one: one.deny_worker("ec2:TerminateInstances"),
        "problem",
        "is denied ec2:TerminateInstances",
        f"{deploy('role')}, or with another role attach the statement AllowScopedDeletion of deploy/iam",
    ),
    "denied reboot": Defect(
        lambda one: one.deny_worker("ec2:RebootInstances"),
        "advice",
        "is denied ec2:RebootInstances",
        deploy("role", "NodeRepair=true"),
    ),
    "denied read": Defect(
        lambda one: one.deny_doctor("ec2:DescribeSpotPriceHistory"),
        "problem",
        "ec2:DescribeSpotPriceHistory",
        "deploy/iam",
    ),
}


async def test_correct_account_has_no_finding_to_act_on(account: Account) -> None:
    assert [one for one in await account.check() if one.level != "ok"] == []


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=list(DEFECTS))
async def test_defect_is_named_alone_with_its_remedy(defect: Defect, account: Account) -> None:
    defect.cause(account)
    [found] = [one for one in await account.check() if one.level != "ok"]
    assert found.level == defect.level and defect.message in found.message and defect.todo in found.todo
    assert find_faulty_remedies([found]) == []
