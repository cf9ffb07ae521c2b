"""The labels of instance types: Karpenter's names and values."""

from tenure.apis import labels
from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.instancetype.info import type_labels
from tests.support.aws.builders import REGION, build_type_info


def labels_of(name: str, family: str = "AL2023") -> dict[str, tuple[str, ...]]:
    return type_labels(build_type_info(name), FAMILIES[family], REGION, {"us-west-2a": "usw2-az1", "us-west-2b": ""})


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
