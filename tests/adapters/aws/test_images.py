"""AMI selection against the AWS stand-in, under the shipped policy: cases of Karpenter's end-to-end suite `ami`, by
number.
"""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.provider_results import ConditionPatch
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import build_nodeclass
from tests.support.aws.steps import (
    admin_client,
    launch_template_data,
    make_launch_group,
    prepare_launch,
    resolve_nodeclass,
)

ARN = "arn:aws:ssm:us-west-2::parameter"
STANDARD = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"


def selecting_nodeclass(*terms: dict[str, Any], uid: str = "u", **spec: Any) -> EC2NodeClass:
    family = {} if "alias" in terms[0] else {"amiFamily": "AL2023"}
    return build_nodeclass(uid=uid, amiSelectorTerms=list(terms), **(family | spec))


async def resolve_image_ids(cloud: AwsAdapters, one: EC2NodeClass) -> list[str]:
    return [image.id for image in (await resolve_nodeclass(cloud, one)).status.amis]


async def resolve_conditions(cloud: AwsAdapters, one: EC2NodeClass) -> dict[str, ConditionPatch]:
    found = await cloud.resolver.resolve(one)
    return {condition.type: condition for condition in found.conditions}


def publish_two_images(control: AwsControl) -> tuple[str, str]:
    old = control.publish_image("mine-1", created="2025-01-01T00:00:00.000Z", architecture="x86_64")
    return old, control.publish_image("mine-2", created="2025-06-01T00:00:00.000Z", architecture="x86_64")


async def test_ami_01_and_05_image_selected_by_id_is_launched(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    old, _ = publish_two_images(control)
    result = await cloud.fleet.create(
        make_launch_group(await prepare_launch(cloud, await resolve_nodeclass(cloud, selecting_nodeclass({"id": old}))))
    )
    found = admin_client(endpoint).describe_instances(InstanceIds=[result.instances[0].instance_id])
    assert found["Reservations"][0]["Instances"][0]["ImageId"] == old


async def test_root_device_of_image_decides_storage_and_launched_volume(cloud: AwsAdapters, endpoint: str) -> None:
    volume: Any = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}
    ami = admin_client(endpoint).register_image(
        Name="ubuntu", Architecture="x86_64", RootDeviceName="/dev/sda1", BlockDeviceMappings=[volume]
    )["ImageId"]
    extra = [{"deviceName": "/dev/sdf", "ebs": {"volumeSize": "60Gi"}}]
    for mappings, gib in (([], 20), (extra, 8)):
        one = await resolve_nodeclass(cloud, selecting_nodeclass({"id": ami}, blockDeviceMappings=mappings))
        found = {each.name: each for each in await cloud.offerings.instance_types(one)}
        assert found["m5.large"].capacity[labels.EPHEMERAL_STORAGE] == gib << 30
        request = await prepare_launch(cloud, one)
        (launched,) = launch_template_data(endpoint, request.overrides[0].launch_template)["BlockDeviceMappings"]
        assert (launched["DeviceName"], launched["Ebs"]["VolumeSize"]) == (
            ("/dev/sdf", 60) if mappings else ("/dev/sda1", 20)
        )


async def test_ami_02_newest_of_two_images_is_used(cloud: AwsAdapters, control: AwsControl) -> None:
    old, new = publish_two_images(control)
    assert await resolve_image_ids(cloud, selecting_nodeclass({"id": old}, {"id": new})) == [new]


async def test_ami_03_name_with_another_owner_finds_no_image(cloud: AwsAdapters, control: AwsControl) -> None:
    publish_two_images(control)
    conditions = await resolve_conditions(cloud, selecting_nodeclass({"name": "mine-*", "owner": "123456789012"}))
    assert (conditions["AMIsReady"].status, conditions["AMIsReady"].reason) == ("False", "AMINotFound")


async def test_ami_04_and_12_name_has_default_owners_and_wildcards(cloud: AwsAdapters, control: AwsControl) -> None:
    _, new = publish_two_images(control)
    assert await resolve_image_ids(cloud, selecting_nodeclass({"name": "mine-?"})) == [new]


async def test_ami_06_and_14_ssm_parameter_is_found_by_arn(cloud: AwsAdapters, control: AwsControl) -> None:
    image = control.publish_image("mine", parameters=["/aws/service/mine"], architecture="arm64")
    assert await resolve_image_ids(cloud, selecting_nodeclass({"ssmParameter": f"{ARN}/aws/service/mine"})) == [image]
    assert await resolve_image_ids(cloud, selecting_nodeclass({"ssmParameter": f"{ARN}{STANDARD}"}, uid="public"))
    by_name = selecting_nodeclass({"ssmParameter": "/aws/service/mine"}, uid="name", amiFamily="Bottlerocket")
    (found,) = (await resolve_nodeclass(cloud, by_name)).status.amis
    assert (found.id, found.requirements[0].values) == (image, ("arm64",))


async def test_ami_07_deprecated_image_still_launches(cloud: AwsAdapters, control: AwsControl) -> None:
    old, _ = publish_two_images(control)
    control.deprecate_image(old)
    one = await resolve_nodeclass(cloud, selecting_nodeclass({"id": old}))
    assert [(image.id, image.deprecated) for image in one.status.amis] == [(old, True)]
    assert len((await cloud.fleet.create(make_launch_group(await prepare_launch(cloud, one)))).instances) == 1


async def test_ami_08_current_image_is_preferred_to_deprecated_one(cloud: AwsAdapters, control: AwsControl) -> None:
    old, new = publish_two_images(control)
    control.deprecate_image(new)
    assert await resolve_image_ids(cloud, selecting_nodeclass({"id": old}, {"id": new})) == [old]


