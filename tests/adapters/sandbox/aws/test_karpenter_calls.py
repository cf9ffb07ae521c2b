"""Every AWS call of Karpenter's provider 1.15.1, with its parameters: start-up, node class, launch, interruption, end.

The calls are those of the client interfaces in `pkg/aws/sdk.go` that the provider's packages use.
"""

import json
from datetime import UTC, datetime
from typing import Any

from tests.support.sandbox.aws.kit import USER_DATA, FakeAwsClient, instance_ids, raises_code, tag_list

CLUSTER_TAG = "eks:eks-cluster-name"
TAGS = tag_list(**{CLUSTER_TAG: "demo", "karpenter.sh/nodepool": "web", "karpenter.k8s.aws/ec2nodeclass": "default"})
TEMPLATE = "karpenter.k8s.aws/4711"
LIVE = ["pending", "running", "stopping", "stopped", "shutting-down"]
ON_DEMAND = {
    "regionCode": "us-west-2",
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


def filters(**values: str | list[str]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": [value] if isinstance(value, str) else value} for name, value in values.items()]


def tagged_instances(kit: FakeAwsClient) -> list[str]:
    """DescribeInstances as garbage collection lists them."""
    pages = kit.ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": "tag-key", "Values": ["karpenter.sh/nodepool"]},
            {"Name": "tag-key", "Values": ["karpenter.k8s.aws/ec2nodeclass"]},
            *filters(**{f"tag:{CLUSTER_TAG}": "demo"}),
            *filters(**{"instance-state-name": LIVE}),
        ],
        PaginationConfig={"PageSize": 1000},
    )
    return [one["InstanceId"] for page in pages for found in page["Reservations"] for one in found["Instances"]]


def create_template(kit: FakeAwsClient, **data: Any) -> None:
    every = [{"ResourceType": kind, "Tags": TAGS} for kind in ("instance", "volume", "network-interface")]
    root = {"VolumeSize": 20, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    kit.ec2.create_launch_template(
        LaunchTemplateName=TEMPLATE,
        LaunchTemplateData={
            "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": root}],
            "IamInstanceProfile": {"Name": "demo_4711"},
            "Monitoring": {"Enabled": False},
            "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [kit.security_group_id()]}],
            "UserData": USER_DATA,
            "ImageId": kit.image_id(),
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpProtocolIpv6": "disabled",
                "HttpPutResponseHopLimit": 1,
                "HttpTokens": "required",
                "InstanceMetadataTags": "disabled",
            },
            "TagSpecifications": every,
            "EnclaveOptions": {"Enabled": False},
            "CapacityReservationSpecification": {"CapacityReservationPreference": "none"},
            **data,
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": TAGS}],
    )


def create_fleet(kit: FakeAwsClient, capacity_type: str = "on-demand", count: int = 1, **request: Any) -> Any:
    options = {"spot": {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}}
    tags = [{"ResourceType": kind, "Tags": TAGS} for kind in ("instance", "volume", "fleet")]
    return kit.create_fleet(
        kit.overrides("m5.large", "m5.xlarge"),
        count,
        capacity_type=capacity_type,
        template=TEMPLATE,
        TagSpecifications=tags,
        **options.get(capacity_type, {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}),
        **request,
    )


def ensure_profile(kit: FakeAwsClient) -> None:
    """GetInstanceProfile, CreateInstanceProfile, AddRoleToInstanceProfile as for `spec.role`."""
    iam = kit.client("iam")
    with raises_code("NoSuchEntity"):
        iam.get_instance_profile(InstanceProfileName="demo_4711")
    iam.create_instance_profile(InstanceProfileName="demo_4711", Path="/karpenter/us-west-2/demo/uid/", Tags=TAGS)
    iam.add_role_to_instance_profile(InstanceProfileName="demo_4711", RoleName="KarpenterNodeRole-demo")


