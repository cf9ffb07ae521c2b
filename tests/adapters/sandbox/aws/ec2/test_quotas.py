"""Quotas by family class and market, in launches and in Service Quotas; the service-linked role for spot."""

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, instance_ids, raises_code

STANDARD, STANDARD_SPOT, GPU = "L-1216C47A", "L-34B43A08", "L-DB2E81BA"


@pytest.mark.parametrize(
    ("quota", "kind", "market", "expected"),
    [
        (STANDARD, "m5.large", "on-demand", "VcpuLimitExceeded"),
        (STANDARD_SPOT, "c5.large", "spot", "MaxSpotInstanceCountExceeded"),
        (GPU, "g5.xlarge", "on-demand", "VcpuLimitExceeded"),
        ("L-1945791B", "inf2.xlarge", "on-demand", "VcpuLimitExceeded"),
        ("L-7295265B", "x2gd.medium", "on-demand", "VcpuLimitExceeded"),
    ],
)
def test_each_family_class_has_its_own_quota(
    kit: FakeAwsClient, quota: str, kind: str, market: str, expected: str
) -> None:
    kit.control.set_quota(quota, 1)
    if kind.startswith("x2gd"):
        kit.control.set_quota(quota, 0)
    arch = "arm64" if kind.startswith("x2gd") else "x86_64"
    kit.create_template(ImageId=kit.image_id(arch))
    response = kit.create_fleet(kit.overrides(kind, zones="abc"), capacity_type=market)
    assert set(error_codes(response).values()) - {"Unsupported"} == {expected}
    kit.control.set_quota(quota, None)
    assert instance_ids(kit.create_fleet(kit.overrides(kind, zones="abc"), capacity_type=market))


def test_quota_of_a_class_does_not_limit_others(kit: FakeAwsClient) -> None:
    kit.control.set_quota(STANDARD, 2)
    assert len(instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), 2))) == 1
    assert instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type="spot"))
    assert instance_ids(kit.create_fleet(kit.overrides("g5.xlarge", zones="abc")))


def test_stopped_and_terminated_instances_do_not_count_for_quotas(kit: FakeAwsClient) -> None:
    kit.control.set_quota(STANDARD, 2)
    overrides = kit.overrides("m5.large", zones="a")
    (first,) = instance_ids(kit.create_fleet(overrides))
    kit.control.advance_clock(2)
    kit.ec2.stop_instances(InstanceIds=[first])
    kit.control.advance_clock(3)
    (second,) = instance_ids(kit.create_fleet(overrides))
    kit.ec2.terminate_instances(InstanceIds=[second])
    kit.control.advance_clock(3)
    assert len(instance_ids(kit.create_fleet(overrides, 2))) == 1


def test_service_quotas_returns_current_and_default_values(kit: FakeAwsClient) -> None:
    client = kit.client("service-quotas")
    kit.control.set_quota(STANDARD, 64)
    found = client.get_service_quota(ServiceCode="ec2", QuotaCode=STANDARD)["Quota"]
    assert (found["QuotaCode"], found["Value"], found["Adjustable"]) == (STANDARD, 64.0, True)
    assert client.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=STANDARD)["Quota"]["Value"] > 64
    pages = client.get_paginator("list_service_quotas").paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 5})
    values = {quota["QuotaCode"]: quota["Value"] for page in pages for quota in page["Quotas"]}
    assert values[STANDARD] == 64.0
    assert {STANDARD_SPOT, GPU} < set(values)
    with raises_code("NoSuchResourceException"):
        client.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")


def test_only_spot_fails_without_the_spot_service_linked_role(kit: FakeAwsClient) -> None:
    kit.control.configure(spot_service_linked_role=False)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type="spot")
    assert set(error_codes(response).values()) == {"AuthFailure.ServiceLinkedRoleCreationNotPermitted"}
    assert instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))