@pytest.mark.parametrize(
    ("alias", "family", "kinds"),
    [
        ("al2023@latest", "al2023", 5),
        ("bottlerocket@latest", "bottlerocket", 5),
        ("windows2022@latest", "windows", 1),
    ],
)
async def test_ami_09_latest_alias_follows_a_new_release(
    endpoint: str, cloud: AwsAdapters, control: AwsControl, region: Region, alias: str, family: str, kinds: int
) -> None:
    before = await resolve_image_ids(cloud, selecting_nodeclass({"alias": alias}))
    assert len(before) == kinds
    control.release_images(
        family, "2031.01.01" if family == "windows" else "99.0.0" if family != "al2023" else "20310101"
    )
    later = adapters(endpoint, region)
    after = await resolve_image_ids(later, selecting_nodeclass({"alias": alias}))
    assert len(after) == kinds
    assert set(after).isdisjoint(before)
    later.close()


@pytest.mark.parametrize(
    ("family", "version", "alias"),
    [
        ("al2023", "20310101", "al2023@v20310101"),
        ("bottlerocket", "99.0.0", "bottlerocket@v99.0.0"),
        ("bottlerocket", "99.0.0", "bottlerocket@99.0.0"),
    ],
)
async def test_ami_10_pinned_alias_keeps_its_version(
    cloud: AwsAdapters, control: AwsControl, family: str, version: str, alias: str
) -> None:
    released = set(control.release_images(family, version).values())
    control.release_images(family, "99.1.0" if family == "bottlerocket" else "20320101")
    assert {*await resolve_image_ids(cloud, selecting_nodeclass({"alias": alias}))} <= released


async def test_ami_11_custom_family_uses_image_and_user_data_of_the_class(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    _, new = publish_two_images(control)
    one = await resolve_nodeclass(
        cloud, selecting_nodeclass({"id": new}, amiFamily="Custom", userData="#!/bin/sh\nmine")
    )
    request = await prepare_launch(cloud, one)
    await cloud.fleet.create(make_launch_group(request))
    data = launch_template_data(endpoint, request.overrides[0].launch_template)
    assert (data["ImageId"], data["UserData"]) == (new, "IyEvYmluL3NoCm1pbmU=")
    assert "BlockDeviceMappings" not in data


async def test_ami_13_tag_selects_by_value_or_wildcard(cloud: AwsAdapters, control: AwsControl, endpoint: str) -> None:
    old, new = publish_two_images(control)
    admin_client(endpoint).create_tags(Resources=[old], Tags=[{"Key": "team", "Value": "a"}])
    admin_client(endpoint).create_tags(Resources=[new], Tags=[{"Key": "other", "Value": "b"}])
    assert await resolve_image_ids(cloud, selecting_nodeclass({"tags": {"team": "a"}})) == [old]
    assert await resolve_image_ids(cloud, selecting_nodeclass({"tags": {"other": "*"}}, uid="any")) == [new]


async def test_ami_15_missing_image_is_reported_in_conditions(cloud: AwsAdapters) -> None:
    conditions = await resolve_conditions(cloud, selecting_nodeclass({"id": "ami-0000000000000dead"}))
    assert conditions["AMIsReady"].reason == "AMINotFound"
    assert "amiSelectorTerms" in conditions["AMIsReady"].message
    assert conditions["ValidationSucceeded"].status == "False"


async def test_latest_alias_with_deprecated_image_is_read_again(cloud: AwsAdapters, control: AwsControl) -> None:
    before = await resolve_image_ids(cloud, selecting_nodeclass({"alias": "windows2022@latest"}))
    control.deprecate_image(before[0])
    control.release_images("windows", "2031.01.01")
    after = await resolve_image_ids(cloud, selecting_nodeclass({"alias": "windows2022@latest"}, uid="later"))
    assert len(after) == 1
    assert after != before


@pytest.mark.parametrize(
    ("alias", "version", "kinds"),
    [("al2@latest", "1.32", 4), ("windows2019@latest", "1.34", 1), ("windows2025@latest", "1.35", 1)],
)
async def test_ami_09_families_of_other_kubernetes_versions(
    endpoint: str, control: AwsControl, region: Region, alias: str, version: str, kinds: int
) -> None:
    cloud = adapters(endpoint, region, kubernetes_version=version)
    one = await resolve_nodeclass(cloud, selecting_nodeclass({"alias": alias}))
    assert len(one.status.amis) == kinds
    types = {each.name: each.image_id for each in await cloud.offerings.instance_types(one)}
    assert types["m5.large"]
    assert bool(types["m6g.large"]) == alias.startswith("al2@")
    cloud.close()


async def test_throttled_ssm_parameter_keeps_its_last_image(endpoint: str, control: AwsControl, region: Region) -> None:
    cloud = adapters(endpoint, region)
    before = await resolve_image_ids(cloud, selecting_nodeclass({"alias": "al2023@latest"}))
    path = STANDARD.replace("standard", "nvidia")
    control.add_fault("throttle", service="ssm", action="GetParameter", match={"Name": path})
    assert await resolve_image_ids(cloud, selecting_nodeclass({"alias": "al2023@latest"}, uid="later")) == before
    fresh = adapters(endpoint, region)
    found = await fresh.resolver.resolve(selecting_nodeclass({"alias": "al2023@latest"}))
    assert "amis" not in found.status
    assert any("AMIsReady" in text for text in found.failed_lookups)
    cloud.close()
    fresh.close()
