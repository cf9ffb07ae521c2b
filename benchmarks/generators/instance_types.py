"""A generated catalogue of instance types, similar to EC2's: families of sizes, three zones, spot and on-demand.

It is deterministic, so that results can be compared between runs. Prices are invented, in EC2's proportions.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tenure.model.instance_types import Catalogue, InstanceType, Offering

GIB = 1 << 30
REGION = "us-west-2"
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
SIZES = {
    "large": 2,
    "xlarge": 4,
    "2xlarge": 8,
    "4xlarge": 16,
    "8xlarge": 32,
    "12xlarge": 48,
    "16xlarge": 64,
    "24xlarge": 96,
    "48xlarge": 192,
}
PODS = {2: 29, 4: 58, 8: 58, 16: 234, 32: 234, 48: 234, 64: 737, 96: 737, 192: 737}


class Family(NamedTuple):
    name: str
    category: str
    generation: int
    architecture: str
    memory_per_cpu: int
    price_per_cpu: float
    gpus: int = 0


def families() -> Iterator[Family]:
    """Compute, general and memory families in generations and variants, and two with GPUs."""
    for category, memory, price in (("c", 2, 0.0425), ("m", 4, 0.048), ("r", 8, 0.063), ("x", 16, 0.0834)):
        for generation in (5, 6, 7, 8):
            for letter, architecture, factor in (("i", "amd64", 1.05), ("a", "amd64", 0.95), ("g", "arm64", 0.85)):
                for suffix, factor_of_suffix in (("", 1.0), ("d", 1.18)):
                    cost = price * factor * factor_of_suffix * (1 - 0.02 * (generation - 5))
                    yield Family(
                        f"{category}{generation}{letter}{suffix}", category, generation, architecture, memory, cost
                    )
    yield Family("g5", "g", 5, "amd64", 4, 0.126, gpus=1)
    yield Family("p4d", "p", 4, "amd64", 12, 0.341, gpus=8)


def instance_type(family: Family, size: str) -> InstanceType:
    cpus = SIZES[size]
    memory = cpus * family.memory_per_cpu
    capacity = {
        "cpu": cpus * 1000,
        "memory": int(memory * GIB * 0.925),
        "ephemeral-storage": 20 * GIB,
        "pods": PODS[cpus],
    }
    if family.gpus:
        capacity["nvidia.com/gpu"] = family.gpus
    return InstanceType(
        name=f"{family.name}.{size}",
        labels=_type_labels(family, size, memory),
        capacity=capacity,
        overhead=_type_overhead(cpus),
        offerings=tuple(_type_offerings(family.price_per_cpu * cpus, f"{family.name}.{size}")),
    )


def catalogue(most_cpus: int = 192, node_class: str = "default") -> Catalogue:
    """All families in all sizes with at most `most_cpus` vCPUs."""
    types = [instance_type(family, size) for family in families() for size in SIZES if SIZES[size] <= most_cpus]
    return Catalogue(by_node_class={node_class: tuple(types)})


def _type_labels(family: Family, size: str, memory: int) -> dict[str, tuple[str, ...]]:
    aws = {
        "instance-family": family.name,
        "instance-category": family.category,
        "instance-generation": str(family.generation),
        "instance-size": size,
        "instance-cpu": str(SIZES[size]),
        "instance-memory": str(memory * 1024),
    }
    if family.gpus:
        aws |= {"instance-gpu-count": str(family.gpus), "instance-gpu-manufacturer": "nvidia"}
    return {
        "kubernetes.io/arch": (family.architecture,),
        "kubernetes.io/os": ("linux",),
        "topology.kubernetes.io/region": (REGION,),
        **{f"karpenter.k8s.aws/{key}": (value,) for key, value in aws.items()},
    }


def _type_overhead(cpus: int) -> dict[str, int]:
    """EKS's kube-reserved tiers, and the eviction threshold."""
    reserved = 60 + 10 + (2 * 5 if cpus > 2 else 0) + max(0, cpus - 4) * 10 // 4
    return {"cpu": reserved, "memory": (255 + 11 * PODS[cpus] + 100) << 20, "ephemeral-storage": 3 * GIB}


def _type_offerings(price: float, name: str) -> Iterator[Offering]:
    for number, zone in enumerate(ZONES):
        discount = 0.3 + (sum(name.encode()) + number) % 7 / 20
        zone_id = f"usw2-az{number + 1}"
        yield Offering(zone=zone, zone_id=zone_id, capacity_type="on-demand", price=round(price, 4))
        yield Offering(zone=zone, zone_id=zone_id, capacity_type="spot", price=round(price * discount, 4))
