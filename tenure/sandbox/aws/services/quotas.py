"""servicequotas: EC2's quotas of running instances, current and default values."""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.filters import paginate
from tenure.sandbox.aws.ec2.fleet.capacity import BY_CODE, DEFAULT_VCPUS, QUOTAS, Quota, limit_of
from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.wire.responses import AwsError, Response, aws_json


def list_service_quotas(fake_aws: FakeAws, call: AwsCall) -> Response:
    return _list_quotas(fake_aws, call, default=False)


def list_default_quotas(fake_aws: FakeAws, call: AwsCall) -> Response:
    return _list_quotas(fake_aws, call, default=True)


def get_service_quota(fake_aws: FakeAws, call: AwsCall) -> Response:
    return aws_json({"Quota": _quota_view(fake_aws, _find_quota(call), default=False)})


def get_default_quota(fake_aws: FakeAws, call: AwsCall) -> Response:
    return aws_json({"Quota": _quota_view(fake_aws, _find_quota(call), default=True)})


def _list_quotas(fake_aws: FakeAws, call: AwsCall, *, default: bool) -> Response:
    _require_ec2(call)
    chosen = sorted(QUOTAS, key=lambda quota: quota.code)
    page_items, token = paginate(chosen, call.parameters, lambda quota: quota.code, low=1, high=100, unpaged=100)
    response: dict[str, Any] = {"Quotas": [_quota_view(fake_aws, quota, default=default) for quota in page_items]}
    return aws_json({**response, "NextToken": token} if token else response)


def _find_quota(call: AwsCall) -> Quota:
    _require_ec2(call)
    found = BY_CODE.get(call.parameters.get("QuotaCode", ""))
    if found is None:
        raise _no_such_quota()
    return found


def _require_ec2(call: AwsCall) -> None:
    if call.parameters.get("ServiceCode") != "ec2":
        raise _no_such_quota()


def _no_such_quota() -> AwsError:
    return AwsError("NoSuchResourceException", "The specified resource does not exist.")


def _quota_view(fake_aws: FakeAws, quota: Quota, *, default: bool) -> dict[str, Any]:
    settings = fake_aws.settings
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{settings.region}:{settings.account}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": float(DEFAULT_VCPUS if default else limit_of(fake_aws.default_environment, quota.code)),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
