"""Launch template data reaches the instance, in the fields that Karpenter and the node simulator read."""

import base64
from typing import Any

import pytest

from tests.support.sandbox.aws.kit import USER_DATA, FakeAwsClient, instance_ids, tag_list


def launch_from_template(
    kit: FakeAwsClient, *, capacity_type: str = "on-demand", fleet: dict[str, Any] | None = None, **data: Any
) -> Any:
    """The instance that launches from a template with this data."""
    kit.create_template(**data)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type=capacity_type, **(fleet or {}))
    return kit.describe_instance(instance_ids(response)[0])


def test_security_groups_of_a_template_interface_apply(kit: FakeAwsClient) -> None:
    instance = launch_from_template(kit)
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [kit.security_group_id()]
    assert instance["NetworkInterfaces"][0]["Groups"] == instance["SecurityGroups"]


def test_security_groups_without_interfaces_apply(kit: FakeAwsClient) -> None:
    instance = launch_from_template(kit, NetworkInterfaces=None, SecurityGroupIds=[kit.security_group_id()])
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [kit.security_group_id()]


def test_default_security_group_applies_without_groups(kit: FakeAwsClient) -> None:
    instance = launch_from_template(kit, NetworkInterfaces=None)
    assert [group["GroupName"] for group in instance["SecurityGroups"]] == ["default"]


def test_security_groups_on_both_levels_are_rejected(kit: FakeAwsClient) -> None:
    kit.create_template(SecurityGroupIds=[kit.security_group_id()])
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert [error["ErrorCode"] for error in response["Errors"]] == ["InvalidParameterCombination"]


def test_interface_limit_of_a_type_is_enforced(kit: FakeAwsClient) -> None:
    interfaces = [{"DeviceIndex": number, "Groups": [kit.security_group_id()]} for number in range(4)]
    kit.create_template("three", NetworkInterfaces=interfaces[:3])
    kit.create_template("four", NetworkInterfaces=interfaces)
    overrides = kit.overrides("m5.large", zones="a")
    assert instance_ids(kit.create_fleet(overrides, template="three"))
    errors = kit.create_fleet(overrides, template="four")["Errors"]
    assert [error["ErrorCode"] for error in errors] == ["AttachmentLimitExceeded"]


def test_ipv6_interface_has_address_and_prefix(kit: FakeAwsClient) -> None:
    interface = {"DeviceIndex": 0, "Groups": [kit.security_group_id()], "PrimaryIpv6": True, "Ipv6AddressCount": 1}
    instance = launch_from_template(kit, NetworkInterfaces=[{**interface, "Ipv6PrefixCount": 1}])
    (network_interface,) = instance["NetworkInterfaces"]
    assert [one["Ipv6Address"] for one in network_interface["Ipv6Addresses"]] == [instance["Ipv6Address"]]
    assert len(network_interface["Ipv6Prefixes"]) == 1


def test_profile_metadata_options_monitoring_and_tenancy_apply(kit: FakeAwsClient) -> None:
    arn = kit.create_instance_profile()
    instance = launch_from_template(
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


def test_placement_and_dns_name_follow_subnet_and_region(kit: FakeAwsClient) -> None:
    subnet = kit.subnets()[0]
    instance = launch_from_template(kit)
    assert instance["Placement"]["AvailabilityZone"] == subnet["AvailabilityZone"]
    assert instance["Placement"]["AvailabilityZoneId"] == subnet["AvailabilityZoneId"]
    assert (instance["SubnetId"], instance["VpcId"]) == (subnet["SubnetId"], subnet["VpcId"])
    assert instance["PrivateIpAddress"].startswith("10.0.")
    dashed = instance["PrivateIpAddress"].replace(".", "-")
    assert instance["PrivateDnsName"] == f"ip-{dashed}.us-west-2.compute.internal"


def test_spot_instance_has_a_spot_request(kit: FakeAwsClient) -> None:
    sir_tags = [{"ResourceType": "spot-instances-request", "Tags": tag_list(who="me")}]
    instance = launch_from_template(kit, capacity_type="spot", TagSpecifications=sir_tags)
    assert instance["InstanceLifecycle"] == "spot"
    request_id = instance["SpotInstanceRequestId"]
    (request,) = kit.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[request_id])["SpotInstanceRequests"]
    assert (request["InstanceId"], request["State"]) == (instance["InstanceId"], "active")
    assert request["Tags"] == tag_list(who="me")


def test_on_demand_instance_has_no_spot_request(kit: FakeAwsClient) -> None:
    instance = launch_from_template(kit)
    assert "SpotInstanceRequestId" not in instance
    assert "InstanceLifecycle" not in instance
    assert "CapacityReservationId" not in instance
    assert instance["CapacityReservationSpecification"] == {"CapacityReservationPreference": "open"}


