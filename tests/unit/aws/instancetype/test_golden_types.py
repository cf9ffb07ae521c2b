"""Allocatable resources of well-known instance types with the defaults of AL2023, and their labels.

The values of `PUBLISHED` are from Karpenter's reference of instance types. Those of `COMPUTED` were computed without
this code, from EC2's facts and Karpenter's formulas: pods = interfaces x (addresses - 1) + 2; memory less 7.5% (rounded
up), 11 MiB per pod, 255 MiB and 100 MiB (64 MiB more on arm64); CPU less 6% of the first core, 1% of the second, 0.5%
of the next two and 0.25% of the others.
"""

import pytest

from tenure.apis import labels
from tenure.aws.amifamily.families import FAMILIES, GIB
from tenure.aws.instancetype.capacity import MIB, capacity_of, overhead_of
from tenure.aws.instancetype.info import TYPE_KEYS, type_labels
from tenure.aws.instancetype.network_limits import branch_interfaces
from tenure.model.instance_types import InstanceType
from tests.support.aws.builders import REGION, build_type_info, machine

PREFIX = "karpenter.k8s.aws/instance-"
# name, millicores, MiB, pods, branch interfaces, Mbit/s of network
PUBLISHED = [
    ("m5n.large", 1930, 6903, 29, 9, "2100"),
    ("m5n.xlarge", 3920, 14162, 58, 18, "4100"),
    ("m5n.2xlarge", 7910, 29317, 58, 38, "8125"),
    ("m5n.4xlarge", 15890, 57691, 234, 54, "16250"),
    ("m5n.8xlarge", 31850, 118312, 234, 54, "25000"),
    ("m5n.12xlarge", 47810, 178933, 234, 54, "50000"),
    ("m5n.16xlarge", 63770, 234021, 737, 107, "75000"),
    ("m5n.24xlarge", 95690, 355262, 737, 107, "100000"),
    ("m5dn.metal", 95690, 355262, 737, 107, "100000"),
    ("m5zn.3xlarge", 11900, 42536, 234, 92, "15000"),
    ("m5zn.6xlarge", 23870, 88002, 234, 114, "50000"),
    ("m5zn.12xlarge", 47810, 173400, 737, 107, "100000"),
    ("i7ie.2xlarge", 7910, 59627, 58, 27, "8333"),
    ("i7ie.12xlarge", 47810, 359035, 394, 54, "25000"),
    ("i7ie.18xlarge", 71750, 537125, 737, 107, "37500"),
    ("i8g.large", 1930, 14422, 29, 9, "1172"),
    ("i8g.4xlarge", 15890, 118253, 234, 54, "9375"),
]
# name, millicores, MiB, pods
COMPUTED = [
    ("a1.medium", 940, 1392, 8),
    ("a1.large", 1930, 3055, 29),
    ("a1.xlarge", 3920, 6525, 58),
    ("a1.2xlarge", 7910, 14103, 58),
    ("a1.4xlarge", 15890, 27322, 234),
    ("t3.nano", 1930, 74, 4),
    ("t3.micro", 1930, 548, 4),
    ("t3.small", 1930, 1418, 11),
    ("t3.medium", 1930, 3246, 17),
    ("t3.xlarge", 3920, 14162, 58),
    ("t3a.large", 1930, 6837, 35),
    ("t4g.micro", 1930, 489, 4),
    ("t4g.medium", 1930, 3187, 17),
    ("m4.large", 1930, 7002, 20),
    ("m5.large", 1930, 6903, 29),
    ("m5.xlarge", 3920, 14162, 58),
    ("m5.2xlarge", 7910, 29317, 58),
    ("m5.metal", 95690, 355262, 737),
    ("m6i.32xlarge", 127610, 476504, 737),
    ("c5.large", 1930, 3114, 29),
    ("c5.xlarge", 3920, 6584, 58),
    ("c5.18xlarge", 71750, 127934, 737),
    ("c6i.xlarge", 3920, 6584, 58),
    ("c6i.4xlarge", 15890, 27381, 234),
    ("c6i.32xlarge", 127610, 234021, 737),
    ("m6g.medium", 940, 3286, 8),
    ("m6g.large", 1930, 6844, 29),
    ("m6g.16xlarge", 63770, 233962, 737),
    ("r6i.large", 1930, 14481, 29),
    ("r6i.24xlarge", 95690, 718987, 737),
    ("m7i-flex.large", 1930, 6903, 29),
    ("c7g.xlarge", 3920, 6525, 58),
    ("m7a.48xlarge", 191450, 718987, 737),
    ("i4i.large", 1930, 14481, 29),
    ("i3.large", 1930, 13770, 29),
    ("g5.xlarge", 3920, 14162, 58),
    ("g5g.xlarge", 3920, 6525, 58),
    ("g4dn.12xlarge", 47810, 178933, 234),
    ("p4d.24xlarge", 95690, 1082712, 737),
    ("p5.48xlarge", 191450, 1938410, 100),
    ("inf1.xlarge", 3920, 6804, 38),
    ("inf2.48xlarge", 191450, 718987, 737),
    ("trn1.32xlarge", 127610, 481894, 247),
    ("u-6tb1.112xlarge", 446810, 5811134, 737),
    ("x2gd.medium", 940, 14653, 8),
    ("hpc7g.4xlarge", 15890, 118649, 198),
]


