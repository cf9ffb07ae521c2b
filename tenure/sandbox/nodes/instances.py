"""EC2 instances and instance types, with the data for a boot: hardware, and devices for device plugins."""

from collections.abc import Iterator
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict

State = Literal["pending", "running", "shutting-down", "terminated", "stopping", "stopped"]


class Instance(BaseModel):
    """Data of an instance from DescribeInstances or from the stand-in's control API."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: State
    instance_type: str
    zone: str
    zone_id: str = ""
    image_id: str = ""
    image_name: str = ""
    """Empty if unknown."""
    platform: str = ""
    efa_interfaces: int = 0
    private_ip: str = ""
    private_dns_name: str = ""
    tags: dict[str, str] = {}
    reboots: int = 0
    """Number of requested reboots; the EC2 API does not report it."""
    volumes: dict[str, int] = {}
    """GiB by device; empty if unknown."""

    @property
    def node_name(self) -> str:
        """The private DNS name, which is the node name on EKS."""
        return self.private_dns_name or f"{self.id}.internal"

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"

    @classmethod
    def from_ec2(cls, described: Any) -> Self:
        """From one item of DescribeInstances."""
        placement = described.get("Placement", {})
        return cls(
            id=described["InstanceId"],
            state=described["State"]["Name"],
            instance_type=described["InstanceType"],
            zone=placement.get("AvailabilityZone", ""),
            zone_id=placement.get("AvailabilityZoneId", ""),
            image_id=described.get("ImageId", ""),
            platform=described.get("Platform", ""),
            efa_interfaces=sum(
                one.get("InterfaceType", "").startswith("efa") for one in described.get("NetworkInterfaces", [])
            ),
            private_ip=described.get("PrivateIpAddress", ""),
            private_dns_name=described.get("PrivateDnsName", ""),
            tags={tag["Key"]: tag["Value"] for tag in described.get("Tags", [])},
        )


class InstanceSource(Protocol):
    """A source of instances."""

    async def next(self) -> dict[str, Instance]:
        """All instances by ID, as soon as something may have changed. Missing ones are terminated."""
        ...


GPU_RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


class Gpu(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    manufacturer: str
    count: int
    memory_mib: int
    """Of each of them."""


class MachineType(BaseModel):
    """Facts of one type. `devices`: extended resources, which appear on a Node only when their plugin runs."""

    model_config = ConfigDict(frozen=True)

    name: str
    architecture: str
    vcpus: int
    memory_mib: int
    interfaces: int
    addresses_per_interface: int
    local_storage_gb: int = 0
    devices: dict[str, int] = {}
    gpus: tuple[Gpu, ...] = ()

    @property
    def eni_limited_pods(self) -> int:
        """Number of pods for which the VPC CNI has addresses; 0 for a type without interfaces."""
        return self.interfaces * (self.addresses_per_interface - 1) + 2 if self.interfaces else 0

    @classmethod
    def from_ec2(cls, described: Any) -> Self:
        """From one item of DescribeInstanceTypes."""
        network = described["NetworkInfo"]
        cards = {card["NetworkCardIndex"]: card for card in network.get("NetworkCards", [])}
        card = cards.get(network.get("DefaultNetworkCardIndex", 0), {})
        architectures = described["ProcessorInfo"]["SupportedArchitectures"]
        return cls(
            name=described["InstanceType"],
            architecture=next((_ARCHITECTURES[name] for name in architectures if name in _ARCHITECTURES), "amd64"),
            vcpus=described["VCpuInfo"]["DefaultVCpus"],
            memory_mib=described["MemoryInfo"]["SizeInMiB"],
            interfaces=card.get("MaximumNetworkInterfaces", network.get("MaximumNetworkInterfaces", 0)),
            addresses_per_interface=network["Ipv4AddressesPerInterface"],
            local_storage_gb=described.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
            devices=_devices(described),
            gpus=tuple(_gpus(described)),
        )


def _gpus(described: Any) -> Iterator[Gpu]:
    for one in described.get("GpuInfo", {}).get("Gpus", []):
        yield Gpu(
            name=one.get("Name", ""),
            manufacturer=one.get("Manufacturer", ""),
            count=one["Count"],
            memory_mib=one.get("MemoryInfo", {}).get("SizeInMiB", 0),
        )


def _devices(described: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for gpu in described.get("GpuInfo", {}).get("Gpus", []):
        resource = GPU_RESOURCES.get(gpu.get("Manufacturer", ""))
        if resource:
            found[resource] = found.get(resource, 0) + gpu["Count"]
    for neuron in described.get("NeuronInfo", {}).get("NeuronDevices", []):
        found["aws.amazon.com/neuron"] = found.get("aws.amazon.com/neuron", 0) + neuron["Count"]
        cores = neuron["Count"] * neuron["CoreInfo"]["Count"]
        found["aws.amazon.com/neuroncore"] = found.get("aws.amazon.com/neuroncore", 0) + cores
    return found
