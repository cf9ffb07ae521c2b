"""CreateFleet: choice of pools, errors of single pools, and rejected requests."""

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, instance_ids, instance_types, raises_code


def test_on_demand_uses_the_cheapest_pool_in_any_order(kit: FakeAwsClient) -> None:
    response = kit.create_fleet(kit.overrides("r5.large", "c5.large", "m5.large"))
    assert instance_types(response) == ["c5.large"]
    assert response["Errors"] == []


def test_prioritized_uses_the_lowest_priority_number(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("c5.large", Priority=2.0) + kit.overrides("r5.large", Priority=0.5)
    response = kit.create_fleet(overrides, OnDemandOptions={"AllocationStrategy": "prioritized"})
    assert instance_types(response) == ["r5.large"]


def test_spot_uses_the_cheapest_zone(kit: FakeAwsClient) -> None:
    kit.create_template()
    history = kit.ec2.describe_spot_price_history(InstanceTypes=["m5.large"])["SpotPriceHistory"]
    spot_prices = {row["AvailabilityZone"]: float(row["SpotPrice"]) for row in history}
    cheapest = min((zone for zone in spot_prices if zone[-1] in "abc"), key=lambda zone: spot_prices[zone])
    response = kit.create_fleet(
        kit.overrides("m5.large"),
        capacity_type="spot",
        SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
    )
    (group,) = response["Instances"]
    assert group["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == cheapest
    assert group["Lifecycle"] == "spot"


def test_capacity_optimized_prioritized_prefers_priority_among_pools_with_capacity(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.set_pool(1, instance_type="m5.large")
    overrides = kit.overrides("m5.large", zones="a", Priority=1.0) + kit.overrides("r5.large", zones="a", Priority=2.0)
    options = {"AllocationStrategy": "capacity-optimized-prioritized"}
    assert instance_types(kit.create_fleet(overrides, 1, capacity_type="spot", SpotOptions=options)) == ["m5.large"]
    assert instance_types(kit.create_fleet(overrides, 2, capacity_type="spot", SpotOptions=options)) == ["r5.large"]


def test_diversified_spreads_over_pools(kit: FakeAwsClient) -> None:
    kit.create_template()
    response = kit.create_fleet(
        kit.overrides("m5.large", "c5.large", zones="a"),
        4,
        capacity_type="spot",
        SpotOptions={"AllocationStrategy": "diversified"},
    )
    assert sorted(len(group["InstanceIds"]) for group in response["Instances"]) == [2, 2]


def test_instances_of_one_pool_are_one_item(kit: FakeAwsClient) -> None:
    response = kit.create_fleet(kit.overrides("m5.large", zones="b"), 5)
    (group,) = response["Instances"]
    assert len(set(group["InstanceIds"])) == 5
    assert len(kit.ec2.describe_instances()["Reservations"]) == 1


def test_response_names_template_version_and_pool(kit: FakeAwsClient) -> None:
    template_id = kit.create_template()
    (subnet, *_) = kit.subnets()
    response = kit.create_fleet(kit.overrides("m5.large", zones="a", Priority=0.1, ImageId=kit.image_id()))
    (group,) = response["Instances"]
    chosen = group["LaunchTemplateAndOverrides"]
    assert chosen["LaunchTemplateSpecification"] == {"LaunchTemplateId": template_id, "Version": "1"}
    assert chosen["Overrides"] == {
        "InstanceType": "m5.large",
        "SubnetId": subnet["SubnetId"],
        "AvailabilityZone": "us-west-2a",
        "Priority": 0.1,
        "ImageId": kit.image_id(),
    }


def test_empty_pool_is_an_error_and_the_next_pool_is_used(kit: FakeAwsClient) -> None:
    kit.control.set_pool(0, instance_type="c5.large")
    response = kit.create_fleet(kit.overrides("c5.large", "m5.large", zones="a"))
    assert instance_types(response) == ["m5.large"]
    assert error_codes(response) == {"c5.large/us-west-2a": "InsufficientInstanceCapacity"}
    assert response["Errors"][0]["Lifecycle"] == "on-demand"


def test_fleet_is_partial_when_pools_run_out(kit: FakeAwsClient) -> None:
    kit.control.set_pool(2, instance_type="m5.large", zone="us-west-2a")
    kit.control.set_pool(0, instance_type="m5.large", zone="us-west-2b")
    response = kit.create_fleet(kit.overrides("m5.large", zones="ab"), 5)
    assert len(instance_ids(response)) == 2
    assert set(error_codes(response)) == {"m5.large/us-west-2a", "m5.large/us-west-2b"}


def test_fleet_without_capacity_is_a_response_with_errors(kit: FakeAwsClient) -> None:
    kit.control.set_pool(0, capacity_type="spot")
    response = kit.create_fleet(kit.overrides("m5.large"), 2, capacity_type="spot")
    assert response["Instances"] == []
    assert set(error_codes(response).values()) == {"InsufficientInstanceCapacity"}


def test_terminated_instances_return_their_capacity(kit: FakeAwsClient) -> None:
    kit.control.set_pool(1, instance_type="m5.large")
    (first,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))
    assert kit.create_fleet(kit.overrides("m5.large", zones="a"))["Instances"] == []
    kit.ec2.terminate_instances(InstanceIds=[first])
    kit.control.advance_clock(3)
    assert len(instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))) == 1


