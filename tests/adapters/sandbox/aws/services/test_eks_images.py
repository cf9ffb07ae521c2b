"""EKS images and the SSM parameters that name them."""

import datetime as dt

import pytest

from tests.support.sandbox.aws.kit import AL2023, FakeAwsClient, raises_code

EKS = "/aws/service/eks/optimized-ami"
MINORS = [f"1.{minor}" for minor in range(30, 37)]
PATHS = [
    f"{EKS}/{minor}/amazon-linux-2023/{variant}/recommended/image_id"
    for minor in MINORS
    for variant in ("x86_64/standard", "x86_64/nvidia", "x86_64/neuron", "arm64/standard", "arm64/nvidia")
] + [
    f"{EKS}/1.32/amazon-linux-2/recommended/image_id",
    f"{EKS}/1.32/amazon-linux-2-gpu/recommended/image_id",
    f"{EKS}/1.32/amazon-linux-2-arm64/recommended/image_id",
    f"{EKS}/1.34/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.34-v20250829/image_id",
    "/aws/service/bottlerocket/aws-k8s-1.34/x86_64/latest/image_id",
    "/aws/service/bottlerocket/aws-k8s-1.34/arm64/1.45.0/image_id",
    "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/arm64/latest/image_id",
    "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id",
]


def test_every_parameter_has_an_image_of_its_architecture(kit: FakeAwsClient) -> None:
    ssm = kit.client("ssm")
    named = {path: ssm.get_parameter(Name=path)["Parameter"]["Value"] for path in PATHS}
    images = {i["ImageId"]: i for i in kit.ec2.describe_images(ImageIds=list(named.values()))["Images"]}
    for path, image_id in named.items():
        arm = "arm64" in path
        assert images[image_id]["Architecture"] == ("arm64" if arm else "x86_64"), path
        assert images[image_id]["State"] == "available"
        assert images[image_id]["CreationDate"] < images[image_id]["DeprecationTime"]


def test_al2_has_no_parameter_for_new_kubernetes_versions(kit: FakeAwsClient) -> None:
    with raises_code("ParameterNotFound"):
        kit.client("ssm").get_parameter(Name=f"{EKS}/1.33/amazon-linux-2/recommended/image_id")


def test_images_are_found_by_id_name_and_owner(kit: FakeAwsClient) -> None:
    image = kit.image_id()
    (found,) = kit.ec2.describe_images(Filters=[{"Name": "image-id", "Values": [image]}])["Images"]
    assert (found["ImageOwnerAlias"], found["Public"]) == ("amazon", True)
    filters = [
        {"Name": "name", "Values": ["amazon-eks-node-al2023-x86_64-standard-1.34-*"]},
        {"Name": "state", "Values": ["available"]},
    ]
    assert len(kit.ec2.describe_images(Filters=filters, Owners=["self", "amazon"])["Images"]) == 3
    assert kit.ec2.describe_images(Filters=filters, Owners=["self"])["Images"] == []
    since = [*filters, {"Name": "creation-date", "Values": ["2025-09-*"]}]
    assert [i["ImageId"] for i in kit.ec2.describe_images(Filters=since)["Images"]] == [image]


def test_images_are_paged(kit: FakeAwsClient) -> None:
    first = kit.ec2.describe_images(MaxResults=10)
    assert len(first["Images"]) == 10
    pages = kit.ec2.get_paginator("describe_images").paginate(PaginationConfig={"PageSize": 50})
    listed = [image["ImageId"] for page in pages for image in page["Images"]]
    assert len(listed) == len(set(listed)) > 200


def test_registered_image_has_architecture_and_tags(kit: FakeAwsClient) -> None:
    specification = [{"ResourceType": "image", "Tags": [{"Key": "team", "Value": "x"}]}]
    image_id = kit.ec2.register_image(
        Name="mine", Architecture="arm64", RootDeviceName="/dev/sda1", TagSpecifications=specification
    )["ImageId"]
    (found,) = kit.ec2.describe_images(Filters=[{"Name": "tag:team", "Values": ["x"]}])["Images"]
    assert (found["ImageId"], found["Architecture"], found["OwnerId"]) == (image_id, "arm64", "123456789012")
    kit.ec2.deregister_image(ImageId=image_id)
    assert kit.ec2.describe_images(Owners=["self"])["Images"] == []


def test_published_image_with_past_deprecation_is_hidden_by_default(kit: FakeAwsClient) -> None:
    old = kit.control.publish_image("old", deprecation="2020-01-01T00:00:00Z", created="2018-01-01T00:00:00Z")
    by_name = [{"Name": "name", "Values": ["old"]}]
    assert kit.ec2.describe_images(Filters=by_name)["Images"] == []
    (found,) = kit.ec2.describe_images(Filters=by_name, IncludeDeprecated=True)["Images"]
    assert (found["ImageId"], found["DeprecationTime"]) == (old, "2020-01-01T00:00:00.000Z")


