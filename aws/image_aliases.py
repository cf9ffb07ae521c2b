"""Which SSM parameters an alias of images stands for, and which nodes each image is for.

`images.py` reads the parameters. The paths are those that AWS publishes for EKS, Bottlerocket and Windows.
"""

from dataclasses import dataclass
from typing import Final

from aws.families import AL2, AL2023, BOTTLEROCKET, Family, family_of_alias
from model import labels
from model.kinds import Requirement

_EKS: Final = "/aws/service/eks/optimized-ami"
_AMD64: Final = "amd64"
_ARM64: Final = "arm64"
_STANDARD: Final = "standard"
_NVIDIA: Final = "nvidia"
_NEURON: Final = "neuron"
_LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class AliasParameter:
    """A parameter that names an image, and the requirements of each kind of node that the image is for."""

    path: str
    variants: tuple[tuple[Requirement, ...], ...]
    moves: bool = True
    """It names another image from time to time; that of a version never does."""


class AliasError(ValueError):
    """The alias cannot be used; the message says why."""


def parameters_of(alias: str, version: str, minor: int) -> tuple[AliasParameter, ...]:
    """For Kubernetes `version` (such as 1.34), whose minor is given too. Raises AliasError."""
    name, at, wanted = alias.partition("@")
    family = family_of_alias(alias)
    if family is None or not at or not wanted or "@" in wanted:
        raise AliasError(f"alias {alias!r} is not of the form family@version, such as al2023@latest")
    if family is AL2 and minor >= 33:
        raise AliasError(f"AL2 images end with Kubernetes 1.32, the cluster runs {version}; use al2023@latest")
    if family is AL2:
        return _al2(version, wanted)
    if family is AL2023:
        return _al2023(version, wanted)
    if family is BOTTLEROCKET:
        return _bottlerocket(version, wanted)
    return _windows(family, name, version, wanted, minor)


def _al2(version: str, wanted: str) -> tuple[AliasParameter, ...]:
    def path(product: str, prefix: str) -> str:
        image = "recommended" if wanted == _LATEST else f"{prefix}-{version}-{wanted}"
        return f"{_EKS}/{version}/{product}/{image}/image_id"

    moves = wanted == _LATEST
    return (
        AliasParameter(path("amazon-linux-2", "amazon-eks-node"), (_variant(_AMD64, _STANDARD),), moves),
        AliasParameter(path("amazon-linux-2-arm64", "amazon-eks-arm64-node"), (_variant(_ARM64, _STANDARD),), moves),
        AliasParameter(
            path("amazon-linux-2-gpu", "amazon-eks-gpu-node"),
            (_variant(_AMD64, _NEURON), _variant(_AMD64, _NVIDIA)),
            moves,
        ),
    )


def _al2023(version: str, wanted: str) -> tuple[AliasParameter, ...]:
    kinds = (
        ("x86_64", _AMD64, (_STANDARD, _NVIDIA, _NEURON)),
        ("arm64", _ARM64, (_STANDARD, _NVIDIA)),
    )
    found = []
    for machine, architecture, variants in kinds:
        for variant in variants:
            pinned = f"amazon-eks-node-al2023-{machine}-{variant}-{version}-{wanted}"
            image = "recommended" if wanted == _LATEST else pinned
            path = f"{_EKS}/{version}/amazon-linux-2023/{machine}/{variant}/{image}/image_id"
            found.append(AliasParameter(path, (_variant(architecture, variant),), wanted == _LATEST))
    return tuple(found)


def _bottlerocket(version: str, wanted: str) -> tuple[AliasParameter, ...]:
    release = _LATEST if wanted == _LATEST else wanted.removeprefix("v")

    def path(flavour: str, machine: str) -> str:
        return f"/aws/service/bottlerocket/aws-k8s-{version}{flavour}/{machine}/{release}/image_id"

    moves = wanted == _LATEST
    return (
        AliasParameter(path("", "x86_64"), (_variant(_AMD64, _STANDARD), _variant(_AMD64, _NEURON)), moves),
        AliasParameter(path("", "arm64"), (_variant(_ARM64, _STANDARD),), moves),
        AliasParameter(path("-nvidia", "x86_64"), (_variant(_AMD64, _NVIDIA),), moves),
        AliasParameter(path("-nvidia", "arm64"), (_variant(_ARM64, _NVIDIA),), moves),
    )


def _windows(family: Family, name: str, version: str, wanted: str, minor: int) -> tuple[AliasParameter, ...]:
    year = name.lower().removeprefix("windows")
    if wanted != _LATEST:
        raise AliasError(f"Windows images are published as latest alone; write {name}@latest")
    if year == "2025" and 0 < minor < 35:
        raise AliasError(f"Windows 2025 images begin with Kubernetes 1.35, the cluster runs {version}")
    path = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{version}/image_id"
    wants = (
        Requirement(key=labels.OS, operator="In", values=("windows",)),
        Requirement(key=labels.WINDOWS_BUILD, operator="In", values=(family.windows_build,)),
    )
    return (AliasParameter(path, (wants,)),)


def _variant(architecture: str, variant: str) -> tuple[Requirement, ...]:
    """Keys by length and then by alphabet, as the status shows them."""
    arch = Requirement(key=labels.ARCH, operator="In", values=(architecture,))
    gpus = Requirement(key=labels.INSTANCE_GPU_COUNT, operator="Exists" if variant == _NVIDIA else "DoesNotExist")
    chips = Requirement(
        key=labels.INSTANCE_ACCELERATOR_COUNT, operator="Exists" if variant == _NEURON else "DoesNotExist"
    )
    match variant:
        case "nvidia":
            return (arch, gpus)
        case "neuron":
            return (arch, chips)
    return (arch, gpus, chips)
