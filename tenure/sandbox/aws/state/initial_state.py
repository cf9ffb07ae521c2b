"""The state at the start and after a reset: a VPC with three zones, a security group, a node role, a queue, images."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from moto.events.models import events_backends
from moto.iam.models import iam_backends
from moto.sqs.models import sqs_backends
from moto.ssm.models import Parameter, ssm_backends

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.services import access_entries
from tenure.sandbox.aws.services.eventbridge import queue_attributes, seed_rules
from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.state.eks_images import published_images
from tenure.sandbox.aws.state.managed_policies import seed_managed_policies

ZONES = "abc"
NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
"""Those of the node role in Karpenter's getting-started guide."""
SPOT_ROLE = "AWSServiceRoleForEC2Spot"


def seed(fake_aws: FakeAws) -> None:
    """Fill an empty stand-in. It creates all resources with the tag `karpenter.sh/discovery=<cluster>`."""
    settings = fake_aws.settings
    _seed_network(fake_aws)
    _seed_images(fake_aws)
    seed_managed_policies(settings.account, settings.region)
    _seed_role(settings, settings.node_role(), "Node role", {"Service": "ec2.amazonaws.com"}, NODE_POLICIES)
    if settings.spot_service_linked_role:
        _seed_role(settings, SPOT_ROLE, "Service-linked role", {"Service": "spot.amazonaws.com"})
    _seed_role(settings, settings.controller_role(), "Worker's role", {"Service": "pods.eks.amazonaws.com"})
    sqs_backends[settings.account][settings.region].create_queue(
        settings.cluster_name, tags={}, **queue_attributes(settings)
    )
    seed_rules(settings)
    access_entries.seed(fake_aws)


def _seed_role(
    settings: SimSettings, name: str, text: str, principal: dict[str, str], policies: Sequence[str] = ()
) -> None:
    trust = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    iam = iam_backends[settings.account]["aws"]
    iam.create_role(
        role_name=name,
        assume_role_policy_document=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
        path="/",
        permissions_boundary=None,
        description=text,
        tags=[],
        max_session_duration="3600",
    )
    for policy in policies:
        iam.attach_role_policy(f"arn:aws:iam::aws:policy/{policy}", name)


def reset(fake_aws: FakeAws) -> None:
    """Restore the initial state and settings, without instances and faults. The clock continues."""
    with fake_aws.default_environment.lock:
        _reset_locked(fake_aws)


def _reset_locked(fake_aws: FakeAws) -> None:
    fake_aws.restore_settings()
    for environment in fake_aws.environments().values():
        environment.clear()
        environment.network.backend.reset()
    account = fake_aws.settings.account
    iam_backends[account]["aws"].reset()
    for backends in (ssm_backends, sqs_backends, events_backends):
        for backend in backends[account].values():
            backend.reset()
    fake_aws.counters.clear()
    fake_aws.faults.clear()
    fake_aws.rates.clear()
    fake_aws.keys.restore()
    fake_aws.zonal_shifts.end()
    seed(fake_aws)


def _seed_network(fake_aws: FakeAws) -> None:
    settings, backend = fake_aws.settings, fake_aws.default_environment.network.backend
    vpc = backend.create_vpc("10.0.0.0/16")
    backend.create_tags([vpc.id], _discovery_tags(settings, f"vpc-{settings.cluster_name}", owned=True))
    for index, letter in enumerate(ZONES):
        zone = f"{settings.region}{letter}"
        subnet = backend.create_subnet(vpc.id, f"10.0.{index * 64}.0/18", availability_zone=zone)
        backend.create_tags([subnet.id], _discovery_tags(settings, f"private-{zone}", owned=False))
    group = backend.create_security_group(f"eks-cluster-sg-{settings.cluster_name}", "Nodes and control plane", vpc.id)
    backend.create_tags([group.id], _discovery_tags(settings, f"eks-cluster-sg-{settings.cluster_name}", owned=True))


def _discovery_tags(settings: SimSettings, name: str, *, owned: bool) -> dict[str, str]:
    return {
        "Name": name,
        "karpenter.sh/discovery": settings.cluster_name,
        f"kubernetes.io/cluster/{settings.cluster_name}": "owned" if owned else "shared",
    }


def _seed_images(fake_aws: FakeAws) -> None:
    environment = fake_aws.default_environment
    for published in published_images():
        environment.images[published.image.id] = published.image
        for name in published.parameters:
            set_parameter(fake_aws, name, published.image.id)


def set_parameter(fake_aws: FakeAws, name: str, value: str) -> None:
    """Publish a new version of a parameter, also below /aws/service, where PutParameter is rejected."""
    settings = fake_aws.settings
    stored: Any = ssm_backends[settings.account][settings.region]._parameters
    versions = stored[name]
    versions.append(
        Parameter(
            account_id=settings.account,
            name=name,
            value=value,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=dt.datetime.now(dt.UTC),
            version=len(versions) + 1,
            data_type="aws:ec2:image" if value.startswith("ami-") else "text",
        )
    )