def test_owner_can_deprecate_an_image(kit: FakeAwsClient) -> None:
    image = kit.ec2.register_image(Name="mine", Architecture="x86_64")["ImageId"]
    kit.ec2.enable_image_deprecation(ImageId=image, DeprecateAt=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    assert kit.ec2.describe_images(Owners=["self"])["Images"] == []
    kit.ec2.disable_image_deprecation(ImageId=image)
    assert len(kit.ec2.describe_images(Owners=["self"])["Images"]) == 1


def test_published_image_updates_its_parameter(kit: FakeAwsClient) -> None:
    name = f"{AL2023}/x86_64/standard/recommended/image_id"
    fresh = kit.control.publish_image("amazon-eks-node-al2023-x86_64-standard-1.34-v20991231", parameters=[name])
    assert kit.image_id() == fresh
    kit.control.put_parameter(name, "ami-0123456789abcdef0")
    assert kit.image_id() == "ami-0123456789abcdef0"


def test_images_of_one_release_differ_in_date_with_gpu_newest(kit: FakeAwsClient) -> None:
    named = [{"Name": "name", "Values": ["amazon-eks-node-al2023-*-1.34-v20250920"]}]
    images = kit.ec2.describe_images(Filters=named, Owners=["amazon"])["Images"]
    newest = sorted(images, key=lambda image: str(image["CreationDate"]))
    assert len({image["CreationDate"] for image in images}) == len(images) == 5
    assert "nvidia" in newest[-1]["Name"]


@pytest.mark.parametrize(
    ("family", "version", "moving", "images"),
    [
        ("al2023", "20251101", f"{EKS}/1.34/amazon-linux-2023/arm64/nvidia/recommended/image_id", 5),
        ("bottlerocket", "1.50.0", "/aws/service/bottlerocket/aws-k8s-1.34/arm64/latest/image_id", 4),
        (
            "windows",
            "2025.11.01",
            "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id",
            2,
        ),
    ],
)
def test_new_release_updates_latest_parameters(
    kit: FakeAwsClient, family: str, version: str, moving: str, images: int
) -> None:
    ssm = kit.client("ssm")
    before = ssm.get_parameter(Name=moving)["Parameter"]["Value"]
    released = kit.control.release_images(family, version, minor="1.34")
    after = ssm.get_parameter(Name=moving)["Parameter"]["Value"]
    assert len(released) == images
    assert after in released.values() and before not in released.values()
    found = {i["ImageId"]: i for i in kit.ec2.describe_images(ImageIds=[before, after])["Images"]}
    assert found[before]["CreationDate"] < found[after]["CreationDate"]


def test_removed_image_is_not_found_but_its_parameter_remains(kit: FakeAwsClient) -> None:
    image = kit.image_id()
    kit.control.remove_image(image)
    assert kit.image_id() == image
    with raises_code("InvalidAMIID.NotFound"):
        kit.ec2.describe_images(ImageIds=[image])


def test_deprecated_image_is_listed_with_include_deprecated(kit: FakeAwsClient) -> None:
    image = kit.image_id()
    kit.control.deprecate_image(image)
    filters = [{"Name": "image-id", "Values": [image]}]
    assert kit.ec2.describe_images(Filters=filters)["Images"] == []
    (found,) = kit.ec2.describe_images(Filters=filters, IncludeDeprecated=True)["Images"]
    assert found["DeprecationTime"] <= dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
    assert len(kit.launch_instances()) == 1


def test_public_parameter_is_found_by_arn_without_account(kit: FakeAwsClient) -> None:
    ssm, path = kit.client("ssm"), PATHS[0]
    by_name = ssm.get_parameter(Name=path)["Parameter"]["Value"]
    assert ssm.get_parameter(Name=f"arn:aws:ssm:us-west-2::parameter{path}")["Parameter"]["Value"] == by_name
    with raises_code("ParameterNotFound"):
        ssm.get_parameter(Name=f"arn:aws:ssm:us-west-2:999999999999:parameter{path}")
    with raises_code("ValidationException"):
        ssm.get_parameter(Name="a b")


def test_private_image_of_another_account_cannot_be_listed_or_launched(kit: FakeAwsClient) -> None:
    image = kit.control.publish_image("theirs", owner="210987654321", owner_alias=None, public=False)
    assert kit.ec2.describe_images(Filters=[{"Name": "image-id", "Values": [image]}])["Images"] == []
    kit.create_template(ImageId=image)
    errors = kit.create_fleet(kit.overrides("m5.large", zones="a"))["Errors"]
    assert [error["ErrorCode"] for error in errors] == ["AuthFailure"]
