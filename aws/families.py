"""What differs between the image families that an EC2NodeClass can name: one row each.

`images.py` finds a family's images, `capacity.py` and `overhead.py` compute with its row, and
`user_data/` speaks its dialect.
"""

from dataclasses import dataclass
from typing import Final

from model.kinds import EC2NodeClass

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class DefaultDisk:
    device: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Family:
    """One image family. `data_device` is the disk that pods' ephemeral storage lies on."""

    name: str
    disks: tuple[DefaultDisk, ...]
    data_device: str = ""
    eni_limited_overhead: bool = False
    """kube-reserved memory counts the pods that the interfaces allow, whatever maxPods says."""
    pods_per_core: bool = True
    eni_limited_pods: bool = True
    any_kubelet_key: bool = False
    many_dns: bool = False
    syncs_taints_itself: bool = True
    """Its user data registers the taints, so that nobody else need copy them to the Node."""
    os: str = "linux"
    windows_build: str = ""


_XVDA: Final = (DefaultDisk("/dev/xvda", 20 * GIB),)
_WINDOWS_DISK: Final = (DefaultDisk("/dev/sda1", 50 * GIB),)


def _windows(name: str, build: str) -> Family:
    return Family(
        name, _WINDOWS_DISK, data_device="/dev/sda1", eni_limited_pods=False, os="windows", windows_build=build
    )


AL2: Final = Family("AL2", _XVDA, data_device="/dev/xvda", eni_limited_overhead=True)
AL2023: Final = Family(
    "AL2023", _XVDA, data_device="/dev/xvda", eni_limited_overhead=True, any_kubelet_key=True, many_dns=True
)
BOTTLEROCKET: Final = Family(
    "Bottlerocket",
    (DefaultDisk("/dev/xvda", 4 * GIB), DefaultDisk("/dev/xvdb", 20 * GIB)),
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
        _windows("Windows2019", "10.0.17763"),
        _windows("Windows2022", "10.0.20348"),
        _windows("Windows2025", "10.0.26100"),
    )
}
_BY_ALIAS: Final = {name.lower(): family for name, family in FAMILIES.items() if family is not CUSTOM}


def family_of_alias(alias: str) -> Family | None:
    """The family that `family@version` names."""
    return _BY_ALIAS.get(alias.partition("@")[0].lower())


def family_of(node_class: EC2NodeClass) -> Family:
    """`spec.amiFamily`, or what the alias says; Custom where neither is known."""
    if node_class.spec.ami_family:
        return FAMILIES.get(node_class.spec.ami_family, CUSTOM)
    aliases = (family_of_alias(term.alias) for term in node_class.spec.ami_selector_terms if term.alias)
    return next((family for family in aliases if family), CUSTOM)
