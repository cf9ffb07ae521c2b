"""EC2NodeClass (`karpenter.k8s.aws/v1`): how instances are made: images, networks, disks, roles, user data."""

from typing import Annotated, Any

from pydantic import Field

from model.kinds.meta import Condition, KubeModel, KubeObject, Requirement


class SubnetTerm(KubeModel):
    """Which subnets: all that match every field."""

    tags: dict[str, str] = {}
    id: str = ""


class SecurityGroupTerm(KubeModel):
    """Which security groups; `name` is the group's name, not its Name tag."""

    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""


class CapacityReservationTerm(KubeModel):
    """Which capacity reservations."""

    tags: dict[str, str] = {}
    id: str = ""
    owner_id: Annotated[str, Field(alias="ownerID")] = ""
    instance_match_criteria: str = ""


class PlacementGroupSelector(KubeModel):
    """The placement group, by name or id."""

    name: str = ""
    id: str = ""


class AmiTerm(KubeModel):
    """Which images; `alias` is `family@version`."""

    alias: str = ""
    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""


class BlockDevice(KubeModel):
    """An EBS volume. `throughput` in MiB/s, `volume_initialization_rate` in MiB/s."""

    delete_on_termination: bool | None = None
    encrypted: bool | None = None
    iops: int | None = None
    kms_key_id: Annotated[str | None, Field(alias="kmsKeyID")] = None
    snapshot_id: Annotated[str | None, Field(alias="snapshotID")] = None
    throughput: int | None = None
    volume_initialization_rate: int | None = None
    volume_size: str | None = None
    volume_type: str | None = None


class BlockDeviceMapping(KubeModel):
    """A device of the instance."""

    device_name: str | None = None
    ebs: BlockDevice | None = None
    root_volume: bool = False


class NetworkInterface(KubeModel):
    """A network interface of the instance."""

    network_card_index: int = 0
    device_index: int = 0
    interface_type: str = "interface"


class MetadataOptions(KubeModel):
    """The instance metadata service."""

    http_endpoint: str = "enabled"
    http_protocol_ipv6: Annotated[str, Field(alias="httpProtocolIPv6")] = "disabled"
    http_put_response_hop_limit: int = 1
    http_tokens: str = "required"


class ConnectionTracking(KubeModel):
    """Idle time-outs of tracked connections, in seconds."""

    tcp_established_timeout: int | None = None
    udp_stream_timeout: int | None = None
    udp_timeout: int | None = None


class CpuOptions(KubeModel):
    """Options of the processor."""

    nested_virtualization: str | None = None


class EC2NodeClassSpec(KubeModel):
    """What the user wants of the instances."""

    subnet_selector_terms: tuple[SubnetTerm, ...] = ()
    security_group_selector_terms: tuple[SecurityGroupTerm, ...] = ()
    capacity_reservation_selector_terms: tuple[CapacityReservationTerm, ...] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    associate_public_ip_address: Annotated[bool | None, Field(alias="associatePublicIPAddress")] = None
    ip_prefix_count: int | None = None
    ami_selector_terms: tuple[AmiTerm, ...] = ()
    ami_family: str | None = None
    user_data: str | None = None
    role: str = ""
    instance_profile: str | None = None
    tags: dict[str, str] = {}
    kubelet: dict[str, Any] | None = None
    block_device_mappings: tuple[BlockDeviceMapping, ...] = ()
    instance_store_policy: str | None = None
    network_interfaces: tuple[NetworkInterface, ...] = ()
    detailed_monitoring: bool | None = None
    metadata_options: MetadataOptions = MetadataOptions()
    connection_tracking: ConnectionTracking | None = None
    context: str | None = None
    cpu_options: CpuOptions | None = None


class ResolvedSubnet(KubeModel):
    """A subnet found."""

    id: str
    zone: str = ""
    zone_id: Annotated[str, Field(alias="zoneID")] = ""


class ResolvedSecurityGroup(KubeModel):
    """A security group found."""

    id: str
    name: str = ""


class ResolvedAmi(KubeModel):
    """An image found, and the nodes it is for."""

    id: str
    name: str = ""
    deprecated: bool = False
    requirements: tuple[Requirement, ...] = ()


class ResolvedCapacityReservation(KubeModel):
    """A capacity reservation found."""

    availability_zone: str = ""
    end_time: str | None = None
    id: str
    instance_match_criteria: str = ""
    instance_type: str = ""
    owner_id: Annotated[str, Field(alias="ownerID")] = ""
    reservation_type: str = "default"
    interruptible: bool | None = None
    state: str = "active"


class EC2NodeClassStatus(KubeModel):
    """What the selectors resolved to."""

    subnets: tuple[ResolvedSubnet, ...] = ()
    security_groups: tuple[ResolvedSecurityGroup, ...] = ()
    amis: tuple[ResolvedAmi, ...] = ()
    capacity_reservations: tuple[ResolvedCapacityReservation, ...] = ()
    instance_profile: str = ""
    conditions: tuple[Condition, ...] = ()


class EC2NodeClass(KubeObject):
    """How instances are made."""

    api_version: str = "karpenter.k8s.aws/v1"
    kind: str = "EC2NodeClass"
    spec: EC2NodeClassSpec = EC2NodeClassSpec()
    status: EC2NodeClassStatus = EC2NodeClassStatus()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions
