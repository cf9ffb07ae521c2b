"""The other services that a controller calls: EKS, IAM, SQS, STS, zonal shift, and the seeded network."""

import json
from typing import Any

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, raises_code


def test_cluster_description_has_all_fields_for_user_data(kit: FakeAwsClient) -> None:
    cluster = kit.client("eks").describe_cluster(name="demo")["cluster"]
    assert cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.100.0.0/16"
    assert cluster["certificateAuthority"]["data"]
    assert cluster["endpoint"].startswith("https://")
    assert cluster["resourcesVpcConfig"]["clusterSecurityGroupId"] == kit.security_group_id()
    assert len(cluster["resourcesVpcConfig"]["subnetIds"]) == 3
    assert cluster["version"] == "1.34"


def test_cluster_endpoint_can_be_configured(kit: FakeAwsClient) -> None:
    eks = kit.client("eks")
    before = eks.describe_cluster(name="demo")["cluster"]["endpoint"]
    kit.control.configure(cluster_endpoint="https://127.0.0.1:6443")
    assert eks.describe_cluster(name="demo")["cluster"]["endpoint"] == "https://127.0.0.1:6443"
    kit.control.reset()
    assert eks.describe_cluster(name="demo")["cluster"]["endpoint"] == before


def test_created_cluster_is_described_listed_and_deleted(kit: FakeAwsClient) -> None:
    eks, network = kit.client("eks"), {"subnetIds": [subnet["SubnetId"] for subnet in kit.subnets()]}
    role = "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo"
    eks.create_cluster(name="other", roleArn=role, resourcesVpcConfig=network)
    cluster = eks.describe_cluster(name="other")["cluster"]
    assert (cluster["status"], cluster["roleArn"]) == ("ACTIVE", role)
    assert cluster["resourcesVpcConfig"]["subnetIds"] == network["subnetIds"]
    assert eks.list_clusters()["clusters"] == ["demo", "other"]
    pages = eks.get_paginator("list_clusters").paginate(PaginationConfig={"PageSize": 1})
    assert [page["clusters"] for page in pages] == [["demo"], ["other"]]
    for name in ("demo", "other"):
        with raises_code("ResourceInUseException"):
            eks.create_cluster(name=name, roleArn=role, resourcesVpcConfig=network)
    eks.delete_cluster(name="other")
    with raises_code("ResourceNotFoundException"):
        eks.describe_cluster(name="other")
    assert eks.list_clusters()["clusters"] == ["demo"]


def test_access_entries_are_created_described_listed_and_deleted(kit: FakeAwsClient) -> None:
    eks, nodes = kit.client("eks"), "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo"
    person = "arn:aws:iam::123456789012:role/path/admin"
    assert eks.list_access_entries(clusterName="demo")["accessEntries"] == [nodes]
    assert eks.describe_access_entry(clusterName="demo", principalArn=nodes)["accessEntry"]["type"] == "EC2_LINUX"
    made = eks.create_access_entry(clusterName="demo", principalArn=person)["accessEntry"]
    assert (made["type"], made["kubernetesGroups"], made["username"]) == ("STANDARD", [], person)
    with raises_code("ResourceInUseException"):
        eks.create_access_entry(clusterName="demo", principalArn=person)
    assert eks.describe_access_entry(clusterName="demo", principalArn=person)["accessEntry"] == made
    eks.delete_access_entry(clusterName="demo", principalArn=person)
    for cluster in ("demo", "no-such"):
        with raises_code("ResourceNotFoundException"):
            eks.describe_access_entry(clusterName=cluster, principalArn=person)
    kit.control.reset()
    assert eks.list_access_entries(clusterName="demo")["accessEntries"] == [nodes]


def test_ipv6_cluster_and_subnets_have_ipv6_ranges(kit: FakeAwsClient) -> None:
    kit.control.configure(ip_family="ipv6")
    network = kit.client("eks").describe_cluster(name="demo")["cluster"]["kubernetesNetworkConfig"]
    assert network["ipFamily"] == "ipv6"
    assert network["serviceIpv6Cidr"] and "serviceIpv4Cidr" not in network
    assert all(len(subnet["Ipv6CidrBlockAssociationSet"]) == 1 for subnet in kit.subnets())