def test_tags_of_fleet_template_and_ec2_are_applied(kit: FakeAwsClient) -> None:
    specifications = [
        {"ResourceType": "instance", "Tags": [{"Key": "karpenter.sh/nodepool", "Value": "default"}]},
        {"ResourceType": "volume", "Tags": tag_list(disk="yes")},
        {"ResourceType": "fleet", "Tags": tag_list(fleet="yes")},
    ]
    nic_tags = [{"ResourceType": "network-interface", "Tags": tag_list(nic="yes")}]
    instance = launch_from_template(kit, fleet={"TagSpecifications": specifications}, TagSpecifications=nic_tags)
    found = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert found["karpenter.sh/nodepool"] == "default"
    assert found["aws:ec2:fleet-id"].startswith("fleet-")
    assert found["aws:ec2launchtemplate:id"].startswith("lt-")
    assert found["aws:ec2launchtemplate:version"] == "1"
    (volume,) = kit.ec2.describe_volumes()["Volumes"]
    assert volume["Tags"] == tag_list(disk="yes")
    (interface,) = kit.ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert interface["TagSet"] == tag_list(nic="yes")
    (fleet,) = kit.ec2.describe_fleets(FleetIds=[found["aws:ec2:fleet-id"]])["Fleets"]
    assert fleet["Tags"] == tag_list(fleet="yes")


def test_block_devices_of_the_template_are_created(kit: FakeAwsClient) -> None:
    mappings = [
        {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 77, "VolumeType": "gp3", "Encrypted": True}},
        {"DeviceName": "/dev/xvdc", "Ebs": {"VolumeSize": 5, "VolumeType": "io1", "Iops": 200}},
    ]
    instance = launch_from_template(kit, BlockDeviceMappings=mappings)
    assert [m["DeviceName"] for m in instance["BlockDeviceMappings"]] == ["/dev/xvda", "/dev/xvdc"]
    volumes = {v["Attachments"][0]["Device"]: v for v in kit.ec2.describe_volumes()["Volumes"]}
    assert (volumes["/dev/xvda"]["Size"], volumes["/dev/xvda"]["Encrypted"]) == (77, True)
    assert (volumes["/dev/xvdc"]["VolumeType"], volumes["/dev/xvdc"]["Iops"]) == ("io1", 200)
    assert instance["RootDeviceName"] == "/dev/xvda"


@pytest.mark.parametrize(("public", "expected"), [(True, True), (False, False)])
def test_public_address_is_assigned_on_request(kit: FakeAwsClient, public: bool, expected: bool) -> None:
    nic = {"DeviceIndex": 0, "Groups": [kit.security_group_id()], "AssociatePublicIpAddress": public}
    instance = launch_from_template(kit, NetworkInterfaces=[nic])
    assert ("PublicIpAddress" in instance) == expected


def test_interfaces_keep_network_card_and_type(kit: FakeAwsClient) -> None:
    groups = [kit.security_group_id()]
    nics = [
        {"DeviceIndex": 0, "NetworkCardIndex": 0, "Groups": groups, "InterfaceType": "interface"},
        {"DeviceIndex": 1, "NetworkCardIndex": 1, "Groups": groups, "InterfaceType": "efa-only"},
    ]
    first, second = launch_from_template(kit, NetworkInterfaces=nics)["NetworkInterfaces"]
    assert first["Attachment"]["DeviceIndex"] == 0
    assert (second["InterfaceType"], second["Attachment"]["NetworkCardIndex"]) == ("efa-only", 1)
    assert "PrivateIpAddress" not in second


def test_user_data_is_returned_unchanged(kit: FakeAwsClient) -> None:
    instance = launch_from_template(kit)
    response = kit.ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    assert response["UserData"]["Value"] == USER_DATA
    assert base64.b64decode(response["UserData"]["Value"]).startswith(b"MIME")


def test_override_can_change_image_and_placement(kit: FakeAwsClient) -> None:
    (override,) = kit.overrides(
        "m6g.large", zones="b", ImageId=kit.image_id("arm64"), Placement={"Tenancy": "dedicated"}
    )
    instance = kit.describe_instance(instance_ids(kit.create_fleet([override]))[0])
    assert instance["ImageId"] == kit.image_id("arm64")
    assert instance["Architecture"] == "arm64"
    assert instance["Placement"]["Tenancy"] == "dedicated"


def test_missing_placement_group_is_an_error_of_its_pool(kit: FakeAwsClient) -> None:
    kit.create_template(Placement={"GroupName": "nowhere"})
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert [error["ErrorCode"] for error in response["Errors"]] == ["InvalidPlacementGroup.Unknown"]
