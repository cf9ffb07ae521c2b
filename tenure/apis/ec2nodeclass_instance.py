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

    delete_on_termination: Annotated[bool | None, Crd("Whether the volume goes with the instance.")] = None
    encrypted: Annotated[bool | None, Crd("Whether the volume is encrypted.")] = None
    iops: Annotated[int | None, Crd("I/O operations per second, for gp3, io1 and io2.", INT64)] = None
    kms_key_id: Annotated[
        str | None, Field(alias="kmsKeyID"), Crd("The KMS key to encrypt with: id, alias or ARN of either.")
    ] = None
    snapshot_id: Annotated[str | None, Field(alias="snapshotID"), Crd("The snapshot the volume starts from.")] = None
    throughput: Annotated[int | None, Crd("MiB per second, for gp3.", INT64)] = None
    volume_initialization_rate: Annotated[
        int | None,
        Crd("MiB per second at which the snapshot is loaded.", {**INT32, "minimum": 100, "maximum": 300}),
    ] = None
    volume_size: Annotated[str | None, Crd("Size in Gi, G, Ti or T, such as '100Gi'.", {"pattern": _VOLUME_SIZE})] = (
        None
    )
    volume_type: Annotated[
        str | None,
        Crd("Kind of volume.", {"enum": ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]}),
    ] = None


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

    device_name: Annotated[str | None, Crd("Name of the device, such as /dev/xvda.")] = None
    ebs: Annotated[BlockDevice | None, Crd("The EBS volume behind it.", rules=EBS_RULES)] = None
    root_volume: Annotated[bool, Crd("Whether the kubelet's directories are on it.")] = False


BLOCK_DEVICE_RULES: Final = (
    Rule(
        "self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",
        "an instance has one root volume: leave rootVolume: true in one entry of blockDeviceMappings",
    ),
)


class NetworkInterface(KubeModel):
    """A network interface of the instance."""

    network_card_index: Annotated[int, Crd("The network card it is on.", {**INT32, "minimum": 0}, required=True)] = 0
    device_index: Annotated[int, Crd("Its place on the card.", {**INT32, "minimum": 0}, required=True)] = 0
    interface_type: Annotated[
        str,
        Crd(
            "With an IP address (interface), or for EFA traffic alone (efa-only).",
            {"enum": ["interface", "efa-only"]},
            required=True,
        ),
    ] = "interface"


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

    http_endpoint: Annotated[
        str, Crd("Whether instances can ask about themselves.", {"default": "enabled", "enum": _ON_OR_OFF})
    ] = "enabled"
    http_protocol_ipv6: Annotated[
        str,
        Field(alias="httpProtocolIPv6"),
        Crd("Whether also by IPv6.", {"default": "disabled", "enum": _ON_OR_OFF}),
    ] = "disabled"
    http_put_response_hop_limit: Annotated[
        int,
        Crd(
            "How many network hops an answer may take; 2 lets pods ask.",
            {**INT64, "default": 1, "minimum": 1, "maximum": 64},
        ),
    ] = 1
    http_tokens: Annotated[
        str,
        Crd("Whether a session token is needed (IMDSv2).", {"default": "required", "enum": ["required", "optional"]}),
    ] = "required"


class ConnectionTracking(KubeModel):
    """Idle time-outs of tracked connections, in seconds."""

    tcp_established_timeout: Annotated[
        int | None, Crd("Established TCP connections, in seconds.", {**INT32, "minimum": 60, "maximum": 432000})
    ] = None
    udp_stream_timeout: Annotated[
        int | None, Crd("UDP flows that saw answers, in seconds.", {**INT32, "minimum": 60, "maximum": 180})
    ] = None
    udp_timeout: Annotated[int | None, Crd("Other UDP flows, in seconds.", {**INT32, "minimum": 30, "maximum": 60})] = (
        None
    )


CONNECTION_TRACKING_RULES: Final = (
    Rule(
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "connectionTracking needs one of 'tcpEstablishedTimeout', 'udpStreamTimeout', 'udpTimeout': "
        "write it, in seconds, or leave the field out",
    ),
)


class CpuOptions(KubeModel):
    """Options of the processor."""

    nested_virtualization: Annotated[
        str | None, Crd("Whether instances can run virtual machines themselves.", {"enum": _ON_OR_OFF})
    ] = None