def test_calls_at_startup(kit: FakeAwsClient) -> None:
    with raises_code("DryRunOperation"):
        kit.ec2.describe_instance_types(DryRun=True)
    cluster = kit.client("eks").describe_cluster(name="demo")["cluster"]
    assert cluster["endpoint"] and cluster["version"] and cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"]
    with raises_code("ResourceNotFoundException"):
        kit.client("arc-zonal-shift").get_managed_resource(resourceIdentifier=f"{cluster['arn']}-other")
    shifts = kit.client("arc-zonal-shift").get_managed_resource(resourceIdentifier=cluster["arn"])
    assert shifts["zonalShifts"] == []
    kinds = filters(**{"supported-virtualization-type": "hvm"})
    kinds += filters(**{"processor-info.supported-architecture": ["x86_64", "arm64"]})
    pages = [*kit.ec2.get_paginator("describe_instance_types").paginate(Filters=kinds, MaxResults=100)]
    types = {one["InstanceType"]: one for page in pages for one in page["InstanceTypes"]}
    assert len(pages) > 1 and "mac1.metal" not in types and types["m5.large"]["EbsInfo"]["MaximumEbsAttachments"] == 27
    zones = kit.ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", PaginationConfig={"PageSize": 1000}
    )
    assert {"us-west-2a"} < {one["Location"] for page in zones for one in page["InstanceTypeOfferings"]}
    templates = kit.ec2.get_paginator("describe_launch_templates").paginate(
        Filters=filters(**{f"tag:{CLUSTER_TAG}": "demo"}), PaginationConfig={"PageSize": 200}
    )
    assert [one for page in templates for one in page["LaunchTemplates"]] == []
    with raises_code("AWS.SimpleQueueService.NonExistentQueue"):
        kit.client("sqs").get_queue_url(QueueName="other")
    assert kit.client("sqs").get_queue_url(QueueName="demo")["QueueUrl"]


def test_calls_in_the_background(kit: FakeAwsClient) -> None:
    for tenancy, types in (("Shared", "m5.large"), ("Dedicated", "m5.metal")):
        terms = {**ON_DEMAND, "tenancy": tenancy, "instanceType": types}
        products = kit.client("pricing", region="us-east-1").get_products(
            ServiceCode="AmazonEC2",
            Filters=[{"Field": field, "Type": "TERM_MATCH", "Value": value} for field, value in terms.items()],
            MaxResults=100,
        )
        assert "terms" in json.loads(products["PriceList"][0])
    history = kit.ec2.describe_spot_price_history(
        ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"], StartTime=datetime.now(UTC), MaxResults=2000
    )
    assert {"SpotPrice", "AvailabilityZone", "InstanceType", "Timestamp"} <= history["SpotPriceHistory"][0].keys()
    codes = ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"]
    for name, values in (
        ("instance-status.status", ["impaired"]),
        ("system-status.status", ["impaired"]),
        ("event.code", codes),
    ):
        assert kit.ec2.describe_instance_status(Filters=filters(**{name: values}))["InstanceStatuses"] == []
    profiles = kit.client("iam").list_instance_profiles(PathPrefix="/karpenter/us-west-2/demo/")
    assert profiles["InstanceProfiles"] == []
    assert tagged_instances(kit) == []


def test_calls_for_a_node_class(kit: FakeAwsClient) -> None:
    discovery = filters(**{"tag:karpenter.sh/discovery": "demo"})
    pages = kit.ec2.get_paginator("describe_subnets").paginate(Filters=discovery)
    subnets = [one for page in pages for one in page["Subnets"]]
    assert {"AvailabilityZone", "AvailabilityZoneId", "AvailableIpAddressCount"} <= subnets[0].keys()
    named = kit.ec2.describe_security_groups(Filters=filters(**{"group-id": kit.security_group_id()}))
    assert len(named["SecurityGroups"]) == 1
    parameter = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"
    image = kit.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]
    with raises_code("ParameterNotFound"):
        kit.client("ssm").get_parameter(Name=f"{parameter}s")
    wanted = filters(**{"image-id": image, "state": "available"})
    images = kit.ec2.describe_images(Filters=wanted, IncludeDeprecated=True, MaxResults=1000)["Images"]
    assert [one["ImageId"] for one in images] == [image] and images[0]["Architecture"] == "x86_64"
    active = filters(state="active")
    by_tag = kit.ec2.describe_capacity_reservations(
        Filters=[*active, *filters(**{"tag:team": "a", "instance-match-criteria": "open"})], MaxResults=1000
    )
    assert by_tag["CapacityReservations"] == []
    with raises_code("InvalidCapacityReservationId.NotFound"):
        kit.ec2.describe_capacity_reservations(Filters=active, CapacityReservationIds=["cr-0123456789abcdef0"])
    kit.ec2.create_placement_group(GroupName="training", Strategy="cluster")
    (group,) = kit.ec2.describe_placement_groups(Filters=filters(state="available"), GroupNames=["training"])[
        "PlacementGroups"
    ]
    again = kit.ec2.describe_placement_groups(Filters=filters(state="available"), GroupIds=[group["GroupId"]])
    assert again["PlacementGroups"][0]["GroupName"] == "training"


