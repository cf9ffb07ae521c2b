"""CreateFleet requests and the parsing of CreateFleet results."""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import ResolvedSubnet
from tenure.aws.instance.create_fleet import create_fleet_request, parse_fleet_result
from tenure.aws.instance.nodeclaim_status import launch_facts
from tenure.aws.nodeclass.subnets_and_security_groups import FoundSubnet, FreeAddresses
from tenure.model.instance_types import InstanceType
from tenure.model.launch import FleetInstance
from tests.support.aws.builders import build_nodeclaim, build_nodeclass, launch_group, resolved_status

CHOSEN = {"InstanceType": "m5.large", "SubnetId": "subnet-a", "AvailabilityZone": "us-west-2a", "ImageId": "ami-1"}


def launched_instances(*ids: str, lifecycle: str = "on-demand", chosen: dict[str, Any] | None = None) -> dict[str, Any]:
    overrides = CHOSEN if chosen is None else chosen
    return {"InstanceIds": list(ids), "Lifecycle": lifecycle, "LaunchTemplateAndOverrides": {"Overrides": overrides}}


def fleet_error(code: str, **chosen: str) -> dict[str, Any]:
    return {"ErrorCode": code, "ErrorMessage": "no", "LaunchTemplateAndOverrides": {"Overrides": CHOSEN | chosen}}


def test_request_has_token_capacity_and_tags_of_group() -> None:
    one = launch_group(members=3)
    request = create_fleet_request(one)
    assert request["Type"] == "instant"
    assert request["ClientToken"] == one.client_token()
    assert request["TargetCapacitySpecification"] == {
        "DefaultTargetCapacityType": "on-demand",
        "TotalTargetCapacity": 3,
    }
    assert request["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    assert {spec["ResourceType"] for spec in request["TagSpecifications"]} == {"fleet", "instance", "volume"}
    tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][1]["Tags"]}
    own = {"tenure.sh/launch-group": "plan-1", "tenure.sh/launch-token": one.client_token()}
    assert tags == {labels.TAG_NODEPOOL: "general", **own}


def test_single_nodeclaim_is_named_on_its_instance() -> None:
    tags = create_fleet_request(launch_group(members=1))["TagSpecifications"][1]["Tags"]
    assert {"Key": labels.TAG_NODECLAIM, "Value": "general-0"} in tags


def test_spot_has_its_own_allocation_strategy() -> None:
    request = create_fleet_request(launch_group(capacity_type="spot"))
    assert request["SpotOptions"] == {"AllocationStrategy": "price-capacity-optimized"}
    assert "OnDemandOptions" not in request


@pytest.mark.parametrize(
    ("capacity_type", "options", "strategy"),
    (
        ("on-demand", "OnDemandOptions", "prioritized"),
        ("spot", "SpotOptions", "capacity-optimized-prioritized"),
    ),
)
def test_overlay_prices_are_priorities(capacity_type: str, options: str, strategy: str) -> None:
    plain = launch_group(capacity_type=capacity_type)
    prioritized = plain.model_copy(update={"request": plain.request.model_copy(update={"prioritized": True})})
    assert create_fleet_request(prioritized)[options] == {"AllocationStrategy": strategy}
    assert prioritized.client_token() != plain.client_token()


def test_overrides_are_grouped_by_launch_template() -> None:
    configs = create_fleet_request(launch_group())["LaunchTemplateConfigs"]
    assert [len(config["Overrides"]) for config in configs] == [2, 2]
    assert configs[0]["LaunchTemplateSpecification"] == {
        "LaunchTemplateName": "karpenter.k8s.aws/0",
        "Version": "$Latest",
    }
    assert configs[0]["Overrides"][0] == CHOSEN | {"Priority": 0.1}


def test_request_is_deterministic_and_new_attempt_has_new_token() -> None:
    assert create_fleet_request(launch_group(2)) == create_fleet_request(launch_group(2))
    assert (
        create_fleet_request(launch_group(2))["ClientToken"]
        != create_fleet_request(launch_group(2, attempt=2))["ClientToken"]
    )


@pytest.mark.parametrize(
    "instances",
    [
        [launched_instances("i-1", "i-2"), launched_instances("i-3", lifecycle="spot")],
        [launched_instances("i-1"), launched_instances("i-2"), launched_instances("i-3", lifecycle="spot")],
    ],
)
def test_instances_keep_their_capacity_type(instances: list[dict[str, Any]]) -> None:
    found = parse_fleet_result(launch_group(3), {"Instances": instances})
    assert [one.instance_id for one in found.instances] == ["i-1", "i-2", "i-3"]
    assert [one.capacity_type for one in found.instances] == ["on-demand", "on-demand", "spot"]
    assert found.instances[0].zone == "us-west-2a"
    assert not found.errors


