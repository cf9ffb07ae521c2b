"""Each instance type boots one image of an alias: the image for its architecture and its devices."""

from collections import defaultdict
from functools import cache

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import ResolvedAmi
from tenure.aws.amifamily.families import FAMILIES, family_of_alias, parameters_of
from tenure.aws.amifamily.images import ImageMap, requirements_of
from tenure.aws.instancetype.info import TypeInfo, type_labels
from tenure.model.requirements import Requirements
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tests.support.aws.builders import REGION, build_type_info

ALIASES = ("al2@latest", "al2023@latest", "bottlerocket@latest", "windows2022@latest", "windows2025@latest")


def images_of(alias: str) -> list[ResolvedAmi]:
    """One image for each kind of node; its ID is the parameter path."""
    minor = 32 if alias.startswith("al2@") else 35
    parameters = parameters_of(alias, f"1.{minor}", minor)
    return [ResolvedAmi(id=one.path, requirements=variant) for one in parameters for variant in one.variants]


@cache
def type_info(name: str) -> TypeInfo:
    return build_type_info(name)


@cache
def labels_of(name: str, alias: str) -> dict[str, tuple[str, ...]]:
    family = family_of_alias(alias)
    assert family
    return type_labels(type_info(name), family, REGION, {"us-west-2a": "usw2-az1"})


@cache
def compatible_images(alias: str) -> dict[str, set[str]]:
    """IDs of the images whose requirements each type satisfies; types with equal labels are computed once."""
    images = [(image.id, requirements_of(image)) for image in images_of(alias)]
    keys = sorted({key for _, requirements in images for key in requirements})
    names_by_label_values = defaultdict[tuple[tuple[str, ...], ...], list[str]](list)
    for name in all_types():
        described = labels_of(name, alias)
        names_by_label_values[tuple(described.get(key, ()) for key in keys)].append(name)
    found = {}
    for label_values, names in names_by_label_values.items():
        node = Requirements.from_choices(dict(zip(keys, label_values, strict=True)))
        compatible = {image for image, requirements in images if node.is_strictly_compatible(requirements)}
        found.update(dict.fromkeys(names, compatible))
    return found


@pytest.mark.parametrize("alias", ALIASES)
def test_no_type_fits_two_images_and_few_kinds_fit_none(alias: str) -> None:
    found = compatible_images(alias)
    assert max(len(compatible) for compatible in found.values()) == 1
    for name in (name for name, compatible in found.items() if not compatible):
        one, described = type_info(name), labels_of(name, alias)
        special = labels.INSTANCE_GPU_COUNT in described or labels.INSTANCE_ACCELERATOR_COUNT in described
        assert not one.architecture or (one.architecture == "arm64" and (special or not described[labels.OS]))


@pytest.mark.parametrize("alias", ALIASES)
def test_map_selects_compatible_image(alias: str) -> None:
    mapped = ImageMap(images_of(alias))
    for name, compatible in compatible_images(alias).items():
        assert mapped.image_for(labels_of(name, alias)) == next(iter(compatible), "")


EKS, ROCKET = "/aws/service/eks/optimized-ami", "/aws/service/bottlerocket/aws-k8s-1.35"


@pytest.mark.parametrize(
    ("alias", "name", "path"),
    [
        ("al2023@latest", "m5.large", f"{EKS}/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id"),
        ("al2023@latest", "m6g.large", f"{EKS}/1.35/amazon-linux-2023/arm64/standard/recommended/image_id"),
        ("al2023@latest", "g5.xlarge", f"{EKS}/1.35/amazon-linux-2023/x86_64/nvidia/recommended/image_id"),
        ("al2023@latest", "g5g.xlarge", f"{EKS}/1.35/amazon-linux-2023/arm64/nvidia/recommended/image_id"),
        ("al2023@latest", "inf2.xlarge", f"{EKS}/1.35/amazon-linux-2023/x86_64/neuron/recommended/image_id"),
        ("al2023@latest", "trn1.32xlarge", f"{EKS}/1.35/amazon-linux-2023/x86_64/neuron/recommended/image_id"),
        ("al2@latest", "g5.xlarge", f"{EKS}/1.32/amazon-linux-2-gpu/recommended/image_id"),
        ("al2@latest", "inf2.xlarge", f"{EKS}/1.32/amazon-linux-2-gpu/recommended/image_id"),
        ("al2@latest", "g5g.xlarge", ""),
        ("bottlerocket@latest", "inf2.xlarge", f"{ROCKET}/x86_64/latest/image_id"),
        ("bottlerocket@latest", "g5.xlarge", f"{ROCKET}-nvidia/x86_64/latest/image_id"),
        ("bottlerocket@latest", "g5g.xlarge", f"{ROCKET}-nvidia/arm64/latest/image_id"),
        ("windows2022@latest", "m6g.large", ""),
    ],
)
def test_well_known_types_boot_their_image(alias: str, name: str, path: str) -> None:
    assert ImageMap(images_of(alias)).image_for(labels_of(name, alias)) == path


def test_image_that_requires_label_does_not_fit_types_without_it() -> None:
    images = images_of("al2023@latest")
    only_nvidia = [image for image in images if "x86_64/nvidia" in image.id]
    assert ImageMap(only_nvidia).image_for(labels_of("m5.large", "al2023@latest")) == ""


def test_first_of_several_compatible_images_is_selected() -> None:
    arch = images_of("al2023@latest")[0].requirements[:1]
    images = [ResolvedAmi(id=name, requirements=arch) for name in ("ami-new", "ami-old")]
    assert ImageMap(images).image_for(labels_of("m5.large", "al2023@latest")) == "ami-new"


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_only_windows_families_have_a_build(name: str) -> None:
    assert bool(FAMILIES[name].windows_build) == name.startswith("Windows")
