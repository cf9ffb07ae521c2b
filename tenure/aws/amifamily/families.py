"""The image families of an EC2NodeClass, and the SSM parameters of their aliases.

The paths are those that AWS publishes for EKS, Bottlerocket and Windows.
"""

from dataclasses import dataclass
from typing import Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.meta import Requirement

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class DefaultDisk:
    device: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Family:
    """One image family. `data_device` is the disk with the ephemeral storage of pods."""

    name: str
    disks: tuple[DefaultDisk, ...]
    data_device: str = ""
    eni_limited_overhead: bool = False
    """kube-reserved memory is computed from the pods that the interfaces allow, regardless of maxPods."""
    pods_per_core: bool = True
    eni_limited_pods: bool = True
    any_kubelet_key: bool = False
    many_dns: bool = False
    syncs_taints_itself: bool = True
    """The user data registers the taints, so no other component copies them to the Node."""
    os: str = "linux"
    windows_build: str = ""


_XVDA: Final = (DefaultDisk("/dev/xvda", 20 * GIB),)
_WINDOWS_DISK: Final = (DefaultDisk("/dev/sda1", 50 * GIB),)


def _windows_family(name: str, build: str) -> Family:
    return Family(
        name, _WINDOWS_DISK, data_device="/dev/sda1", eni_limited_pods=False, os="windows", windows_build=build
    )


AL2: Final = Family("AL2", _XVDA, data_device="/dev/xvda", eni_limited_overhead=True)
AL2023: Final = Family(
    "AL2023", _XVDA, data_device="/dev/xvda", eni_limited_overhead=True, any_kubelet_key=True, many_dns=True
)
BOTTLEROCKET: Final = Family(
    "Bottlerocket",
    (DefaultDisk("/dev/xvda", 6 * GIB), DefaultDisk("/dev/xvdb", 20 * GIB)),
    data_device="/dev/xvdb",
    pods_per_core=False,
)
CUSTOM: Final = Family("Custom", (), eni_limited_overhead=True, any_kubelet_key=True, syncs_taints_itself=False)
FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        AL2,
        AL2023,
        BOTTLEROCKET,
        CUSTOM,
        _windows_family("Windows2019", "10.0.17763"),
        _windows_family("Windows2022", "10.0.20348"),
        _windows_family("Windows2025", "10.0.26100"),
    )
}
_BY_ALIAS: Final = {name.lower(): family for name, family in FAMILIES.items() if family is not CUSTOM}


def family_of_alias(alias: str) -> Family | None:
    """The family of an alias `family@version`; None if unknown."""
    return _BY_ALIAS.get(alias.partition("@")[0].lower())


def family_of(node_class: EC2NodeClass) -> Family:
    """`spec.amiFamily`, or the alias's family; Custom if neither is known."""
    if node_class.spec.ami_family:
        return FAMILIES.get(node_class.spec.ami_family, CUSTOM)
    aliases = (family_of_alias(term.alias) for term in node_class.spec.ami_selector_terms if term.alias)
    return next((family for family in aliases if family), CUSTOM)


_EKS: Final = "/aws/service/eks/optimized-ami"
_AMD64: Final = "amd64"
_ARM64: Final = "arm64"
_STANDARD: Final = "standard"
_NVIDIA: Final = "nvidia"
_NEURON: Final = "neuron"
_LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class AliasParameter:
    """An SSM parameter with an image ID, and the requirements of each node variant that the image supports."""

    path: str
    variants: tuple[tuple[Requirement, ...], ...]
    moves: bool = True
    """Whether AWS updates the parameter. The parameter of a pinned version never changes."""


class AliasError(ValueError):
    """The alias cannot be used; the message has the reason."""


