"""What a launch template says really reaches the instance, and shows where Karpenter and node simulators read it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support.sandbox.aws.kit import USER_DATA, StandInKit, ids, tags


def made(kit: StandInKit, *, capacity_type: str = "on-demand", fleet: dict[str, Any] | None = None, **data: Any) -> Any:
    """The instance that comes of a template with this data."""
    kit.template(**data)
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type=capacity_type, **(fleet or {}))
    return kit.describe(ids(answer)[0])


def test_groups_of_the_templates_interface_reach_instance_and_interface(kit: StandInKit) -> None:
    instance = made(kit)
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [kit.group()]
    assert instance["NetworkInterfaces"][0]["Groups"] == instance["SecurityGroups"]


def test_groups_without_interfaces_reach_it_too(kit: StandInKit) -> None:
    instance = made(kit, NetworkInterfaces=None, SecurityGroupIds=[kit.group()])
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [kit.group()]


def test_no_groups_mean_the_networks_default(kit: StandInKit) -> None:
    instance = made(kit, NetworkInterfaces=None)
    assert [group["GroupName"] for group in instance["SecurityGroups"]] == ["default"]


def test_groups_on_both_levels_are_refused(kit: StandInKit) -> None:
    kit.template(SecurityGroupIds=[kit.group()])
    answer = kit.fleet(kit.overrides("m5.large", zones="a"))
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InvalidParameterCombination"]


def test_a_type_takes_so_many_interfaces_and_no_more(kit: StandInKit) -> None:
    interfaces = [{"DeviceIndex": number, "Groups": [kit.group()]} for number in range(4)]
    kit.template("three", NetworkInterfaces=interfaces[:3])
    kit.template("four", NetworkInterfaces=interfaces)
    overrides = kit.overrides("m5.large", zones="a")
    assert ids(kit.fleet(overrides, template="three"))
    errors = kit.fleet(overrides, template="four")["Errors"]
    assert [error["ErrorCode"] for error in errors] == ["AttachmentLimitExceeded"]


def test_interfaces_of_an_ipv6_cluster_have_addresses_and_prefixes(kit: StandInKit) -> None:
    interface = {"DeviceIndex": 0, "Groups": [kit.group()], "PrimaryIpv6": True, "Ipv6AddressCount": 1}
    instance = made(kit, NetworkInterfaces=[{**interface, "Ipv6PrefixCount": 1}])
    (shown,) = instance["NetworkInterfaces"]
    assert [one["Ipv6Address"] for one in shown["Ipv6Addresses"]] == [instance["Ipv6Address"]]
    assert len(shown["Ipv6Prefixes"]) == 1


def test_profile_metadata_options_monitoring_and_tenancy(kit: StandInKit) -> None:
    arn = kit.profile()
    instance = made(
        kit,
        IamInstanceProfile={"Name": "nodes"},
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2, "InstanceMetadataTags": "enabled"},
        Monitoring={"Enabled": True},
        Placement={"Tenancy": "dedicated"},
        EnclaveOptions={"Enabled": True},
    )
    assert instance["IamInstanceProfile"]["Arn"] == arn
    options = instance["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 2)
    assert (options["InstanceMetadataTags"], options["HttpEndpoint"]) == ("enabled", "enabled")
    assert instance["Monitoring"]["State"] == "enabled"
    assert instance["Placement"]["Tenancy"] == "dedicated"
    assert instance["EnclaveOptions"]["Enabled"] is True


def test_place_and_name_are_those_of_subnet_and_region(kit: StandInKit) -> None:
    subnet = kit.subnets()[0]
    instance = made(kit)
    assert instance["Placement"]["AvailabilityZone"] == subnet["AvailabilityZone"]
    assert instance["Placement"]["AvailabilityZoneId"] == subnet["AvailabilityZoneId"]
    assert (instance["SubnetId"], instance["VpcId"]) == (subnet["SubnetId"], subnet["VpcId"])
    assert instance["PrivateIpAddress"].startswith("10.0.")
    dashed = instance["PrivateIpAddress"].replace(".", "-")
    assert instance["PrivateDnsName"] == f"ip-{dashed}.us-west-2.compute.internal"


def test_spot_is_known_by_its_request(kit: StandInKit) -> None:
    sir_tags = [{"ResourceType": "spot-instances-request", "Tags": tags(who="me")}]
    instance = made(kit, capacity_type="spot", TagSpecifications=sir_tags)
    assert instance["InstanceLifecycle"] == "spot"
    request_id = instance["SpotInstanceRequestId"]
    (request,) = kit.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[request_id])["SpotInstanceRequests"]
    assert (request["InstanceId"], request["State"]) == (instance["InstanceId"], "active")
    assert request["Tags"] == tags(who="me")


def test_on_demand_has_no_spot_request(kit: StandInKit) -> None:
    instance = made(kit)
    assert "SpotInstanceRequestId" not in instance
    assert "InstanceLifecycle" not in instance
    assert "CapacityReservationId" not in instance
    assert instance["CapacityReservationSpecification"] == {"CapacityReservationPreference": "open"}


def test_tags_of_fleet_template_and_ec2_itself(kit: StandInKit) -> None:
    specifications = [
        {"ResourceType": "instance", "Tags": [{"Key": "karpenter.sh/nodepool", "Value": "default"}]},
        {"ResourceType": "volume", "Tags": tags(disk="yes")},
        {"ResourceType": "fleet", "Tags": tags(fleet="yes")},
    ]
    nic_tags = [{"ResourceType": "network-interface", "Tags": tags(nic="yes")}]
    instance = made(kit, fleet={"TagSpecifications": specifications}, TagSpecifications=nic_tags)
    found = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert found["karpenter.sh/nodepool"] == "default"
    assert found["aws:ec2:fleet-id"].startswith("fleet-")
    assert found["aws:ec2launchtemplate:id"].startswith("lt-")
    assert found["aws:ec2launchtemplate:version"] == "1"
    (volume,) = kit.ec2.describe_volumes()["Volumes"]
    assert volume["Tags"] == tags(disk="yes")
    (interface,) = kit.ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert interface["TagSet"] == tags(nic="yes")
    (fleet,) = kit.ec2.describe_fleets(FleetIds=[found["aws:ec2:fleet-id"]])["Fleets"]
    assert fleet["Tags"] == tags(fleet="yes")


def test_block_devices_of_image_template_and_default(kit: StandInKit) -> None:
    mappings = [
        {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 77, "VolumeType": "gp3", "Encrypted": True}},
        {"DeviceName": "/dev/xvdc", "Ebs": {"VolumeSize": 5, "VolumeType": "io1", "Iops": 200}},
    ]
    instance = made(kit, BlockDeviceMappings=mappings)
    assert [m["DeviceName"] for m in instance["BlockDeviceMappings"]] == ["/dev/xvda", "/dev/xvdc"]
    volumes = {v["Attachments"][0]["Device"]: v for v in kit.ec2.describe_volumes()["Volumes"]}
    assert (volumes["/dev/xvda"]["Size"], volumes["/dev/xvda"]["Encrypted"]) == (77, True)
    assert (volumes["/dev/xvdc"]["VolumeType"], volumes["/dev/xvdc"]["Iops"]) == ("io1", 200)
    assert instance["RootDeviceName"] == "/dev/xvda"


@pytest.mark.parametrize(("public", "expected"), [(True, True), (False, False)])
def test_a_public_address_is_given_when_asked_for(kit: StandInKit, public: bool, expected: bool) -> None:
    nic = {"DeviceIndex": 0, "Groups": [kit.group()], "AssociatePublicIpAddress": public}
    instance = made(kit, NetworkInterfaces=[nic])
    assert ("PublicIpAddress" in instance) == expected


def test_several_interfaces_keep_card_and_kind(kit: StandInKit) -> None:
    groups = [kit.group()]
    nics = [
        {"DeviceIndex": 0, "NetworkCardIndex": 0, "Groups": groups, "InterfaceType": "interface"},
        {"DeviceIndex": 1, "NetworkCardIndex": 1, "Groups": groups, "InterfaceType": "efa-only"},
    ]
    first, second = made(kit, NetworkInterfaces=nics)["NetworkInterfaces"]
    assert first["Attachment"]["DeviceIndex"] == 0
    assert (second["InterfaceType"], second["Attachment"]["NetworkCardIndex"]) == ("efa-only", 1)
    assert "PrivateIpAddress" not in second


def test_user_data_is_read_back_as_it_was_given(kit: StandInKit) -> None:
    instance = made(kit)
    answer = kit.ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    assert answer["UserData"]["Value"] == USER_DATA
    assert base64.b64decode(answer["UserData"]["Value"]).startswith(b"MIME")


def test_an_override_may_change_image_and_placement(kit: StandInKit) -> None:
    kit.template()
    (override,) = kit.overrides("m6g.large", zones="b", ImageId=kit.image("arm64"), Placement={"Tenancy": "dedicated"})
    instance = kit.describe(ids(kit.fleet([override]))[0])
    assert instance["ImageId"] == kit.image("arm64")
    assert instance["Architecture"] == "arm64"
    assert instance["Placement"]["Tenancy"] == "dedicated"


def test_a_missing_placement_group_fails_its_pool(kit: StandInKit) -> None:
    kit.template(Placement={"GroupName": "nowhere"})
    answer = kit.fleet(kit.overrides("m5.large", zones="a"))
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InvalidPlacementGroup.Unknown"]
