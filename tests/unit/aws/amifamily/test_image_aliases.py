"""Aliases of images: their form, the Kubernetes versions of each family, and the SSM parameters."""

import pytest

from tenure.apis import labels
from tenure.aws.amifamily.families import AliasError, parameters_of
from tests.unit.aws.amifamily.image_cloud import (
    LATEST,
    build_images,
    published_cloud,
    resolve_images,
)


@pytest.mark.parametrize(
    ("alias", "minor", "is_valid"),
    [
        ("al2@latest", 32, True),
        ("al2@latest", 33, False),
        ("windows2025@latest", 34, False),
        ("windows2025@latest", 35, True),
        ("windows2019@latest", 34, True),
    ],
)
def test_aliases_are_limited_to_kubernetes_versions(alias: str, minor: int, is_valid: bool) -> None:
    if is_valid:
        assert parameters_of(alias, f"1.{minor}", minor)
    else:
        with pytest.raises(AliasError, match=f"1.{minor}"):
            parameters_of(alias, f"1.{minor}", minor)


EKS = "/aws/service/eks/optimized-ami/1.32"
ROCKET = "/aws/service/bottlerocket/aws-k8s-1.32"


def al2(*images: str) -> dict[str, int]:
    products = ("amazon-linux-2", "amazon-linux-2-arm64", "amazon-linux-2-gpu")
    return {
        f"{EKS}/{product}/{image}/image_id": count
        for product, image, count in zip(products, images, (1, 1, 2), strict=True)
    }


def al2023(image: str) -> dict[str, int]:
    kinds = ("x86_64/standard", "x86_64/nvidia", "x86_64/neuron", "arm64/standard", "arm64/nvidia")
    return {f"{EKS}/amazon-linux-2023/{kind}/{image.format(kind=kind.replace('/', '-'))}/image_id": 1 for kind in kinds}


def bottlerocket(release: str) -> dict[str, int]:
    kinds = {"/x86_64": 2, "/arm64": 1, "-nvidia/x86_64": 1, "-nvidia/arm64": 1}
    return {f"{ROCKET}{kind}/{release}/image_id": count for kind, count in kinds.items()}


PINNED_AL2 = [f"amazon-eks-{kind}-1.32-v20250101" for kind in ("node", "arm64-node", "gpu-node")]
WINDOWS = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.32/image_id"


@pytest.mark.parametrize(
    ("alias", "paths"),
    [
        ("al2@latest", al2(*["recommended"] * 3)),
        ("al2@v20250101", al2(*PINNED_AL2)),
        ("al2023@v20250101", al2023("amazon-eks-node-al2023-{kind}-1.32-v20250101")),
        ("al2023@latest", al2023("recommended")),
        ("bottlerocket@latest", bottlerocket("latest")),
        ("bottlerocket@v1.32.0-cacc4ce9", bottlerocket("1.32.0-cacc4ce9")),
        ("windows2022@latest", {WINDOWS: 1}),
    ],
)
def test_alias_resolves_to_published_parameters(alias: str, paths: dict[str, int]) -> None:
    assert {one.path: len(one.variants) for one in parameters_of(alias, "1.32", 32)} == paths


def test_bottlerocket_version_may_start_with_v() -> None:
    assert parameters_of("bottlerocket@1.40.0", "1.34", 34) == parameters_of("bottlerocket@v1.40.0", "1.34", 34)


async def test_each_variant_requires_its_kind_of_node() -> None:
    requirements_by_image = {
        image.id: {r.key: (r.operator, r.values) for r in image.requirements}
        for image in await resolve_images(build_images(published_cloud()), LATEST)
    }
    gpus, accelerators = labels.INSTANCE_GPU_COUNT, labels.INSTANCE_ACCELERATOR_COUNT
    assert requirements_by_image["ami-0"] == {
        labels.ARCH: ("In", ("amd64",)),
        gpus: ("DoesNotExist", ()),
        accelerators: ("DoesNotExist", ()),
    }
    assert requirements_by_image["ami-1"] == {labels.ARCH: ("In", ("amd64",)), gpus: ("Exists", ())}
    assert requirements_by_image["ami-2"] == {labels.ARCH: ("In", ("amd64",)), accelerators: ("Exists", ())}
    assert requirements_by_image["ami-3"][labels.ARCH] == ("In", ("arm64",))
