"""The labels of instance types: Karpenter's names and values."""

import pytest

from aws.families import FAMILIES
from aws.type_labels import TYPE_KEYS, type_labels
from model import labels
from tests.support.aws.builders import REGION, info

PREFIX = "karpenter.k8s.aws/instance-"


def labels_of(name: str, family: str = "AL2023") -> dict[str, tuple[str, ...]]:
    return type_labels(info(name), FAMILIES[family], REGION, {"us-west-2a": "usw2-az1", "us-west-2b": ""})


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("m5.large", "category", "m"),
        ("m5.large", "generation", "5"),
        ("m5.large", "family", "m5"),
        ("m5.large", "size", "large"),
        ("m5.large", "cpu", "2"),
        ("m5.large", "memory", "8192"),
        ("m5.large", "cpu-manufacturer", "intel"),
        ("m5.large", "hypervisor", "nitro"),
        ("m5.large", "capability-flex", "false"),
        ("a1.medium", "ebs-bandwidth", "3500"),
        ("a1.medium", "network-bandwidth", "500"),
        ("c5.xlarge", "network-bandwidth", "1250"),
        ("m7i-flex.large", "capability-flex", "true"),
        ("m5.metal", "hypervisor", ""),
        ("u-6tb1.56xlarge", "category", "u"),
        ("u-6tb1.56xlarge", "generation", "1"),
        ("g5.xlarge", "gpu-name", "a10g"),
        ("g5.xlarge", "gpu-manufacturer", "nvidia"),
        ("g5.xlarge", "gpu-count", "1"),
        ("g5.xlarge", "local-nvme", "250"),
        ("inf2.xlarge", "accelerator-name", "inferentia2"),
        ("inf2.xlarge", "accelerator-manufacturer", "aws"),
        ("inf2.xlarge", "accelerator-count", "1"),
    ],
)
def test_labels_read_out_of_what_ec2_says(name: str, key: str, value: str) -> None:
    assert labels_of(name)[PREFIX + key] == (value,)


@pytest.mark.parametrize("key", ["gpu-count", "accelerator-count", "local-nvme"])
def test_what_a_machine_lacks_has_no_label_and_is_known_to_be_absent(key: str) -> None:
    assert PREFIX + key not in labels_of("m5.large")
    assert PREFIX + key in TYPE_KEYS


def test_places_and_kinds_of_purchase() -> None:
    found = labels_of("m5.large")
    assert found[labels.ZONE] == ("us-west-2a", "us-west-2b")
    assert found[labels.ZONE_ID] == ("usw2-az1",)
    assert found[labels.CAPACITY_TYPE] == ("on-demand", "spot")
    assert found[labels.ARCH] == ("amd64",)


def test_windows_has_a_build_and_does_not_run_on_arm() -> None:
    assert labels_of("m5.large", "Windows2022")[labels.WINDOWS_BUILD] == ("10.0.20348",)
    assert labels_of("m5.large", "Windows2022")[labels.OS] == ("windows",)
    assert labels_of("m6g.large", "Windows2022")[labels.OS] == ()