def parameters_of(alias: str, version: str, minor: int) -> tuple[AliasParameter, ...]:
    """The parameters for Kubernetes `version`, such as 1.34, with minor version `minor`. Raises AliasError."""
    name, at, image_version = alias.partition("@")
    family = family_of_alias(alias)
    if family is None or not at or not image_version or "@" in image_version:
        raise AliasError(f"alias {alias!r}: invalid format, expected family@version, e.g. al2023@latest")
    if family is AL2 and minor >= 33:
        raise AliasError(f"AL2 images end with Kubernetes 1.32, the cluster runs {version}; use al2023@latest")
    if family.os == "windows":
        return _windows_parameters(family, name, version, image_version, minor)
    latest = image_version == _LATEST
    release = image_version if family is not BOTTLEROCKET else image_version.removeprefix("v")
    return tuple(
        AliasParameter(
            f"{(path if latest else pinned).format(version=version, release=release)}/image_id",
            tuple(_variant_requirements(architecture, variant) for variant in variants),
            moves=latest,
        )
        for path, pinned, architecture, variants in _PARAMETERS[family.name]
    )


def _al2(product: str, image: str) -> tuple[str, str]:
    folder = f"{_EKS}/{{version}}/{product}"
    return f"{folder}/recommended", f"{folder}/{image}-{{version}}-{{release}}"


def _al2023(machine: str, variant: str) -> tuple[str, str]:
    return _al2(f"amazon-linux-2023/{machine}/{variant}", f"amazon-eks-node-al2023-{machine}-{variant}")


def _bottlerocket(flavour: str, machine: str) -> tuple[str, str]:
    folder = f"/aws/service/bottlerocket/aws-k8s-{{version}}{flavour}/{machine}"
    return f"{folder}/latest", f"{folder}/{{release}}"


_PARAMETERS: Final[dict[str, tuple[tuple[str, str, str, tuple[str, ...]], ...]]] = {
    "AL2": (
        (*_al2("amazon-linux-2", "amazon-eks-node"), _AMD64, (_STANDARD,)),
        (*_al2("amazon-linux-2-arm64", "amazon-eks-arm64-node"), _ARM64, (_STANDARD,)),
        (*_al2("amazon-linux-2-gpu", "amazon-eks-gpu-node"), _AMD64, (_NEURON, _NVIDIA)),
    ),
    "AL2023": (
        *((*_al2023("x86_64", variant), _AMD64, (variant,)) for variant in (_STANDARD, _NVIDIA, _NEURON)),
        *((*_al2023("arm64", variant), _ARM64, (variant,)) for variant in (_STANDARD, _NVIDIA)),
    ),
    "Bottlerocket": (
        (*_bottlerocket("", "x86_64"), _AMD64, (_STANDARD, _NEURON)),
        (*_bottlerocket("", "arm64"), _ARM64, (_STANDARD,)),
        (*_bottlerocket("-nvidia", "x86_64"), _AMD64, (_NVIDIA,)),
        (*_bottlerocket("-nvidia", "arm64"), _ARM64, (_NVIDIA,)),
    ),
}
"""By family: path of the latest image, path of a pinned version, architecture, and node variants."""


def _windows_parameters(
    family: Family, name: str, version: str, image_version: str, minor: int
) -> tuple[AliasParameter, ...]:
    year = name.lower().removeprefix("windows")
    if image_version != _LATEST:
        raise AliasError(f"alias {name}@{image_version}: Windows images cannot be pinned, expected {name}@latest")
    if year == "2025" and 0 < minor < 35:
        raise AliasError(f"Windows 2025 images begin with Kubernetes 1.35, the cluster runs {version}")
    path = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{version}/image_id"
    requirements = (
        Requirement(key=labels.OS, operator="In", values=("windows",)),
        Requirement(key=labels.WINDOWS_BUILD, operator="In", values=(family.windows_build,)),
    )
    return (AliasParameter(path, (requirements,)),)


def _variant_requirements(architecture: str, variant: str) -> tuple[Requirement, ...]:
    """Sorted by length of the key, then by key, as in the status."""
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