def allocatable(name: str, family: str = "AL2023") -> dict[str, int]:
    one = machine(name, family)
    capacity = capacity_of(one)
    overhead = overhead_of(one, capacity)
    return InstanceType(name=name, labels={}, capacity=capacity, overhead=overhead, offerings=()).allocatable()


def labels_of(name: str, family: str = "AL2023", zones: dict[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    return type_labels(build_type_info(name), FAMILIES[family], REGION, zones or {"us-west-2a": "usw2-az1"})


@pytest.mark.parametrize(("name", "millicores", "mebibytes", "pods", "branches", "mbps"), PUBLISHED)
def test_published_values_match(
    name: str, millicores: int, mebibytes: int, pods: int, branches: int, mbps: str
) -> None:
    found = allocatable(name)
    assert (found[labels.CPU], found[labels.MEMORY], found[labels.PODS]) == (millicores, mebibytes * MIB, pods)
    assert found[labels.POD_ENI] == branch_interfaces(name) == branches
    assert found[labels.EPHEMERAL_STORAGE] == 17 * GIB
    assert labels_of(name)[PREFIX + "network-bandwidth"] == (mbps,)


@pytest.mark.parametrize(("name", "millicores", "mebibytes", "pods"), COMPUTED)
def test_computed_values_match(name: str, millicores: int, mebibytes: int, pods: int) -> None:
    found = allocatable(name)
    assert (found[labels.CPU], found[labels.MEMORY], found[labels.PODS]) == (millicores, mebibytes * MIB, pods)
    assert found[labels.EPHEMERAL_STORAGE] == 17 * GIB


@pytest.mark.parametrize(
    ("name", "family", "mebibytes", "pods", "gibibytes"),
    [
        # Disks of 6 GiB and 20 GiB; memory reserved for the actual pods: 11 x 29 + 255.
        ("m5.large", "Bottlerocket", 6903, 29, 17),
        ("m5.24xlarge", "Bottlerocket", 355262, 737, 17),
        # 110 pods whatever the interfaces; memory reserved: 11 x 110 + 255; 44 GiB of a 50 GiB disk remain.
        ("m5.large", "Windows2022", 6012, 110, 44),
        ("c5.4xlarge", "Windows2019", 28745, 110, 44),
        # As for AL2023.
        ("m5.large", "AL2", 6903, 29, 17),
        ("m5.large", "Custom", 6903, 29, 17),
    ],
)
def test_other_families_have_their_own_overhead(
    name: str, family: str, mebibytes: int, pods: int, gibibytes: int
) -> None:
    found = allocatable(name, family)
    assert (found[labels.MEMORY], found[labels.PODS]) == (mebibytes * MIB, pods)
    assert found[labels.EPHEMERAL_STORAGE] // GIB == gibibytes


def test_windows_pods_use_addresses_of_one_interface() -> None:
    assert allocatable("m5.large", "Windows2022")[labels.PRIVATE_IPV4] == 9
    assert labels.PRIVATE_IPV4 not in allocatable("m5.large")


def test_plain_type_has_all_its_labels() -> None:
    assert labels_of("m5dn.24xlarge") == {
        PREFIX + "capability-flex": ("false",),
        PREFIX + "category": ("m",),
        PREFIX + "cpu": ("96",),
        PREFIX + "cpu-manufacturer": ("intel",),
        PREFIX + "cpu-sustained-clock-speed-mhz": ("3100",),
        PREFIX + "ebs-bandwidth": ("19000",),
        PREFIX + "encryption-in-transit-supported": ("true",),
        PREFIX + "family": ("m5dn",),
        PREFIX + "generation": ("5",),
        PREFIX + "hypervisor": ("nitro",),
        PREFIX + "local-nvme": ("3600",),
        PREFIX + "memory": ("393216",),
        PREFIX + "network-bandwidth": ("100000",),
        PREFIX + "size": ("24xlarge",),
        PREFIX + "tenancy": ("default", "dedicated"),
        "karpenter.k8s.aws/nitro-sandbox": ("true",),
        "karpenter.sh/capacity-type": ("on-demand", "spot"),
        "kubernetes.io/arch": ("amd64",),
        "kubernetes.io/os": ("linux",),
        "node.kubernetes.io/instance-type": ("m5dn.24xlarge",),
        "topology.kubernetes.io/region": ("us-west-2",),
        "topology.kubernetes.io/zone": ("us-west-2a",),
        "topology.k8s.aws/zone-id": ("usw2-az1",),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "i8g.large",
            {"cpu-manufacturer": "aws", "local-nvme": "468", "ebs-bandwidth": "10000", "hypervisor": "nitro"},
        ),
        ("i7ie.metal-48xl", {"size": "metal-48xl", "hypervisor": "", "local-nvme": "120000", "category": "i"}),
        ("m6a.large", {"cpu-manufacturer": "amd", "category": "m", "generation": "6"}),
        ("c7i-flex.large", {"capability-flex": "true", "family": "c7i-flex", "category": "c"}),
        ("u7i-12tb.224xlarge", {"category": "u", "generation": "7"}),
        ("hpc7g.4xlarge", {"category": "hpc", "generation": "7"}),
        ("x2iedn.xlarge", {"category": "x", "generation": "2"}),
        (
            "trn1.32xlarge",
            {"accelerator-name": "trainium", "accelerator-manufacturer": "aws", "accelerator-count": "16"},
        ),
        ("inf1.24xlarge", {"accelerator-name": "inferentia", "accelerator-count": "16"}),
        ("inf2.xlarge", {"accelerator-name": "inferentia2", "accelerator-manufacturer": "aws"}),
        ("dl2q.24xlarge", {"accelerator-manufacturer": "qualcomm", "accelerator-name": "qualcomm-ai100"}),
        ("p5.48xlarge", {"gpu-name": "h100", "gpu-count": "8", "gpu-memory": "81920", "gpu-manufacturer": "nvidia"}),
        ("g4dn.xlarge", {"gpu-name": "t4", "gpu-count": "1", "gpu-memory": "16384", "local-nvme": "125"}),
        ("g5g.xlarge", {"gpu-name": "t4g"}),
        ("g5.xlarge", {"gpu-name": "a10g", "gpu-count": "1", "local-nvme": "250"}),
        ("a1.medium", {"ebs-bandwidth": "3500", "network-bandwidth": "500"}),
        ("c6in.32xlarge", {"network-bandwidth": "200000"}),
        ("t3.nano", {"network-bandwidth": "32"}),
        ("r4.8xlarge", {"network-bandwidth": "10000"}),
    ],
)
def test_labels_of_special_types(name: str, expected: dict[str, str]) -> None:
    found = labels_of(name)
    assert {key: found[PREFIX + key] for key in expected} == {key: (value,) for key, value in expected.items()}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("m5.large", "gpu-count"),
        ("m5.large", "accelerator-count"),
        ("m5.large", "local-nvme"),
        ("d2.xlarge", "local-nvme"),
        ("t2.large", "network-bandwidth"),
        ("m3.large", "ebs-bandwidth"),
        ("p5.48xlarge", "accelerator-count"),
        ("trn1.32xlarge", "gpu-count"),
    ],
)
def test_missing_feature_has_no_label(name: str, key: str) -> None:
    assert PREFIX + key not in labels_of(name)
    assert PREFIX + key in TYPE_KEYS


def test_zone_without_known_id_has_no_zone_id_label() -> None:
    found = labels_of("m5.large", zones={"us-west-2a": "usw2-az1", "us-west-2b": ""})
    assert found[labels.ZONE] == ("us-west-2a", "us-west-2b")
    assert found[labels.ZONE_ID] == ("usw2-az1",)


def test_windows_has_build_label_and_no_arm() -> None:
    assert labels_of("m5.large", "Windows2022")[labels.WINDOWS_BUILD] == ("10.0.20348",)
    assert labels_of("m5.large", "Windows2022")[labels.OS] == ("windows",)
    assert labels_of("m6g.large", "Windows2022")[labels.OS] == ()


def test_branch_interfaces_per_trunk() -> None:
    counts = {
        "a1.medium": 10, "m5.large": 9, "m5.xlarge": 18, "c5.4xlarge": 54, "c6i.12xlarge": 114, "m7g.metal": 107,
        "p5.48xlarge": 120, "m8i.metal-96xl": 98, "t3.large": 0, "m4.large": 0, "no.such": 0,
    }  # fmt: skip
    assert {name: branch_interfaces(name) for name in counts} == counts
