"""Volumes that the EBS CSI driver attaches to nodes of a type, from EC2's description of the type."""

from typing import Any

import pytest

from tenure.aws.instancetype.capacity import ebs_attachments_of
from tests.support.aws.builders import machine

FIRST = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
SECOND = {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "interface"}
THIRD = {"networkCardIndex": 0, "deviceIndex": 2, "interfaceType": "interface"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("m5.large", 25),  # 27 shared, without an interface of the VPC CNI and the root volume
        ("t3.nano", 25),
        ("m5d.24xlarge", 21),  # 23 shared: EC2 deducts four local disks
        ("g4dn.xlarge", 23),  # 25 shared: EC2 deducts a local disk and a GPU
        ("c6gd.metal", 29),
        ("m7i.large", 31),  # 32 dedicated, without the root volume
        ("m7i.48xlarge", 127),
        ("m4.large", 38),  # Xen: 39, without the root volume
        ("i3.large", 38),
        ("t2.micro", 38),
    ],
)
def test_limit_follows_the_figures_of_ec2(name: str, expected: int) -> None:
    assert ebs_attachments_of(machine(name)) == expected


@pytest.mark.parametrize(
    ("name", "family", "spec", "expected"),
    [
        ("m7i.large", "Bottlerocket", {}, 30),
        (
            "m7i.large",
            "AL2023",
            {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "9Gi"}}]},
            31,
        ),
        (
            "m7i.large",
            "AL2023",
            {
                "blockDeviceMappings": [
                    {"deviceName": name, "ebs": {"volumeSize": "9Gi"}}
                    for name in ("/dev/xvda", "/dev/xvdb", "/dev/xvdc")
                ]
            },
            29,
        ),
        ("m5.large", "AL2023", {"networkInterfaces": [FIRST, SECOND]}, 24),
        ("m5.large", "AL2023", {"networkInterfaces": [FIRST, SECOND, THIRD]}, 24),
        ("m7i.large", "AL2023", {"networkInterfaces": [FIRST, SECOND]}, 31),
    ],
    ids=["data disk", "root", "mappings", "two interfaces", "all interfaces", "dedicated"],
)
def test_volumes_and_interfaces_of_the_launch_use_the_limit(
    name: str, family: str, spec: dict[str, Any], expected: int
) -> None:
    assert ebs_attachments_of(machine(name, family, **spec)) == expected
