"""The disks that an image declares decide the disk with the kubelet's directories, in capacity and launches."""

from dataclasses import replace
from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.amifamily.families import FAMILIES, GIB
from tenure.aws.amifamily.image_disks import ImageDisks
from tenure.aws.amifamily.images import ImageDiskReader
from tenure.aws.instance.block_devices import block_device_mappings, why_root_not_mapped
from tenure.aws.instancetype.capacity import storage_of
from tests.support.aws.builders import build_nodeclass, machine
from tests.unit.aws.amifamily.image_cloud import HOUR, Cloud


def image_disks(root: str, **sizes: int) -> ImageDisks:
    """Sizes in GiB by device without its folder."""
    return ImageDisks(root_device=root, volumes=tuple((f"/dev/{name}", size * GIB) for name, size in sizes.items()))


UBUNTU = image_disks("/dev/sda1", sda1=8)
LARGE = image_disks("/dev/xvda", xvda=100)
BOTTLEROCKET = image_disks("/dev/xvda", xvda=2, xvdb=30)


def mapping(device: str, gib: int, **more: Any) -> dict[str, Any]:
    return {"deviceName": device, "ebs": {"volumeSize": f"{gib}Gi"}, **more}


@pytest.mark.parametrize(
    ("family", "disks", "mappings", "gib"),
    [
        ("AL2", UBUNTU, [mapping("/dev/sda1", 400)], 400),
        ("AL2023", UBUNTU, [mapping("/dev/xvda", 400)], 8),
        ("AL2023", UBUNTU, [mapping("/dev/sdf", 400, rootVolume=True)], 400),
        ("AL2023", UBUNTU, [], 20),
        ("AL2023", LARGE, [mapping("/dev/sdf", 400)], 100),
        ("AL2023", LARGE, [], 100),
        ("AL2023", LARGE, [mapping("/dev/xvda", 150)], 150),
        ("Custom", LARGE, [], 100),
        ("Custom", LARGE, [mapping("/dev/sdf", 400)], 400),
        ("Bottlerocket", BOTTLEROCKET, [mapping("/dev/xvda", 4)], 30),
        ("Bottlerocket", BOTTLEROCKET, [mapping("/dev/xvdb", 50)], 50),
        ("Bottlerocket", BOTTLEROCKET, [], 30),
    ],
)
def test_ephemeral_storage_follows_disks_of_image(
    family: str, disks: ImageDisks, mappings: list[dict[str, Any]], gib: int
) -> None:
    one = machine("m5.large", family, blockDeviceMappings=mappings)
    assert storage_of(replace(one, disks=disks)) == gib * GIB


def launched_disks(family: str, disks: ImageDisks, *mappings: dict[str, Any]) -> dict[str, int]:
    """GiB by device in the launch template."""
    spec = build_nodeclass(blockDeviceMappings=list(mappings)).spec
    found = block_device_mappings(spec.block_device_mappings, FAMILIES[family], disks)
    return {one["DeviceName"]: one["Ebs"]["VolumeSize"] for one in found.get("BlockDeviceMappings", ())}


def test_default_disk_of_family_is_root_device_of_image() -> None:
    assert launched_disks("AL2023", UBUNTU) == {"/dev/sda1": 20}
    assert launched_disks("Bottlerocket", BOTTLEROCKET) == {"/dev/xvda": 6, "/dev/xvdb": 30}
    assert launched_disks("Custom", LARGE) == {}


def test_default_disk_is_not_smaller_than_volume_of_image() -> None:
    assert launched_disks("AL2023", LARGE) == {"/dev/xvda": 100}


@pytest.mark.parametrize(
    ("family", "disks", "device"),
    [
        ("AL2023", UBUNTU, "/dev/sda1"),
        ("Custom", UBUNTU, "/dev/sda1"),
        ("Bottlerocket", BOTTLEROCKET, "/dev/xvdb"),
        ("Windows2022", ImageDisks(), "/dev/sda1"),
    ],
)
def test_root_volume_without_device_name_is_disk_with_kubelet_directories(
    family: str, disks: ImageDisks, device: str
) -> None:
    root_volume = {"rootVolume": True, "ebs": {"volumeSize": "60Gi"}}
    assert launched_disks(family, disks, root_volume) == {device: 60}


