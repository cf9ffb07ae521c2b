"""The parts of an EC2NodeClass that shape an instance: disks, network interfaces, metadata service, processor."""

from typing import Annotated, Final

from pydantic import Field

from tenure.apis.crd_schema import INT32, INT64, Crd, Rule
from tenure.apis.meta import KubeModel

# From Karpenter's CRD, letter for letter in what it accepts: 1 to 59000Gi, 64000G, 58Ti, 64T.
_VOLUME_SIZE: Final = (
    r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi"
    r"|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G"
    r"|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
)
_ON_OR_OFF: Final = ["enabled", "disabled"]


class BlockDevice(KubeModel):
    """An EBS volume. `throughput` and `volume_initialization_rate` are in MiB per second."""

    delete_on_termination: bool | None = None
    """Whether the volume goes with the instance."""
    encrypted: bool | None = None
    """Whether the volume is encrypted."""
    iops: Annotated[int | None, Crd(INT64)] = None
    """I/O operations per second, for gp3, io1 and io2."""
    kms_key_id: Annotated[str | None, Field(alias="kmsKeyID")] = None
    """The KMS key to encrypt with: id, alias or ARN of either."""
    snapshot_id: Annotated[str | None, Field(alias="snapshotID")] = None
    """The snapshot the volume starts from."""
    throughput: Annotated[int | None, Crd(INT64)] = None
    """MiB per second, for gp3."""
    volume_initialization_rate: Annotated[int | None, Crd({**INT32, "minimum": 100, "maximum": 300})] = None
    """MiB per second at which the snapshot is loaded."""
    volume_size: Annotated[str | None, Crd({"pattern": _VOLUME_SIZE})] = None
    """Size in Gi, G, Ti or T, such as '100Gi'."""
    volume_type: Annotated[str | None, Crd({"enum": ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]})] = None
    """Kind of volume."""


EBS_RULES: Final = (
    Rule(
        "has(self.snapshotID) || has(self.volumeSize)",
        "a volume needs a size: write 'volumeSize', such as 100Gi, or 'snapshotID'",
    ),
    Rule(
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "volumeInitializationRate is the rate of loading a snapshot: write 'snapshotID' too, or remove the rate",
    ),
)


class BlockDeviceMapping(KubeModel):
    """A disk of the instance."""

    device_name: str | None = None
    """Name of the device, such as /dev/xvda."""
    ebs: Annotated[BlockDevice | None, Crd(rules=EBS_RULES)] = None
    """The EBS volume behind it."""
    root_volume: bool = False
    """Whether the kubelet's directories are on it."""


BLOCK_DEVICE_RULES: Final = (
    Rule(
        "self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",
        "an instance has one root volume: leave rootVolume: true in one entry of blockDeviceMappings",
    ),
)


class NetworkInterface(KubeModel):
    """A network interface of the instance."""

    network_card_index: Annotated[int, Crd({**INT32, "minimum": 0}, required=True)] = 0
    """The network card it is on."""
    device_index: Annotated[int, Crd({**INT32, "minimum": 0}, required=True)] = 0
    """Its place on the card."""
    interface_type: Annotated[str, Crd({"enum": ["interface", "efa-only"]}, required=True)] = "interface"
    """With an IP address (interface), or for EFA traffic alone (efa-only)."""


NETWORK_INTERFACE_RULES: Final = (
    Rule(
        "self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && i.interfaceType == 'interface')",
        "networkInterfaces needs the primary one: "
        "add networkCardIndex: 0, deviceIndex: 0, interfaceType: interface, or leave the field out",
    ),
    Rule(
        "self.all(i, self.exists_one(j, i.networkCardIndex == j.networkCardIndex && i.deviceIndex == j.deviceIndex))",
        "two networkInterfaces have the same place: give each its own networkCardIndex and deviceIndex",
    ),
    Rule(
        "self.all(i, i.interfaceType != 'efa-only' "
        "|| self.exists_one(j, j.interfaceType == 'efa-only' && i.networkCardIndex == j.networkCardIndex))",
        "a network card takes one efa-only interface: give the others another networkCardIndex",
    ),
)


class MetadataOptions(KubeModel):
    """The instance metadata service."""

    http_endpoint: Annotated[str, Crd({"default": "enabled", "enum": _ON_OR_OFF})] = "enabled"
    """Whether instances can ask about themselves."""
    http_protocol_ipv6: Annotated[
        str, Field(alias="httpProtocolIPv6"), Crd({"default": "disabled", "enum": _ON_OR_OFF})
    ] = "disabled"
    """Whether also by IPv6."""
    http_put_response_hop_limit: Annotated[int, Crd({**INT64, "default": 1, "minimum": 1, "maximum": 64})] = 1
    """How many network hops an answer may take; 2 lets pods ask."""
    http_tokens: Annotated[str, Crd({"default": "required", "enum": ["required", "optional"]})] = "required"
    """Whether a session token is needed (IMDSv2)."""


class ConnectionTracking(KubeModel):
    """Idle time-outs of tracked connections, in seconds."""

    tcp_established_timeout: Annotated[int | None, Crd({**INT32, "minimum": 60, "maximum": 432000})] = None
    """Established TCP connections, in seconds."""
    udp_stream_timeout: Annotated[int | None, Crd({**INT32, "minimum": 60, "maximum": 180})] = None
    """UDP flows that saw answers, in seconds."""
    udp_timeout: Annotated[int | None, Crd({**INT32, "minimum": 30, "maximum": 60})] = None
    """Other UDP flows, in seconds."""


CONNECTION_TRACKING_RULES: Final = (
    Rule(
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "connectionTracking needs one of 'tcpEstablishedTimeout', 'udpStreamTimeout', 'udpTimeout': "
        "write it, in seconds, or leave the field out",
    ),
)


class CpuOptions(KubeModel):
    """Options of the processor."""

    nested_virtualization: Annotated[str | None, Crd({"enum": _ON_OR_OFF})] = None
    """Whether instances can run virtual machines themselves."""
