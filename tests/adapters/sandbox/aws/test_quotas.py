"""Quotas by family class and market, as launches meet them and as Service Quotas tells them; the spot role."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import StandInKit, code, errors_of, ids

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
def test_a_class_of_families_has_its_own_quota(
    kit: StandInKit, quota: str, kind: str, market: str, expected: str
) -> None:
    kit.control.set_quota(quota, 1)
    if kind.startswith("x2gd"):
        kit.control.set_quota(quota, 0)
    arch = "arm64" if kind.startswith("x2gd") else "x86_64"
    kit.template(ImageId=kit.image(arch))
    answer = kit.fleet(kit.overrides(kind, zones="abc"), capacity_type=market)
    assert set(errors_of(answer).values()) - {"Unsupported"} == {expected}
    kit.control.set_quota(quota, None)
    assert ids(kit.fleet(kit.overrides(kind, zones="abc"), capacity_type=market))


def test_one_classes_quota_is_not_anothers(kit: StandInKit) -> None:
    kit.control.set_quota(STANDARD, 2)
    kit.template()
    assert len(ids(kit.fleet(kit.overrides("m5.large", zones="a"), 2))) == 1
    assert ids(kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type="spot"))
    assert ids(kit.fleet(kit.overrides("g5.xlarge", zones="abc")))


def test_stopped_and_terminated_instances_are_not_counted(kit: StandInKit) -> None:
    kit.control.set_quota(STANDARD, 2)
    kit.template()
    overrides = kit.overrides("m5.large", zones="a")
    (first,) = ids(kit.fleet(overrides))
    kit.control.advance(2)
    kit.ec2.stop_instances(InstanceIds=[first])
    kit.control.advance(3)
    (second,) = ids(kit.fleet(overrides))
    kit.ec2.terminate_instances(InstanceIds=[second])
    kit.control.advance(3)
    assert len(ids(kit.fleet(overrides, 2))) == 1


def test_service_quotas_tells_what_is_in_force(kit: StandInKit) -> None:
    client = kit.client("service-quotas")
    kit.control.set_quota(STANDARD, 64)
    found = client.get_service_quota(ServiceCode="ec2", QuotaCode=STANDARD)["Quota"]
    assert (found["QuotaCode"], found["Value"], found["Adjustable"]) == (STANDARD, 64.0, True)
    assert client.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=STANDARD)["Quota"]["Value"] > 64
    pages = client.get_paginator("list_service_quotas").paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 5})
    values = {quota["QuotaCode"]: quota["Value"] for page in pages for quota in page["Quotas"]}
    assert values[STANDARD] == 64.0
    assert {STANDARD_SPOT, GPU} < set(values)
    with pytest.raises(ClientError) as missing:
        client.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")
    assert code(missing) == "NoSuchResourceException"


def test_without_the_spot_role_spot_fails_and_on_demand_does_not(kit: StandInKit) -> None:
    kit.control.configure(spot_service_linked_role=False)
    kit.template()
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type="spot")
    assert set(errors_of(answer).values()) == {"AuthFailure.ServiceLinkedRoleCreationNotPermitted"}
    assert ids(kit.fleet(kit.overrides("m5.large", zones="a")))