def test_seeded_network_has_three_subnets_and_a_security_group(kit: FakeAwsClient) -> None:
    subnets = kit.subnets()
    assert [s["AvailabilityZone"] for s in subnets] == ["us-west-2a", "us-west-2b", "us-west-2c"]
    assert len({s["AvailabilityZoneId"] for s in subnets}) == 3
    assert all(s["AvailableIpAddressCount"] == 16379 for s in subnets)
    groups = kit.ec2.describe_security_groups(GroupIds=[kit.security_group_id()])["SecurityGroups"]
    assert groups[0]["VpcId"] == subnets[0]["VpcId"]


def test_instance_profile_is_created_listed_and_deleted(kit: FakeAwsClient) -> None:
    path = "/karpenter/us-west-2/demo/uid/"
    arn = kit.create_instance_profile("mine", path, Tags=[{"Key": "a", "Value": "b"}])
    assert arn == f"arn:aws:iam::123456789012:instance-profile{path}mine"
    found = kit.iam.get_instance_profile(InstanceProfileName="mine")["InstanceProfile"]
    assert found["Roles"][0]["RoleName"] == "KarpenterNodeRole-demo"
    listed = kit.iam.list_instance_profiles(PathPrefix="/karpenter/us-west-2/demo/")["InstanceProfiles"]
    assert [(p["InstanceProfileName"], len(p["Roles"])) for p in listed] == [("mine", 1)]
    assert kit.iam.list_instance_profiles(PathPrefix="/other/")["InstanceProfiles"] == []
    kit.iam.remove_role_from_instance_profile(InstanceProfileName="mine", RoleName="KarpenterNodeRole-demo")
    kit.iam.delete_instance_profile(InstanceProfileName="mine")
    with raises_code("NoSuchEntity"):
        kit.iam.get_instance_profile(InstanceProfileName="mine")


def test_instance_profiles_are_paged(kit: FakeAwsClient) -> None:
    for number in range(7):
        kit.iam.create_instance_profile(InstanceProfileName=f"p{number}")
    pages = kit.iam.get_paginator("list_instance_profiles").paginate(PaginationConfig={"PageSize": 3})
    names = [p["InstanceProfileName"] for page in pages for p in page["InstanceProfiles"]]
    assert names == [f"p{number}" for number in range(7)]


def test_missing_role_error_has_message_in_both_cases(kit: FakeAwsClient) -> None:
    kit.iam.create_instance_profile(InstanceProfileName="empty")
    with raises_code("NoSuchEntity") as missing:
        kit.iam.add_role_to_instance_profile(InstanceProfileName="empty", RoleName="nobody")
    error = dict(missing.value.response["Error"])
    assert {error["Message"], error["message"]} == {"The role with name nobody cannot be found."}


def test_instance_profile_without_role_cannot_launch(kit: FakeAwsClient) -> None:
    kit.iam.create_instance_profile(InstanceProfileName="empty")
    kit.create_template(IamInstanceProfile={"Name": "empty"})
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert [error["ErrorCode"] for error in response["Errors"]] == ["InvalidParameterValue"]


def test_node_role_exists(kit: FakeAwsClient) -> None:
    role = kit.iam.get_role(RoleName="KarpenterNodeRole-demo")["Role"]
    assert role["Arn"] == "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo"


def test_caller_identity_has_the_account(kit: FakeAwsClient) -> None:
    assert kit.client("sts").get_caller_identity()["Account"] == "123456789012"


def receive_messages(kit: FakeAwsClient) -> list[dict[str, Any]]:
    sqs = kit.client("sqs")
    url = sqs.get_queue_url(QueueName="demo")["QueueUrl"]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", [])
    for message in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return [json.loads(message["Body"]) for message in found]


def test_missing_queue_raises_queue_does_not_exist(kit: FakeAwsClient) -> None:
    sqs = kit.client("sqs")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="other")


