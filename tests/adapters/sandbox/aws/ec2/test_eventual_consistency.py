"""Eventual consistency: new resources are not visible everywhere yet."""

from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, instance_ids, raises_code, tag_list


def test_new_instance_profile_is_unknown_to_ec2_at_first(kit: FakeAwsClient) -> None:
    kit.control.configure(profile_visibility_seconds=10)
    kit.create_instance_profile("fresh")
    assert kit.iam.get_instance_profile(InstanceProfileName="fresh")
    kit.create_template(IamInstanceProfile={"Name": "fresh"})
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert set(error_codes(response).values()) == {"InvalidParameterValue"}
    assert "Invalid IAM Instance Profile name" in response["Errors"][0]["ErrorMessage"]
    kit.control.advance_clock(11)
    assert instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))


def test_new_launch_template_is_not_found_at_first(kit: FakeAwsClient) -> None:
    kit.control.configure(template_visibility_seconds=10)
    template_id = kit.create_template("fresh")
    assert kit.ec2.describe_launch_templates()["LaunchTemplates"] == []
    with raises_code("InvalidLaunchTemplateId.NotFound"):
        kit.ec2.describe_launch_templates(LaunchTemplateIds=[template_id])
    with raises_code("InvalidLaunchTemplateName.NotFoundException"):
        kit.create_fleet(kit.overrides("m5.large"), template="fresh")
    with raises_code("InvalidLaunchTemplateName.AlreadyExistsException"):
        kit.create_template("fresh")
    kit.control.advance_clock(11)
    assert instance_ids(kit.create_fleet(kit.overrides("m5.large"), template="fresh"))


def test_new_instance_cannot_be_listed_tagged_or_terminated_at_first(kit: FakeAwsClient) -> None:
    kit.control.configure(visibility_seconds=10)
    (one,) = kit.launch_instances()
    statuses = kit.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]
    assert kit.list_instance_ids() == statuses == []
    for call, request in (
        (kit.ec2.create_tags, {"Resources": [one], "Tags": tag_list(Name="x")}),
        (kit.ec2.terminate_instances, {"InstanceIds": [one]}),
    ):
        with raises_code("InvalidInstanceID.NotFound"):
            call(**request)
    kit.control.advance_clock(11)
    kit.ec2.create_tags(Resources=[one], Tags=tag_list(Name="x"))
    assert kit.list_instance_ids() == [one]


def test_prefix_uses_sixteen_addresses_until_termination(kit: FakeAwsClient) -> None:
    before = kit.subnets()[0]["AvailableIpAddressCount"]
    kit.create_template(
        NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [kit.security_group_id()], "Ipv4PrefixCount": 2}]
    )
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))
    assert kit.subnets()[0]["AvailableIpAddressCount"] == before - 33
    kit.control.set_free_addresses(kit.subnets()[0]["SubnetId"], 32)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert set(error_codes(response).values()) == {"InsufficientFreeAddressesInSubnet"}
    kit.control.set_free_addresses(kit.subnets()[0]["SubnetId"], None)
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.control.advance_clock(3)
    assert kit.subnets()[0]["AvailableIpAddressCount"] == before
