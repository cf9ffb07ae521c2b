"""The states of an instance by the stand-in's clock: released resources, and calls that a state does not allow."""

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, instance_ids, raises_code


def state(kit: FakeAwsClient, instance_id: str) -> str:
    return str(kit.describe_instance(instance_id)["State"]["Name"])


def test_instance_states_from_pending_to_removed(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    assert state(kit, one) == "pending"
    kit.control.advance_clock(1.1)
    assert state(kit, one) == "running"
    (change,) = kit.ec2.terminate_instances(InstanceIds=[one])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    assert state(kit, one) == "shutting-down"
    kit.control.advance_clock(2.1)
    assert state(kit, one) == "terminated"
    kit.control.advance_clock(61)
    with raises_code("InvalidInstanceID.NotFound"):
        kit.describe_instance(one)


def test_one_clock_advance_passes_all_states(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.control.advance_clock(70)
    assert kit.list_instance_ids() == []
    assert kit.control.list_instances()["terminated"] == 1


def test_terminate_is_idempotent(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.ec2.terminate_instances(InstanceIds=[one])
    (repeated,) = kit.ec2.terminate_instances(InstanceIds=[one])["TerminatingInstances"]
    assert (repeated["PreviousState"]["Name"], repeated["CurrentState"]["Name"]) == ("shutting-down", "shutting-down")
    kit.control.advance_clock(3)
    (after,) = kit.ec2.terminate_instances(InstanceIds=[one, one])["TerminatingInstances"]
    assert after["CurrentState"]["Name"] == "terminated"


def test_terminate_with_a_missing_id_terminates_none(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    with raises_code("InvalidInstanceID.NotFound"):
        kit.ec2.terminate_instances(InstanceIds=[one, "i-0123456789abcdef0"])
    assert state(kit, one) == "pending"


def test_terminated_instance_releases_address_and_volumes(kit: FakeAwsClient) -> None:
    subnet = kit.subnets()[0]["SubnetId"]
    free = kit.subnets()[0]["AvailableIpAddressCount"]
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))
    assert kit.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"] == free - 1
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.control.advance_clock(3)
    found = kit.describe_instance(one)
    assert "SubnetId" not in found
    assert found["NetworkInterfaces"] == []
    assert found["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert kit.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"] == free
    assert kit.ec2.describe_volumes()["Volumes"] == []


def test_state_filter_excludes_terminated_instances(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.control.advance_clock(3)
    alive = [{"Name": "instance-state-name", "Values": ["pending", "running", "shutting-down"]}]
    assert kit.list_instance_ids(InstanceIds=[one], Filters=alive) == []


def test_stopped_and_started_instance_keeps_its_address(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.control.advance_clock(2)
    before = kit.describe_instance(one)
    kit.ec2.stop_instances(InstanceIds=[one])
    assert state(kit, one) == "stopping"
    kit.control.advance_clock(2.1)
    assert state(kit, one) == "stopped"
    kit.ec2.start_instances(InstanceIds=[one])
    kit.control.advance_clock(1.1)
    after = kit.describe_instance(one)
    assert after["State"]["Name"] == "running"
    assert after["PrivateIpAddress"] == before["PrivateIpAddress"]


def test_pending_and_spot_instances_cannot_be_stopped(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    with raises_code("IncorrectInstanceState"):
        kit.ec2.stop_instances(InstanceIds=[one])
    (spot,) = instance_ids(kit.create_fleet(kit.overrides("m5.large"), capacity_type="spot"))
    kit.control.advance_clock(2)
    with raises_code("UnsupportedOperation"):
        kit.ec2.stop_instances(InstanceIds=[spot])


def test_dry_run_of_terminate_terminates_nothing(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    with raises_code("DryRunOperation"):
        kit.ec2.terminate_instances(InstanceIds=[one], DryRun=True)
    assert state(kit, one) == "pending"


def test_protected_instance_cannot_be_terminated(kit: FakeAwsClient) -> None:
    kit.create_template(DisableApiTermination=True)
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large")))
    with raises_code("OperationNotPermitted"):
        kit.ec2.terminate_instances(InstanceIds=[one])


def test_run_instances_uses_template_groups_and_client_token(kit: FakeAwsClient) -> None:
    kit.create_template()
    request = {
        "LaunchTemplate": {"LaunchTemplateName": "karpenter.k8s.aws/1"},
        "InstanceType": "m5.large",
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": kit.subnets()[0]["SubnetId"]}],
        "MinCount": 2,
        "MaxCount": 2,
        "ClientToken": "once",
    }
    first = [i["InstanceId"] for i in kit.ec2.run_instances(**request)["Instances"]]
    repeated = [i["InstanceId"] for i in kit.ec2.run_instances(**request)["Instances"]]
    assert first == repeated
    assert len(first) == 2
    found = kit.describe_instance(first[0])
    assert [group["GroupId"] for group in found["SecurityGroups"]] == [kit.security_group_id()]
    assert found["ClientToken"] == "once"


def test_run_instances_rejects_subnet_next_to_interfaces(kit: FakeAwsClient) -> None:
    kit.create_template()
    with raises_code("InvalidParameterCombination"):
        kit.ec2.run_instances(
            LaunchTemplate={"LaunchTemplateName": "karpenter.k8s.aws/1"},
            SubnetId=kit.subnets()[0]["SubnetId"],
            MinCount=1,
            MaxCount=1,
        )


def test_security_groups_and_protection_can_be_modified(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    vpc = kit.describe_instance(one)["VpcId"]
    other = kit.ec2.create_security_group(GroupName="other", Description="other", VpcId=vpc)["GroupId"]
    kit.ec2.modify_instance_attribute(InstanceId=one, Groups=[other])
    assert [group["GroupId"] for group in kit.describe_instance(one)["SecurityGroups"]] == [other]
    kit.ec2.modify_instance_attribute(InstanceId=one, DisableApiTermination={"Value": True})
    with raises_code("OperationNotPermitted"):
        kit.ec2.terminate_instances(InstanceIds=[one])
    with raises_code("InvalidGroup.NotFound"):
        kit.ec2.modify_instance_attribute(InstanceId=one, Groups=["sg-0123456789abcdef0"])


def test_tags_are_added_read_and_removed(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.ec2.create_tags(Resources=[one], Tags=[{"Key": "Name", "Value": "node-1"}])
    assert {"Key": "Name", "Value": "node-1"} in kit.describe_instance(one)["Tags"]
    filters = [{"Name": "resource-id", "Values": [one]}, {"Name": "key", "Values": ["Name"]}]
    (row,) = kit.ec2.describe_tags(Filters=filters)["Tags"]
    assert (row["ResourceType"], row["Value"]) == ("instance", "node-1")
    kit.ec2.delete_tags(Resources=[one], Tags=[{"Key": "Name"}])
    assert "Name" not in {tag["Key"] for tag in kit.describe_instance(one)["Tags"]}


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("i-0123456789abcdef0", "InvalidInstanceID.NotFound"),
        ("subnet-0123456789abcdef0", "InvalidSubnetID.NotFound"),
        ("banana", "InvalidID"),
    ],
)
def test_tagging_a_missing_resource_fails(kit: FakeAwsClient, resource: str, expected: str) -> None:
    with raises_code(expected):
        kit.ec2.create_tags(Resources=[resource], Tags=[{"Key": "a", "Value": "b"}])


def test_reserved_tag_keys_are_rejected(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    with raises_code("InvalidParameterValue"):
        kit.ec2.create_tags(Resources=[one], Tags=[{"Key": "aws:mine", "Value": "b"}])


def test_subnet_can_be_tagged_and_filtered(kit: FakeAwsClient) -> None:
    subnet = kit.subnets()[0]["SubnetId"]
    kit.ec2.create_tags(Resources=[subnet], Tags=[{"Key": "tier", "Value": "private"}])
    found = kit.ec2.describe_subnets(Filters=[{"Name": "tag:tier", "Values": ["private"]}])["Subnets"]
    assert [one["SubnetId"] for one in found] == [subnet]
