"""The table of our own actions of other services, and corrections of moto's responses."""

from __future__ import annotations

import re
from collections.abc import Callable

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.services import access_entries, iam_simulator, quotas
from tenure.sandbox.aws.services.eks import create_cluster, describe_cluster, list_clusters
from tenure.sandbox.aws.services.instance_profiles import list_instance_profiles
from tenure.sandbox.aws.services.price_list import get_products
from tenure.sandbox.aws.services.ssm import get_caller_identity, get_parameter
from tenure.sandbox.aws.services.zonal_shift import get_managed_resource, list_managed_resources
from tenure.sandbox.aws.wire.responses import Response

MISSING_ROLE = re.compile(rb"<([Mm]essage)>Role (.*?) not found</\1>")
NEW_PROFILE = frozenset({("iam", "CreateInstanceProfile"), ("iam", "AddRoleToInstanceProfile")})
Handler = Callable[[FakeAws, AwsCall], Response]

SERVICE_ACTIONS: dict[tuple[str, str], Handler] = {
    ("eks", "CreateCluster"): create_cluster,
    ("eks", "DescribeCluster"): describe_cluster,
    ("eks", "ListClusters"): list_clusters,
    ("eks", "CreateAccessEntry"): access_entries.create,
    ("eks", "DescribeAccessEntry"): access_entries.describe,
    ("eks", "ListAccessEntries"): access_entries.list_all,
    ("eks", "DeleteAccessEntry"): access_entries.delete,
    ("pricing", "GetProducts"): get_products,
    ("ssm", "GetParameter"): get_parameter,
    ("arc-zonal-shift", "GetManagedResource"): get_managed_resource,
    ("arc-zonal-shift", "ListManagedResources"): list_managed_resources,
    ("sts", "GetCallerIdentity"): get_caller_identity,
    ("iam", "SimulatePrincipalPolicy"): iam_simulator.simulate_principal_policy,
    ("iam", "SimulateCustomPolicy"): iam_simulator.simulate_custom_policy,
    ("servicequotas", "ListServiceQuotas"): quotas.list_service_quotas,
    ("servicequotas", "GetServiceQuota"): quotas.get_service_quota,
    ("servicequotas", "ListAWSDefaultServiceQuotas"): quotas.list_default_quotas,
    ("servicequotas", "GetAWSDefaultServiceQuota"): quotas.get_default_quota,
    ("iam", "ListInstanceProfiles"): list_instance_profiles,
}


def apply_side_effects(fake_aws: FakeAws, call: AwsCall) -> None:
    """Effects of a successful moto call on our state: a setting can delay when EC2 knows a new instance profile."""
    if (call.service, call.action) in NEW_PROFILE:
        from_now = fake_aws.clock.now() + fake_aws.settings.profile_visibility_seconds
        fake_aws.default_environment.profiles_from[call.form.get("InstanceProfileName", "")] = from_now


def amend_response(call: AwsCall, body: bytes) -> bytes:
    """IAM reports a missing role in a lower-case text that clients match; moto reports it in two elements."""
    if call.service == "iam" and b"<Code>NoSuchEntity</Code>" in body:
        return MISSING_ROLE.sub(rb"<\1>The role with name \2 cannot be found.</\1>", body)
    return body