def test_min_target_capacity_is_all_or_nothing(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.set_pool(2, instance_type="m5.large")
    options = {"AllocationStrategy": "lowest-price", "MinTargetCapacity": 3, "SingleInstanceType": True}
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), 3, OnDemandOptions=options)
    assert response["Instances"] == []
    assert error_codes(response) == {"m5.large/us-west-2a": "InsufficientInstanceCapacity"}


@pytest.mark.parametrize(
    ("capacity_type", "expected"), [("on-demand", "VcpuLimitExceeded"), ("spot", "MaxSpotInstanceCountExceeded")]
)
def test_vcpu_limit_has_its_own_error(kit: FakeAwsClient, capacity_type: str, expected: str) -> None:
    kit.create_template()
    kit.control.set_vcpu_limit(capacity_type, 4)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), 3, capacity_type=capacity_type)
    assert len(instance_ids(response)) == 2
    assert set(error_codes(response).values()) == {expected}


def test_full_subnet_has_its_own_error(kit: FakeAwsClient) -> None:
    subnet = kit.subnets()[0]["SubnetId"]
    kit.control.set_free_addresses(subnet, 1)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), 2)
    assert len(instance_ids(response)) == 1
    assert error_codes(response) == {"m5.large/us-west-2a": "InsufficientFreeAddressesInSubnet"}
    assert kit.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"] == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"InstanceType": "m99.huge"}, "InvalidParameterValue"),
        ({"AvailabilityZone": "us-west-2b"}, "InvalidFleetConfiguration"),
        ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "banana"}, "InvalidAMIID.Malformed"),
        ({"InstanceType": "m6g.large"}, "InvalidParameterValue"),
    ],
)
def test_invalid_override_is_an_error_of_its_pool(kit: FakeAwsClient, change: dict[str, str], expected: str) -> None:
    (override,) = kit.overrides("m5.large", zones="a")
    response = kit.create_fleet([override | change])
    assert response["Instances"] == []
    assert [error["ErrorCode"] for error in response["Errors"]] == [expected]


def test_type_not_offered_in_a_zone_is_unsupported(kit: FakeAwsClient) -> None:
    pages = kit.ec2.get_paginator("describe_instance_type_offerings").paginate(LocationType="availability-zone")
    offered = {(row["InstanceType"], row["Location"][-1]) for page in pages for row in page["InstanceTypeOfferings"]}
    named, lacking = next((name, z) for name, _ in sorted(offered) for z in "abc" if (name, z) not in offered)
    response = kit.create_fleet(kit.overrides(named, zones=lacking))
    assert set(error_codes(response).values()) == {"Unsupported"}


def test_security_group_of_another_vpc_is_an_error_of_its_pool(kit: FakeAwsClient) -> None:
    other = kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    group = kit.ec2.create_security_group(GroupName="far", Description="far", VpcId=other)["GroupId"]
    kit.create_template(NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [group]}])
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert [error["ErrorCode"] for error in response["Errors"]] == ["InvalidParameter"]
    assert "belong to different networks" in response["Errors"][0]["ErrorMessage"]


def test_missing_template_fails_the_call(kit: FakeAwsClient) -> None:
    with raises_code("InvalidLaunchTemplateName.NotFoundException"):
        kit.create_fleet(kit.overrides("m5.large"), template="nothing-there")


def test_missing_template_version_fails_the_call(kit: FakeAwsClient) -> None:
    kit.create_template()
    specification = {"LaunchTemplateName": "karpenter.k8s.aws/1", "Version": "7"}
    configs = [{"LaunchTemplateSpecification": specification, "Overrides": kit.overrides("m5.large")}]
    with raises_code("InvalidLaunchTemplateId.VersionNotFound"):
        kit.create_fleet([], LaunchTemplateConfigs=configs)


def test_empty_configs_are_rejected(kit: FakeAwsClient) -> None:
    with raises_code("MissingParameter"):
        kit.create_fleet([], LaunchTemplateConfigs=[])


def test_spot_options_without_a_strategy_are_accepted(kit: FakeAwsClient) -> None:
    kit.create_template()
    response = kit.create_fleet(kit.overrides("m5.large"), capacity_type="spot", SpotOptions={"MaxTotalPrice": "10"})
    assert len(instance_ids(response)) == 1


def test_on_demand_and_spot_targets_are_separate(kit: FakeAwsClient) -> None:
    target = {
        "TotalTargetCapacity": 5,
        "OnDemandTargetCapacity": 2,
        "SpotTargetCapacity": 1,
        "DefaultTargetCapacityType": "spot",
    }
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), TargetCapacitySpecification=target)
    counts = {group["Lifecycle"]: len(group["InstanceIds"]) for group in response["Instances"]}
    assert counts == {"on-demand": 2, "spot": 3}


def test_fleet_chooses_among_several_templates(kit: FakeAwsClient) -> None:
    kit.create_template("one")
    kit.create_template("two", ImageId=kit.image_id("arm64"))
    configs = [
        {"LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"}, "Overrides": overrides}
        for name, overrides in (("one", kit.overrides("m5.large")), ("two", kit.overrides("m6g.large")))
    ]
    response = kit.create_fleet([], LaunchTemplateConfigs=configs)
    (instance_id,) = instance_ids(response)
    assert instance_types(response) == ["m6g.large"]
    assert kit.describe_instance(instance_id)["Architecture"] == "arm64"


def test_spot_max_price_below_the_price_is_an_error_of_its_pool(kit: FakeAwsClient) -> None:
    response = kit.create_fleet(kit.overrides("m5.large", zones="a", MaxPrice="0.0001"), capacity_type="spot")
    assert error_codes(response) == {"m5.large/us-west-2a": "SpotMaxPriceTooLow"}
