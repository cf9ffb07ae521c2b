"""The policies of AWS that node roles have. moto knows all policies of AWS, but takes over a second to load them."""

from __future__ import annotations

from typing import Any, Final

from moto.iam.models import AWSManagedPolicy, iam_backends

_ECR: Final = ("GetAuthorizationToken", "BatchCheckLayerAvailability", "GetDownloadUrlForLayer", "BatchGetImage")
_NETWORK_INTERFACES: Final = (
    *("AssignPrivateIpAddresses", "AttachNetworkInterface", "CreateNetworkInterface", "DeleteNetworkInterface"),
    *("DescribeInstances", "DescribeInstanceTypes", "DescribeNetworkInterfaces", "DescribeSubnets", "DescribeTags"),
    *("DetachNetworkInterface", "ModifyNetworkInterfaceAttribute", "UnassignPrivateIpAddresses"),
)
_EC2: Final = (
    *("DescribeInstances", "DescribeInstanceTypes", "DescribeRouteTables", "DescribeSecurityGroups"),
    *("DescribeSubnets", "DescribeVolumes", "DescribeVpcs"),
)
_ACTIONS: Final = {
    "AmazonEKSWorkerNodePolicy": (
        *(f"ec2:{one}" for one in _EC2),
        "eks:DescribeCluster",
        "eks-auth:AssumeRoleForPodIdentity",
    ),
    "AmazonEKSWorkerNodeMinimalPolicy": ("eks-auth:AssumeRoleForPodIdentity",),
    "AmazonEKS_CNI_Policy": tuple(f"ec2:{one}" for one in _NETWORK_INTERFACES),
    "AmazonEC2ContainerRegistryPullOnly": tuple(f"ecr:{one}" for one in _ECR),
    "AmazonEC2ContainerRegistryReadOnly": (*(f"ecr:{one}" for one in _ECR), "ecr:DescribeImages", "ecr:ListImages"),
    "AmazonSSMManagedInstanceCore": ("ssm:UpdateInstanceInformation", "ssmmessages:*", "ec2messages:*"),
}
"""The actions that the policies of 2026 allow, as far as the stand-in has them."""
_DATE: Final = "2024-12-01T00:00:00+00:00"


def seed_managed_policies(account: str, region: str) -> None:
    policies = iam_backends[account]["aws"].managed_policies
    for name, actions in _ACTIONS.items():
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        data: dict[str, Any] = {
            "DefaultVersionId": "v1",
            "Path": "/",
            "Document": {"Version": "2012-10-17", "Statement": [statement]},
            "CreateDate": _DATE,
            "UpdateDate": _DATE,
        }
        policy = AWSManagedPolicy.from_data(name, account, region, data)
        policies[policy.arn] = policy