def test_missing_result_fields_come_from_request() -> None:
    bare = {"InstanceType": "m5.large", "SubnetId": "subnet-b"}
    found = parse_fleet_result(launch_group(), {"Instances": [launched_instances("i-1", chosen=bare)]}).instances[0]
    assert (found.zone, found.image_id) == ("us-west-2b", "ami-1")


def test_errors_are_classified_with_their_offering() -> None:
    raw = {"Errors": [fleet_error("InsufficientInstanceCapacity"), fleet_error("InvalidAMIID.NotFound")]}
    invalid, short = parse_fleet_result(launch_group(), raw).errors
    assert (short.instance_type, short.zone, short.capacity_type) == ("m5.large", "us-west-2a", "on-demand")
    assert short.insufficient
    assert not invalid.insufficient
    assert invalid.reason == "AMINotFound"


@pytest.mark.parametrize("raw", [{}, {"Instances": [], "Errors": []}])
def test_empty_result_is_insufficient_capacity(raw: dict[str, Any]) -> None:
    error = parse_fleet_result(launch_group(), raw).errors[0]
    assert error.code == "UnfulfillableCapacity"
    assert error.insufficient


def test_subnet_with_most_free_addresses_is_chosen_even_if_all_seem_full() -> None:
    free = FreeAddresses()
    subnets = [ResolvedSubnet(id=name, zone="us-west-2a") for name in ("subnet-a", "subnet-b")]
    assert free.choose_subnets(subnets) == {"us-west-2a": "subnet-a"}
    free.record_subnets(
        [
            FoundSubnet(id="subnet-a", zone="", zone_id="", free=5),
            FoundSubnet(id="subnet-b", zone="", zone_id="", free=9),
        ]
    )
    assert free.choose_subnets(subnets) == {"us-west-2a": "subnet-b"}
    free.record_launch("subnet-b", 6)
    assert free.choose_subnets(subnets) == {"us-west-2a": "subnet-a"}
    free.record_launch("subnet-a", 5)
    assert free.choose_subnets(subnets) == {"us-west-2a": "subnet-b"}
    assert free.choose_subnets([subnets[0], ResolvedSubnet(id="new", zone="us-west-2a")]) == {"us-west-2a": "new"}
    free.record_launch("subnet-b", 3)
    assert free.choose_subnets(subnets) == {"us-west-2a": "subnet-a"}


def test_nodeclaim_has_single_valued_labels_and_capacity() -> None:
    found = InstanceType(
        name="m5.large",
        labels={
            labels.ARCH: ("amd64",),
            labels.ZONE: ("us-west-2a", "us-west-2b"),
            labels.CAPACITY_RESERVATION_ID: ("cr-1",),
        },
        capacity={"cpu": 2000, "memory": 10, "pods": 29, labels.EFA: 1, labels.NEURON: 0},
        overhead={"cpu": 70},
        offerings=(),
    )
    instance = FleetInstance(
        instance_id="i-1",
        instance_type="m5.large",
        zone="us-west-2b",
        subnet_id="subnet-b",
        image_id="ami-1",
        capacity_type="spot",
    )
    facts = launch_facts(instance, found, build_nodeclass(resolved_status()), build_nodeclaim())
    assert facts.provider_id == "aws:///us-west-2b/i-1"
    assert facts.labels == {
        labels.ARCH: "amd64",
        labels.INSTANCE_TYPE: "m5.large",
        labels.ZONE: "us-west-2b",
        labels.ZONE_ID: "usw2-az2",
        labels.CAPACITY_TYPE: "spot",
        labels.INSTANCE_TENANCY: "default",
        labels.NODEPOOL: "general",
        labels.NODECLASS: "default",
    }
    assert facts.capacity == {"cpu": 2000, "memory": 10, "pods": 29}
    assert facts.allocatable == {"cpu": 1930, "memory": 10, "pods": 29}
    assert facts.annotations == {labels.INSTANCE_PROFILE_NAME: "demo_profile"}


def test_nodeclaim_names_instance_profile_of_launch() -> None:
    one = launch_group()
    launched = one.model_copy(update={"request": one.request.model_copy(update={"instance_profile": "demo_before"})})
    (instance,) = parse_fleet_result(launched, {"Instances": [{"InstanceIds": ["i-1"]}]}).instances
    facts = launch_facts(instance, None, build_nodeclass(resolved_status()), build_nodeclaim())
    assert facts.annotations[labels.INSTANCE_PROFILE_NAME] == "demo_before"
    by_hand = instance.model_copy(update={"instance_profile": ""})
    facts = launch_facts(by_hand, None, build_nodeclass(resolved_status()), build_nodeclaim())
    assert facts.annotations[labels.INSTANCE_PROFILE_NAME] == "demo_profile"
