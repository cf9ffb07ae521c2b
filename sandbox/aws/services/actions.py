"""The table of actions of other services that are ours, and small repairs of moto's answers."""

from __future__ import annotations

import re
from collections.abc import Callable

from sandbox.aws.request import AwsCall
from sandbox.aws.services.eks import describe_cluster, list_clusters
from sandbox.aws.services.instance_profiles import list_instance_profiles
from sandbox.aws.services.pricing import get_products
from sandbox.aws.services.zonal_shift import get_managed_resource
from sandbox.aws.standin import StandIn
from sandbox.aws.wire.render import Response

MISSING_ROLE = re.compile(rb"<([Mm]essage)>Role (.*?) not found</\1>")
Handler = Callable[[StandIn, AwsCall], Response]

SERVICE_ACTIONS: dict[tuple[str, str], Handler] = {
    ("eks", "DescribeCluster"): describe_cluster,
    ("eks", "ListClusters"): list_clusters,
    ("pricing", "GetProducts"): get_products,
    ("arc-zonal-shift", "GetManagedResource"): get_managed_resource,
    ("iam", "ListInstanceProfiles"): list_instance_profiles,
}


def amend(call: AwsCall, body: bytes) -> bytes:
    """IAM names a missing role in lower-case words, which clients look for; moto says it twice, in two elements."""
    if call.service == "iam" and b"<Code>NoSuchEntity</Code>" in body:
        return MISSING_ROLE.sub(rb"<\1>The role with name \2 cannot be found.</\1>", body)
    return body
