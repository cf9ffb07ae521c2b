"""Instance configuration of an EC2NodeClass: disks, network interfaces, metadata service, processor."""

from typing import Annotated, Final

from pydantic import Field

from tenure.apis.crd_schema import INT32, INT64, Crd, Rule
from tenure.apis.meta import KubeModel

# Accepts the values that Karpenter's CRD accepts: 1 to 59000Gi, 64000G, 58Ti, 64T. Karpenter's also accepts Ti and T,
# which are no quantities.
_VOLUME_SIZE: Final = (
    r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi"
    r"|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G"
    r"|([1-9]|[1-5][0-7]|58)Ti|([1-9]|[1-5][0-9]|6[0-3]|64)T)$"
)
_ON_OR_OFF: Final = ["enabled", "disabled"]


class BlockDevice(KubeModel):
    """An EBS volume. `throughput` and `volume_initialization_rate` are in MiB per second."""

    delete_on_termination: bool | None = None
    """Whether the volume is deleted with the instance."""
    encrypted: bool | None = None
    """Whether the volume is encrypted."""
    iops: Annotated[int | None, Crd(INT64)] = None
    """I/O operations per second, for gp3, io1 and io2."""
    kms_key_id: Annotated[str | None, Field(alias="kmsKeyID")] = None
    """KMS key for encryption: ID, alias, or ARN of either."""
    snapshot_id: Annotated[str | None, Field(alias="snapshotID")] = None
    """Snapshot that the volume is created from."""
    throughput: Annotated[int | None, Crd(INT64)] = None
    """MiB per second, for gp3."""
    volume_initialization_rate: Annotated[int | None, Crd({**INT32, "minimum": 100, "maximum": 300})] = None
    """MiB per second at which the snapshot is loaded."""
    volume_size: Annotated[str | None, Crd({"pattern": _VOLUME_SIZE})] = None
    """Size in Gi, G, Ti or T, such as '100Gi'."""
    volume_type: Annotated[str | None, Crd({"enum": ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]})] = None
    """Type of the volume."""


EBS_RULES: Final = (
    Rule(
        "has(self.snapshotID) || has(self.volumeSize)",
        "'snapshotID' or 'volumeSize' must be defined, e.g. volumeSize: 100Gi",
    ),
    Rule(
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "'snapshotID' must be set when 'volumeInitializationRate' is set: the rate applies to loading a snapshot",
    ),
)


class BlockDeviceMapping(KubeModel):
    """A disk of the instance."""

    device_name: str | None = None
    """Name of the device, such as /dev/xvda."""
    ebs: Annotated[BlockDevice | None, Crd(rules=EBS_RULES)] = None
    """EBS volume of the device."""
    root_volume: bool = False
    """Whether the volume holds the kubelet's directories."""


BLOCK_DEVICE_RULES: Final = (
    Rule(
        "self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",
        "must have only one blockDeviceMappings with rootVolume",
    ),
)


class NetworkInterface(KubeModel):
    """A network interface of the instance."""

    network_card_index: Annotated[int, Crd({**INT32, "minimum": 0}, required=True)] = 0
    """Index of the network card."""
    device_index: Annotated[int, Crd({**INT32, "minimum": 0}, required=True)] = 0
    """Index of the interface on the network card."""
    interface_type: Annotated[str, Crd({"enum": ["interface", "efa-only"]}, required=True)] = "interface"
    """With an IP address (interface), or only for EFA traffic (efa-only)."""


NETWORK_INTERFACE_RULES: Final = (
    Rule(
        "self.size() == 0 "
        "|| self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && i.interfaceType == 'interface')",
        "networkInterfaces must contain the primary interface: "
        "add networkCardIndex: 0, deviceIndex: 0, interfaceType: interface, or remove the field",
    ),
    Rule(
        "self.all(i, self.exists_one(j, i.networkCardIndex == j.networkCardIndex && i.deviceIndex == j.deviceIndex))",
        "networkInterfaces must have unique pairs of networkCardIndex and deviceIndex",
    ),
    Rule(
        "self.all(i, i.interfaceType != 'efa-only' "
        "|| self.exists_one(j, j.interfaceType == 'efa-only' && i.networkCardIndex == j.networkCardIndex))",
        "networkInterfaces may contain only one efa-only interface per networkCardIndex",
    ),
)


class MetadataOptions(KubeModel):
    """The instance metadata service."""

    http_endpoint: Annotated[str, Crd({"default": "enabled", "enum": _ON_OR_OFF})] = "enabled"
    """Whether the metadata service is enabled."""
    http_protocol_ipv6: Annotated[
        str, Field(alias="httpProtocolIPv6"), Crd({"default": "disabled", "enum": _ON_OR_OFF})
    ] = "disabled"
    """Whether the metadata service has an IPv6 endpoint."""
    http_put_response_hop_limit: Annotated[int, Crd({**INT64, "default": 1, "minimum": 1, "maximum": 64})] = 1
    """Maximum number of network hops of a response; 2 gives pods access."""
    http_tokens: Annotated[str, Crd({"default": "required", "enum": ["required", "optional"]})] = "required"
    """Whether a session token is required (IMDSv2)."""


class ConnectionTracking(KubeModel):
    """Idle timeouts of tracked connections, in seconds."""

    tcp_established_timeout: Annotated[int | None, Crd({**INT32, "minimum": 60, "maximum": 432000})] = None
    """Established TCP connections, in seconds."""
    udp_stream_timeout: Annotated[int | None, Crd({**INT32, "minimum": 60, "maximum": 180})] = None
    """UDP flows with more than one request and response, in seconds."""
    udp_timeout: Annotated[int | None, Crd({**INT32, "minimum": 30, "maximum": 60})] = None
    """Other UDP flows, in seconds."""


CONNECTION_TRACKING_RULES: Final = (
    Rule(
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "connectionTracking: expected at least one of 'tcpEstablishedTimeout', 'udpStreamTimeout' and 'udpTimeout', "
        "in seconds, or remove the field",
    ),
)


class EnclaveOptions(KubeModel):
    """AWS Nitro Enclaves."""

    enabled: Annotated[bool, Crd(required=True)] = False
    """Whether instances can run enclaves. If true, only types that support Nitro Enclaves are launched."""


class CpuOptions(KubeModel):
    """Options of the processor."""

    nested_virtualization: Annotated[str | None, Crd({"enum": _ON_OR_OFF})] = None
    """Whether instances can run nested virtual machines."""