@pytest.mark.parametrize(
    ("family", "disks", "mappings", "warning"),
    [
        (
            "AL2023",
            {"ami-1": UBUNTU},
            [mapping("/dev/xvda", 100)],
            "'/dev/xvda': the root device of image ami-1 is '/dev/sda1'",
        ),
        ("AL2023", {"ami-1": LARGE, "ami-2": UBUNTU}, [mapping("/dev/xvda", 100)], "image ami-2 is '/dev/sda1'"),
        ("AL2023", {}, [mapping("/dev/sda1", 100)], "'/dev/sda1': the root device of AL2023 is '/dev/xvda'"),
        ("AL2023", {}, [mapping("/dev/sdf", 100, rootVolume=True)], "'/dev/sdf': the root device of AL2023"),
        ("AL2023", {}, [mapping("/dev/xvda", 100), mapping("/dev/sdf", 100)], ""),
        ("AL2023", {"ami-1": UBUNTU}, [{"rootVolume": True, "ebs": {"volumeSize": "60Gi"}}], ""),
        ("AL2023", {}, [], ""),
        ("Bottlerocket", {}, [mapping("/dev/xvda", 4), mapping("/dev/xvdb", 20)], ""),
        ("Bottlerocket", {}, [mapping("/dev/xvdb", 50)], ""),
        ("Bottlerocket", {}, [mapping("/dev/sda1", 50)], "'/dev/sda1': the root device of Bottlerocket is '/dev/xvda'"),
        ("Custom", {"ami-1": UBUNTU}, [mapping("/dev/xvda", 100)], "image ami-1 is '/dev/sda1'"),
        ("Custom", {}, [mapping("/dev/xvda", 100)], ""),
    ],
)
def test_warning_names_root_device_that_mappings_leave_out(
    family: str, disks: dict[str, ImageDisks], mappings: list[dict[str, Any]], warning: str
) -> None:
    spec = build_nodeclass(blockDeviceMappings=mappings).spec
    found = why_root_not_mapped(spec.block_device_mappings, FAMILIES[family], disks)
    assert warning in found and bool(found) == bool(warning)


def nodeclass_of(*image_ids: str, **term: str) -> EC2NodeClass:
    status = {"amis": [{"id": one, "requirements": []} for one in image_ids]}
    return build_nodeclass(status, amiSelectorTerms=[term], amiFamily="AL2023")


async def test_disks_of_image_without_alias_are_read_once() -> None:
    cloud = Cloud()
    cloud.image(
        "ami-1",
        RootDeviceName="/dev/sda1",
        BlockDeviceMappings=[
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}},
            {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
        ],
    )
    reader = ImageDiskReader(cloud, lambda: cloud.now)  # type: ignore[arg-type]
    for cloud.now in (0, HOUR):
        assert await reader.disks_of(nodeclass_of("ami-1", id="ami-1")) == {
            "ami-1": image_disks("/dev/sda1", sda1=8, sdb=0)
        }
    assert cloud.call_counts["describe_images"] == 1


async def test_missing_image_is_read_again_after_ten_minutes() -> None:
    cloud = Cloud()
    cloud.image("ami-1", RootDeviceName="/dev/xvda")
    reader = ImageDiskReader(cloud, lambda: cloud.now)  # type: ignore[arg-type]
    both = nodeclass_of("ami-1", "ami-2", id="ami-1")
    for cloud.now in (0, 599):
        assert set(await reader.disks_of(both)) == {"ami-1"}
    cloud.image("ami-2", RootDeviceName="/dev/sda1")
    cloud.now = 601
    assert (await reader.disks_of(both))["ami-2"].root_device == "/dev/sda1"
    assert [one["Filters"][0]["Values"] for one in cloud.searches] == [["ami-1", "ami-2"], ["ami-2"]]


async def test_disks_of_alias_are_not_read() -> None:
    cloud = Cloud()
    reader = ImageDiskReader(cloud, lambda: cloud.now)  # type: ignore[arg-type]
    assert await reader.disks_of(nodeclass_of("ami-1", alias="al2023@latest")) == {}
    assert cloud.call_counts["describe_images"] == 0