def test_spot_interruption_sends_a_warning_and_shuts_the_instance_down(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances(capacity_type="spot")
    kit.control.interrupt_spot(one, notice_seconds=120)
    (message,) = receive_messages(kit)
    assert (message["source"], message["detail-type"]) == ("aws.ec2", "EC2 Spot Instance Interruption Warning")
    assert message["detail"] == {"instance-id": one, "instance-action": "terminate"}
    assert kit.describe_instance(one)["State"]["Name"] == "pending"
    kit.control.advance_clock(120.5)
    found = kit.describe_instance(one)
    assert found["State"]["Name"] == "shutting-down"
    assert found["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_health_rebalance_and_custom_messages_are_queued(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    arn = kit.control.health_event([one], eventTypeCode="AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED")
    kit.control.recommend_rebalance(one)
    kit.control.send_message({"source": "custom"})
    found = {message.get("detail-type"): message for message in receive_messages(kit)}
    health = found["AWS Health Event"]
    assert (health["source"], health["detail"]["eventArn"]) == ("aws.health", arn)
    assert health["detail"]["affectedEntities"] == [{"entityValue": one}]
    assert found["EC2 Instance Rebalance Recommendation"]["detail"] == {"instance-id": one}
    assert found[None] == {"source": "custom"}


def test_state_change_events_are_sent_when_enabled(kit: FakeAwsClient) -> None:
    kit.control.configure(state_change_events=True)
    (one,) = kit.launch_instances()
    kit.control.advance_clock(2)
    assert [message["detail"] for message in receive_messages(kit)] == [
        {"instance-id": one, "state": "pending"},
        {"instance-id": one, "state": "running"},
    ]


def test_zonal_shift_starts_and_ends(kit: FakeAwsClient) -> None:
    arc = kit.client("arc-zonal-shift")
    arn = "arn:aws:eks:us-west-2:123456789012:cluster/demo"
    zone = kit.subnets()[0]["AvailabilityZoneId"]
    assert arc.get_managed_resource(resourceIdentifier=arn)["zonalShifts"] == []
    kit.control.shift_zone(zone, seconds=600)
    response = arc.get_managed_resource(resourceIdentifier=arn)
    assert [shift["awayFrom"] for shift in response["zonalShifts"]] == [zone]
    assert response["appliedWeights"][zone] == 0.0
    kit.control.end_zonal_shifts()
    assert arc.get_managed_resource(resourceIdentifier=arn)["zonalShifts"] == []
    with raises_code("ResourceNotFoundException"):
        arc.get_managed_resource(resourceIdentifier="arn:aws:eks:us-west-2:123456789012:cluster/other")


def test_zonal_shifts_expire_and_autoshifts_are_listed_separately(kit: FakeAwsClient) -> None:
    arc = kit.client("arc-zonal-shift")
    arn = "arn:aws:eks:us-west-2:123456789012:cluster/demo"
    first, second, third = (subnet["AvailabilityZoneId"] for subnet in kit.subnets())
    kit.control.shift_zone(first, seconds=600)
    kit.control.shift_zone(second, auto=True)
    kit.control.shift_zone(third, applied=False)
    response = arc.get_managed_resource(resourceIdentifier=arn)
    assert [(one["awayFrom"], one["appliedStatus"]) for one in response["zonalShifts"]] == [
        (first, "APPLIED"),
        (third, "NOT_APPLIED"),
    ]
    assert [(one["awayFrom"], one["appliedStatus"]) for one in response["autoshifts"]] == [(second, "APPLIED")]
    assert [response["appliedWeights"][zone] for zone in (first, second, third)] == [0.0, 0.0, 1.0]
    kit.control.advance_clock(601)
    kit.control.end_zonal_shifts(second)
    response = arc.get_managed_resource(resourceIdentifier=arn)
    assert [one["awayFrom"] for one in response["zonalShifts"]] == [third]
    assert response["autoshifts"] == []
    kit.control.configure(zonal_shift_registered=False)
    assert arc.list_managed_resources()["items"] == []
    with raises_code("ResourceNotFoundException"):
        arc.get_managed_resource(resourceIdentifier=arn)
