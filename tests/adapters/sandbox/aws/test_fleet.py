"""CreateFleet: which pool is chosen, what comes back for those that fail, and what is refused outright."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import StandInKit, code, errors_of, ids, types_of


def test_on_demand_takes_the_cheapest_pool_whatever_the_order(kit: StandInKit) -> None:
    kit.template()
    answer = kit.fleet(kit.overrides("r5.large", "c5.large", "m5.large"))
    assert types_of(answer) == ["c5.large"]
    assert answer["Errors"] == []


def test_prioritized_takes_the_lowest_priority_number(kit: StandInKit) -> None:
    kit.template()
    overrides = kit.overrides("c5.large", Priority=2.0) + kit.overrides("r5.large", Priority=0.5)
    answer = kit.fleet(overrides, OnDemandOptions={"AllocationStrategy": "prioritized"})
    assert types_of(answer) == ["r5.large"]


def test_spot_prices_differ_by_zone_and_the_cheapest_is_taken(kit: StandInKit) -> None:
    kit.template()
    history = kit.ec2.describe_spot_price_history(InstanceTypes=["m5.large"])["SpotPriceHistory"]
    seen = {row["AvailabilityZone"]: float(row["SpotPrice"]) for row in history}
    cheapest = min((zone for zone in seen if zone[-1] in "abc"), key=lambda zone: seen[zone])
    answer = kit.fleet(
        kit.overrides("m5.large"),
        capacity_type="spot",
        SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
    )
    (group,) = answer["Instances"]
    assert group["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == cheapest
    assert group["Lifecycle"] == "spot"


def test_capacity_optimized_prioritized_prefers_priority_among_pools_with_room(kit: StandInKit) -> None:
    kit.template()
    kit.control.set_pool(1, instance_type="m5.large")
    overrides = kit.overrides("m5.large", zones="a", Priority=1.0) + kit.overrides("r5.large", zones="a", Priority=2.0)
    options = {"AllocationStrategy": "capacity-optimized-prioritized"}
    assert types_of(kit.fleet(overrides, 1, capacity_type="spot", SpotOptions=options)) == ["m5.large"]
    assert types_of(kit.fleet(overrides, 2, capacity_type="spot", SpotOptions=options)) == ["r5.large"]


def test_diversified_spreads_over_the_pools(kit: StandInKit) -> None:
    kit.template()
    answer = kit.fleet(
        kit.overrides("m5.large", "c5.large", zones="a"),
        4,
        capacity_type="spot",
        SpotOptions={"AllocationStrategy": "diversified"},
    )
    assert sorted(len(group["InstanceIds"]) for group in answer["Instances"]) == [2, 2]


def test_several_instances_of_one_pool_come_as_one_item(kit: StandInKit) -> None:
    kit.template()
    answer = kit.fleet(kit.overrides("m5.large", zones="b"), 5)
    (group,) = answer["Instances"]
    assert len(set(group["InstanceIds"])) == 5
    assert len(kit.ec2.describe_instances()["Reservations"]) == 1


def test_the_answer_names_template_version_and_the_pool_it_used(kit: StandInKit) -> None:
    template_id = kit.template()
    (subnet, *_) = kit.subnets()
    answer = kit.fleet(kit.overrides("m5.large", zones="a", Priority=0.1, ImageId=kit.image()))
    (group,) = answer["Instances"]
    chosen = group["LaunchTemplateAndOverrides"]
    assert chosen["LaunchTemplateSpecification"] == {"LaunchTemplateId": template_id, "Version": "1"}
    assert chosen["Overrides"] == {
        "InstanceType": "m5.large",
        "SubnetId": subnet["SubnetId"],
        "AvailabilityZone": "us-west-2a",
        "Priority": 0.1,
        "ImageId": kit.image(),
    }


def test_an_empty_pool_gives_an_error_and_the_next_one_gives_the_instance(kit: StandInKit) -> None:
    kit.template()
    kit.control.set_pool(0, instance_type="c5.large")
    answer = kit.fleet(kit.overrides("c5.large", "m5.large", zones="a"))
    assert types_of(answer) == ["m5.large"]
    assert errors_of(answer) == {"c5.large/us-west-2a": "InsufficientInstanceCapacity"}
    assert answer["Errors"][0]["Lifecycle"] == "on-demand"


def test_fulfilment_is_partial_when_pools_run_dry(kit: StandInKit) -> None:
    kit.template()
    kit.control.set_pool(2, instance_type="m5.large", zone="us-west-2a")
    kit.control.set_pool(0, instance_type="m5.large", zone="us-west-2b")
    answer = kit.fleet(kit.overrides("m5.large", zones="ab"), 5)
    assert len(ids(answer)) == 2
    assert set(errors_of(answer)) == {"m5.large/us-west-2a", "m5.large/us-west-2b"}


def test_nothing_at_all_is_an_answer_with_errors_not_a_failure(kit: StandInKit) -> None:
    kit.template()
    kit.control.set_pool(0, capacity_type="spot")
    answer = kit.fleet(kit.overrides("m5.large"), 2, capacity_type="spot")
    assert answer["Instances"] == []
    assert set(errors_of(answer).values()) == {"InsufficientInstanceCapacity"}


def test_capacity_comes_back_when_instances_are_gone(kit: StandInKit) -> None:
    kit.template()
    kit.control.set_pool(1, instance_type="m5.large")
    (first,) = ids(kit.fleet(kit.overrides("m5.large", zones="a")))
    assert kit.fleet(kit.overrides("m5.large", zones="a"))["Instances"] == []
    kit.ec2.terminate_instances(InstanceIds=[first])
    kit.control.advance(3)
    assert len(ids(kit.fleet(kit.overrides("m5.large", zones="a")))) == 1


def test_min_target_capacity_is_all_or_nothing(kit: StandInKit) -> None:
    kit.template()
    kit.control.set_pool(2, instance_type="m5.large")
    options = {"AllocationStrategy": "lowest-price", "MinTargetCapacity": 3, "SingleInstanceType": True}
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), 3, OnDemandOptions=options)
    assert answer["Instances"] == []
    assert errors_of(answer) == {"m5.large/us-west-2a": "InsufficientInstanceCapacity"}


@pytest.mark.parametrize(
    ("capacity_type", "expected"), [("on-demand", "VcpuLimitExceeded"), ("spot", "MaxSpotInstanceCountExceeded")]
)
def test_the_accounts_limit_is_its_own_error(kit: StandInKit, capacity_type: str, expected: str) -> None:
    kit.template()
    kit.control.set_vcpu_limit(capacity_type, 4)
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), 3, capacity_type=capacity_type)
    assert len(ids(answer)) == 2
    assert set(errors_of(answer).values()) == {expected}


def test_a_full_subnet_is_its_own_error(kit: StandInKit) -> None:
    kit.template()
    subnet = kit.subnets()[0]["SubnetId"]
    kit.control.set_free_addresses(subnet, 1)
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), 2)
    assert len(ids(answer)) == 1
    assert errors_of(answer) == {"m5.large/us-west-2a": "InsufficientFreeAddressesInSubnet"}
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
def test_what_cannot_be_launched_is_an_error_of_its_pool(
    kit: StandInKit, change: dict[str, str], expected: str
) -> None:
    kit.template()
    (override,) = kit.overrides("m5.large", zones="a")
    answer = kit.fleet([override | change])
    assert answer["Instances"] == []
    assert [error["ErrorCode"] for error in answer["Errors"]] == [expected]


def test_a_type_that_a_zone_does_not_offer_is_unsupported(kit: StandInKit) -> None:
    kit.template()
    pages = kit.ec2.get_paginator("describe_instance_type_offerings").paginate(LocationType="availability-zone")
    offered = {(row["InstanceType"], row["Location"][-1]) for page in pages for row in page["InstanceTypeOfferings"]}
    named, lacking = next((name, z) for name, _ in sorted(offered) for z in "abc" if (name, z) not in offered)
    answer = kit.fleet(kit.overrides(named, zones=lacking))
    assert set(errors_of(answer).values()) == {"Unsupported"}


def test_a_group_of_another_network_is_an_error_of_its_pool(kit: StandInKit) -> None:
    other = kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    group = kit.ec2.create_security_group(GroupName="far", Description="far", VpcId=other)["GroupId"]
    kit.template(NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [group]}])
    answer = kit.fleet(kit.overrides("m5.large", zones="a"))
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InvalidParameter"]
    assert "belong to different networks" in answer["Errors"][0]["ErrorMessage"]


def test_a_missing_profile_is_named_as_clients_look_for_it(kit: StandInKit) -> None:
    kit.template(IamInstanceProfile={"Name": "nobody"})
    answer = kit.fleet(kit.overrides("m5.large", zones="a"))
    (error,) = answer["Errors"]
    assert error["ErrorCode"] == "InvalidParameterValue"
    assert "Invalid IAM Instance Profile name" in error["ErrorMessage"]


def test_a_missing_template_fails_the_whole_call(kit: StandInKit) -> None:
    with pytest.raises(ClientError) as missing:
        kit.fleet(kit.overrides("m5.large"), template="nothing-there")
    assert code(missing) == "InvalidLaunchTemplateName.NotFoundException"


def test_a_missing_version_fails_the_whole_call(kit: StandInKit) -> None:
    kit.template()
    specification = {"LaunchTemplateName": "karpenter.k8s.aws/1", "Version": "7"}
    configs = [{"LaunchTemplateSpecification": specification, "Overrides": kit.overrides("m5.large")}]
    with pytest.raises(ClientError) as missing:
        kit.fleet([], LaunchTemplateConfigs=configs)
    assert code(missing) == "InvalidLaunchTemplateId.VersionNotFound"


def test_empty_configs_are_a_client_error(kit: StandInKit) -> None:
    with pytest.raises(ClientError) as refused:
        kit.fleet([], LaunchTemplateConfigs=[])
    assert code(refused) == "MissingParameter"


def test_spot_options_without_a_strategy_are_no_crash(kit: StandInKit) -> None:
    kit.template()
    answer = kit.fleet(kit.overrides("m5.large"), capacity_type="spot", SpotOptions={"MaxTotalPrice": "10"})
    assert len(ids(answer)) == 1


def test_dry_run_answers_that_it_would_work_and_makes_nothing(kit: StandInKit) -> None:
    kit.template()
    with pytest.raises(ClientError) as dry:
        kit.fleet(kit.overrides("m5.large"), DryRun=True)
    assert code(dry) == "DryRunOperation"
    assert kit.control.instances()["launched"] == 0


def test_targets_of_both_kinds_are_kept_apart(kit: StandInKit) -> None:
    kit.template()
    target = {
        "TotalTargetCapacity": 5,
        "OnDemandTargetCapacity": 2,
        "SpotTargetCapacity": 1,
        "DefaultTargetCapacityType": "spot",
    }
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), TargetCapacitySpecification=target)
    counts = {group["Lifecycle"]: len(group["InstanceIds"]) for group in answer["Instances"]}
    assert counts == {"on-demand": 2, "spot": 3}


def test_several_templates_are_one_choice(kit: StandInKit) -> None:
    kit.template("one")
    kit.template("two", ImageId=kit.image("arm64"))
    configs = [
        {"LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"}, "Overrides": overrides}
        for name, overrides in (("one", kit.overrides("m5.large")), ("two", kit.overrides("m6g.large")))
    ]
    answer = kit.fleet([], LaunchTemplateConfigs=configs)
    (instance_id,) = ids(answer)
    assert types_of(answer) == ["m6g.large"]
    assert kit.describe(instance_id)["Architecture"] == "arm64"


def test_a_spot_bid_below_the_price_is_refused_by_its_pool(kit: StandInKit) -> None:
    kit.template()
    answer = kit.fleet(kit.overrides("m5.large", zones="a", MaxPrice="0.0001"), capacity_type="spot")
    assert errors_of(answer) == {"m5.large/us-west-2a": "SpotMaxPriceTooLow"}
