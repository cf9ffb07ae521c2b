"""Promise 5: exactly one image for every instance type, in any order of images."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.apis import labels
from tenure.apis.ec2nodeclass import ResolvedAmi
from tenure.aws.amifamily.families import FAMILIES, parameters_of
from tenure.aws.amifamily.images import ImageMap, Images, requirements_of
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.instancetype.info import type_labels
from tenure.model.requirements import Requirements
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tests.support.aws.builders import REGION, build_nodeclass, build_type_info
from tests.unit.aws.amifamily.image_cloud import Cloud

ALIASES = {
    "al2023@latest": ("AL2023", "1.34"),
    "al2023@v20250920": ("AL2023", "1.34"),
    "bottlerocket@1.46.0": ("Bottlerocket", "1.34"),
    "bottlerocket@latest": ("Bottlerocket", "1.34"),
    "al2@latest": ("AL2", "1.32"),
}
DATES = ("2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z")
PAST = "2026-01-03T00:00:00.000Z"
EC2_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}
AGES = st.tuples(st.sampled_from(DATES), st.booleans())
"""Creation date of an image, and whether it is deprecated. Few dates, so that many images have the same."""


class Cluster:
    def __init__(self, version: str) -> None:
        self.version = version

    async def facts(self) -> ClusterFacts:
        return ClusterFacts(name="demo", version=self.version)


@cache
def types_by_requirements(family: str) -> dict[frozenset[tuple[str, tuple[str, ...]]], list[str]]:
    """Types of the whole catalogue, grouped by the labels that image requirements can use."""
    keys = (labels.ARCH, labels.OS, labels.INSTANCE_GPU_COUNT, labels.INSTANCE_ACCELERATOR_COUNT)
    found = defaultdict(list)
    for name in all_types():
        if build_type_info(name).architecture:
            described = type_labels(build_type_info(name), FAMILIES[family], REGION, {"us-west-2a": "usw2-az1"})
            found[frozenset((key, described[key]) for key in keys if key in described)].append(name)
    return found


def resolve_amis(cloud: Cloud, version: str, **spec: Any) -> list[ResolvedAmi]:
    images = Images(cloud, Cluster(version), clock=lambda: 0.0)  # type: ignore[arg-type]
    return list(asyncio.run(images.resolve(build_nodeclass(**spec))))


def fitting_ami_ids(amis: Sequence[ResolvedAmi], described: dict[str, tuple[str, ...]]) -> set[str]:
    """The ids of all images that strictly fit such an instance type."""
    machine = Requirements.from_choices(described)
    return {ami.id for ami in amis if machine.is_strictly_compatible(requirements_of(ami))}


@pytest.mark.row("004-c")
@pytest.mark.parametrize("alias", ALIASES)
@settings(max_examples=20)
@given(data=st.data())
def test_alias_has_one_image_for_every_type(alias: str, data: st.DataObject) -> None:
    family, version = ALIASES[alias]
    parameters = parameters_of(alias, version, int(version.partition(".")[2]))
    cloud = Cloud()
    for number, one in enumerate(data.draw(st.permutations(parameters))):
        created, deprecated = data.draw(AGES)
        arch = next(want.values[0] for want in one.variants[0] if want.key == labels.ARCH)
        age = {"DeprecationTime": PAST} if deprecated else {}
        cloud.parameters[one.path] = cloud.image(f"ami-{number}", created=created, arch=EC2_ARCHITECTURES[arch], **age)
    amis = resolve_amis(cloud, version, amiSelectorTerms=[{"alias": alias}])
    shuffled = [ImageMap(data.draw(st.permutations(amis))) for _ in range(3)]
    for requirements, types in types_by_requirements(family).items():
        described = dict(requirements)
        fits = fitting_ami_ids(amis, described)
        if family == "AL2" and described[labels.ARCH] == ("arm64",) and labels.INSTANCE_GPU_COUNT in described:
            assert not fits, "AL2 has no image for arm64 with GPUs"
            continue
        assert len(fits) == 1, f"{types[:5]}: {fits}"
        assert {one.image_for(described) for one in (ImageMap(amis), *shuffled)} == fits


@pytest.mark.row("004-c")
@settings(max_examples=50)
@given(data=st.data())
def test_selector_terms_have_one_image_for_every_type_in_any_order(data: st.DataObject) -> None:
    ages = data.draw(st.lists(st.tuples(st.sampled_from(("x86_64", "arm64")), st.sampled_from("ab"), AGES), min_size=1))
    images = [(f"ami-{number}", *age) for number, age in enumerate(ages)]
    selections = []
    for _ in range(3):
        cloud = Cloud()
        for name, arch, called, (created, deprecated) in data.draw(st.permutations(images)):
            age = {"DeprecationTime": PAST} if deprecated else {}
            cloud.image(name, arch=arch, created=created, Name=called, **age)
        terms = [{"tags": {"team": "a"}}]
        selections.append(resolve_amis(cloud, "1.34", amiFamily="AL2023", amiSelectorTerms=terms))
    assert selections[0] == selections[1] == selections[2]
    available_architectures = {arch for _, arch, *_ in images}
    for requirements in types_by_requirements("AL2023"):
        described = dict(requirements)
        (arch,) = described[labels.ARCH]
        expected = 1 if EC2_ARCHITECTURES[arch] in available_architectures else 0
        fits = fitting_ami_ids(selections[0], described)
        assert len(fits) == expected
        assert ImageMap(selections[0]).image_for(described) == next(iter(fits), "")


@pytest.mark.row("004-c")
def test_catalogue_has_types_of_every_kind() -> None:
    """The properties above would otherwise prove little."""
    devices = {
        (
            dict(requirements)[labels.ARCH][0],
            labels.INSTANCE_GPU_COUNT in dict(requirements),
            labels.INSTANCE_ACCELERATOR_COUNT in dict(requirements),
        )
        for requirements in types_by_requirements("AL2023")
    }
    assert devices == {
        ("amd64", False, False),
        ("arm64", False, False),
        ("amd64", True, False),
        ("arm64", True, False),
        ("amd64", False, True),
    }
    assert sum(map(len, types_by_requirements("AL2023").values())) > 700
