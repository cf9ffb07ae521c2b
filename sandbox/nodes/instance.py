"""An EC2 instance, as far as its boot needs it."""

from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict

State = Literal["pending", "running", "shutting-down", "terminated", "stopping", "stopped"]


class Instance(BaseModel):
    """What DescribeInstances, or the stand-in's control API, says of one instance."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: State
    instance_type: str
    zone: str
    zone_id: str = ""
    image_id: str = ""
    image_name: str = ""
    """Empty where nobody told."""
    platform: str = ""
    efa_interfaces: int = 0
    private_ip: str = ""
    private_dns_name: str = ""
    tags: dict[str, str] = {}
    reboots: int = 0
    """That were asked for; EC2's own API does not tell."""
    volumes: dict[str, int] = {}
    """GiB by device; empty where nobody told."""

    @property
    def node_name(self) -> str:
        """The private DNS name, which EKS's nodes are called by."""
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
    """Where instances are seen."""

    async def next(self) -> dict[str, Instance]:
        """All instances by id, as soon as anything may have changed. Those that are not in it are gone."""
        ...