def test_calls_of_the_authorization_check(kit: FakeAwsClient) -> None:
    ensure_profile(kit)
    create_template(kit)
    with raises_code("DryRunOperation"):
        create_fleet(kit, DryRun=True)
    with raises_code("DryRunOperation"):
        kit.ec2.run_instances(
            DryRun=True,
            MinCount=1,
            MaxCount=1,
            LaunchTemplate={"LaunchTemplateName": TEMPLATE, "Version": "$Latest"},
            InstanceType="m5.large",
            NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": kit.subnets()[0]["SubnetId"]}],
            TagSpecifications=[{"ResourceType": kind, "Tags": TAGS} for kind in ("instance", "volume")],
        )
    assert tagged_instances(kit) == []


def test_calls_of_a_launch_and_a_termination(kit: FakeAwsClient) -> None:
    ensure_profile(kit)
    with raises_code("InvalidLaunchTemplateName.NotFoundException"):
        kit.ec2.describe_launch_templates(LaunchTemplateNames=[TEMPLATE])
    create_template(kit)
    launched = create_fleet(kit, count=2)
    assert launched["FleetId"] and {"InstanceType", "Lifecycle"} <= launched["Instances"][0].keys()
    first, second = instance_ids(launched)
    own = tag_list(**{"Name": "node", "karpenter.sh/nodeclaim": "web-1", CLUSTER_TAG: "demo"})
    kit.ec2.create_tags(Resources=[first], Tags=own)
    by_id = kit.ec2.describe_instances(InstanceIds=[first, second], Filters=filters(**{"instance-state-name": LIVE}))[
        "Reservations"
    ]
    found = {one["InstanceId"]: one for each in by_id for one in each["Instances"]}
    assert {"web-1"} == {one["Value"] for one in found[first]["Tags"] if one["Key"] == "karpenter.sh/nodeclaim"}
    assert sorted(tagged_instances(kit)) == sorted([first, second])
    kit.control.advance_clock(60)
    kit.ec2.reboot_instances(InstanceIds=[second])
    for _ in range(2):
        kit.ec2.terminate_instances(InstanceIds=[first, second])
    kit.control.advance_clock(600)
    assert tagged_instances(kit) == []
    with raises_code("InvalidInstanceID.NotFound"):
        kit.ec2.terminate_instances(InstanceIds=["i-0123456789abcdef0"])


def test_calls_of_an_interruption(kit: FakeAwsClient) -> None:
    ensure_profile(kit)
    create_template(kit)
    (spot,) = instance_ids(create_fleet(kit, "spot"))
    kit.control.advance_clock(60)
    kit.control.interrupt_spot(spot, warn_only=True)
    sqs = kit.client("sqs")
    url = sqs.get_queue_url(QueueName="demo")["QueueUrl"]
    messages = [
        message
        for _ in range(3)
        for message in sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=20,
            WaitTimeSeconds=1,
            MessageSystemAttributeNames=["SentTimestamp"],
            MessageAttributeNames=["All"],
        ).get("Messages", ())
    ]
    by_kind = {json.loads(one["Body"])["detail-type"]: one for one in messages}
    warning = by_kind["EC2 Spot Instance Interruption Warning"]
    assert json.loads(warning["Body"])["detail"]["instance-id"] == spot and warning["Attributes"]["SentTimestamp"]
    for one in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])


def test_calls_that_delete_a_node_class(kit: FakeAwsClient) -> None:
    ensure_profile(kit)
    create_template(kit)
    ours = filters(**{f"tag:{CLUSTER_TAG}": "demo", "tag:karpenter.k8s.aws/ec2nodeclass": "default"})
    (template,) = kit.ec2.describe_launch_templates(Filters=ours)["LaunchTemplates"]
    kit.ec2.delete_launch_template(LaunchTemplateName=template["LaunchTemplateName"])
    with raises_code("InvalidLaunchTemplateId.NotFound"):
        kit.ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    iam = kit.client("iam")
    (profile,) = iam.list_instance_profiles(PathPrefix="/karpenter/us-west-2/demo/uid/")["InstanceProfiles"]
    name = profile["InstanceProfileName"]
    (role,) = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
    iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role["RoleName"])
    iam.delete_instance_profile(InstanceProfileName=name)
    with raises_code("NoSuchEntity"):
        iam.get_instance_profile(InstanceProfileName=name)
