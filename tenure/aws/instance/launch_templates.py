"""Launch templates, named by a hash of their content.

A template that this process recently used is assumed to exist. If CreateFleet does not find it, it is recreated.
"""

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from cachetools import TTLCache

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.amifamily.families import Family
from tenure.aws.amifamily.image_disks import UNKNOWN_DISKS, ImageDisks
from tenure.aws.client.cache import MAX_ENTRIES
from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import ALREADY_EXISTS
from tenure.aws.instance.block_devices import block_device_mappings, without_none
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import cluster_tag, tag_specifications
from tenure.model.base import Value
from tenure.model.errors import Conflict, NotFound
from tenure.model.instance_types import Market

NAME_PREFIX: Final = "karpenter.k8s.aws/"
_NO_IPV6_METADATA: Final = ("us-iso",)
_MARKET_TYPES: Final[dict[Market, str]] = {
    "capacity-block": "capacity-block",
    "interruptible": "interruptible-capacity-reservation",
}


class Placement(Value):
    """Tenancy, and optionally the ID of a placement group and the number of its partition."""

    tenancy: str = "default"
    group: str = ""
    partition: str = ""

    def to_request(self) -> dict[str, Any]:
        found: dict[str, Any] = {"Tenancy": self.tenancy}
        found |= {"GroupId": self.group} if self.group else {}
        return found | ({"PartitionNumber": int(self.partition)} if self.partition else {})


class ReservationTarget(Value):
    reservation_id: str = ""
    market: Market = ""

    def to_request(self) -> dict[str, Any]:
        """The options while the gate ReservedCapacity is enabled. Without the gate, EC2's default applies."""
        if not self.reservation_id:
            # Otherwise an instance could use an open reservation by accident.
            return {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}
        specification = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": self.reservation_id},
        }
        market = _MARKET_TYPES.get(self.market)
        return {"CapacityReservationSpecification": specification} | (
            {"InstanceMarketOptions": {"MarketType": market}} if market else {}
        )


ANYWHERE: Final = Placement()
NO_RESERVATION: Final = ReservationTarget()


class LaunchTemplate(Value):
    name: str
    data: dict[str, Any]
    tags: dict[str, str]

    def create_request(self) -> dict[str, Any]:
        return {
            "LaunchTemplateName": self.name,
            "LaunchTemplateData": self.data,
            "TagSpecifications": tag_specifications(["launch-template"], self.tags),
        }


def launch_template(
    node_class: EC2NodeClass,
    family: Family,
    settings: AwsSettings,
    *,
    image_id: str,
    user_data: str,
    tags: Mapping[str, str],
    capacity_type: str,
    placement: Placement = ANYWHERE,
    reservation: ReservationTarget = NO_RESERVATION,
    efa_interfaces: int = 0,
    disks: ImageDisks = UNKNOWN_DISKS,
) -> LaunchTemplate:
    """`efa_interfaces`: zero unless its pods request EFA. `disks`: volumes of the image."""
    data = {
        "ImageId": image_id,
        "UserData": base64.b64encode(user_data.encode()).decode(),
        "MetadataOptions": _metadata_options(node_class, settings),
        "Monitoring": {"Enabled": bool(node_class.spec.detailed_monitoring)},
        "NetworkInterfaces": _network_interfaces(node_class, settings, efa_interfaces),
        "TagSpecifications": tag_specifications(
            ["network-interface", *(["spot-instances-request"] if capacity_type == labels.SPOT else [])], tags
        ),
        "Placement": placement.to_request(),
        **block_device_mappings(node_class.spec.block_device_mappings, family, disks),
        **_instance_options(node_class),
        "EnclaveOptions": {"Enabled": node_class.spec.enclaves_enabled},
        **(reservation.to_request() if settings.is_gate_enabled(FeatureGate.RESERVED_CAPACITY) else {}),
    }
    return LaunchTemplate(name=_template_name(data, settings), data=data, tags=dict(tags))


def _template_name(data: Mapping[str, Any], settings: AwsSettings) -> str:
    content = json.dumps([settings.cluster_name, data], sort_keys=True)
    return NAME_PREFIX + str(int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "big"))


def _instance_options(node_class: EC2NodeClass) -> dict[str, Any]:
    spec, found = node_class.spec, dict[str, Any]()
    if node_class.status.instance_profile:
        found["IamInstanceProfile"] = {"Name": node_class.status.instance_profile}
    if spec.cpu_options and spec.cpu_options.nested_virtualization:
        found["CpuOptions"] = {"NestedVirtualization": spec.cpu_options.nested_virtualization}
    return found


def _metadata_options(node_class: EC2NodeClass, settings: AwsSettings) -> dict[str, Any]:
    options = node_class.spec.metadata_options
    found: dict[str, Any] = {
        "HttpEndpoint": options.http_endpoint,
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        "HttpTokens": options.http_tokens,
        "InstanceMetadataTags": "disabled",
    }
    if not settings.region.startswith(_NO_IPV6_METADATA):
        found["HttpProtocolIpv6"] = options.http_protocol_ipv6
    return found


def _network_interfaces(node_class: EC2NodeClass, settings: AwsSettings, efa: int) -> list[dict[str, Any]]:
    """At least one interface, because security groups are set there: EC2 accepts no other groups next to interfaces."""
    groups = [group.id for group in node_class.status.security_groups]
    named = node_class.spec.network_interfaces
    places: list[tuple[int, int, str]] = (
        [(one.network_card_index, one.device_index, one.interface_type) for one in named]
        or [(card, min(card, 1), "efa") for card in range(efa)]
        or [(0, 0, "interface")]
    )
    addresses = _address_options(node_class, settings) | _connection_tracking(node_class)
    return [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": device,
            "InterfaceType": kind,
            "Groups": groups,
            **(addresses if kind != "efa-only" else {}),
        }
        for card, device, kind in places
    ]


def _address_options(node_class: EC2NodeClass, settings: AwsSettings) -> dict[str, Any]:
    found = {
        "AssociatePublicIpAddress": node_class.spec.associate_public_ip_address,
        "Ipv6PrefixCount" if settings.is_ipv6 else "Ipv4PrefixCount": node_class.spec.ip_prefix_count,
    }
    return without_none(found) | ({"PrimaryIpv6": True, "Ipv6AddressCount": 1} if settings.is_ipv6 else {})


def _connection_tracking(node_class: EC2NodeClass) -> dict[str, Any]:
    tracking = node_class.spec.connection_tracking
    if tracking is None:
        return {}
    named = {
        "TcpEstablishedTimeout": tracking.tcp_established_timeout,
        "UdpStreamTimeout": tracking.udp_stream_timeout,
        "UdpTimeout": tracking.udp_timeout,
    }
    return {"ConnectionTrackingSpecification": without_none(named)}


_EXISTENCE_SECONDS: Final = 60.0
_FILTER_VALUES: Final = 200
"""Maximum number of values in a filter of EC2."""


class LaunchTemplates:
    """Raises model.faults. Templates are only deleted with their class, because other workers may use them."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clients, self._settings = clients, settings
        self._existing: TTLCache[str, bool] = TTLCache(MAX_ENTRIES, _EXISTENCE_SECONDS, timer=clock)
        self._known: TTLCache[str, LaunchTemplate] = TTLCache(512, _EXISTENCE_SECONDS * 30, timer=clock)
        self._turn = asyncio.Lock()

    async def ensure(self, templates: Sequence[LaunchTemplate]) -> None:
        self._known.update((one.name, one) for one in templates)
        async with self._turn:
            unsure = {one.name: one for one in templates if one.name not in self._existing}
            if unsure:
                found = await self._find_existing(sorted(unsure))
                await asyncio.gather(*(self._create(one) for name, one in unsure.items() if name not in found))
            # Use extends the lifetime of the entries.
            self._existing.update((one.name, True) for one in templates)

    def used_lately(self, name: str) -> bool:
        """Whether a launch of this process used the template in the last half hour."""
        return name in self._known

    def forget(self, names: Iterable[str]) -> None:
        """Check the existence of these templates before their next use, for example because EC2 did not find them."""
        for name in names:
            self._existing.pop(name, None)

    async def recreate(self, names: Sequence[str]) -> bool:
        """Recreate templates missing in EC2; False if this process does not know the content of one."""
        self.forget(names)
        known = [one for name in names if (one := self._known.get(name)) is not None]
        await self.ensure(known)
        return len(known) == len(names)

    async def delete_of(self, node_class: EC2NodeClass) -> None:
        found = await self._clients.paginate(
            self._clients.ec2.describe_launch_templates,
            "LaunchTemplates",
            lambda one: (str(one["LaunchTemplateId"]), str(one["LaunchTemplateName"])),
            Filters=[
                {"Name": f"tag:{labels.TAG_NODECLASS}", "Values": [node_class.name]},
                {"Name": f"tag:{cluster_tag(self._settings)}", "Values": ["owned"]},
            ],
            PaginationConfig={"PageSize": 200},
        )
        await asyncio.gather(*(self._delete(template_id) for template_id, _ in found))
        for _, name in found:
            self._existing.pop(name, None)

    async def _find_existing(self, names: Sequence[str]) -> Collection[str]:
        found: list[str] = []
        for start in range(0, len(names), _FILTER_VALUES):
            filters: list[Any] = [
                {"Name": "launch-template-name", "Values": list(names[start : start + _FILTER_VALUES])}
            ]
            found += await self._clients.paginate(
                self._clients.ec2.describe_launch_templates,
                "LaunchTemplates",
                lambda one: str(one["LaunchTemplateName"]),
                Filters=filters,
                PaginationConfig={"PageSize": 200},
            )
        return frozenset(found)

    async def _create(self, template: LaunchTemplate) -> None:
        try:
            await self._clients.call(self._clients.ec2.create_launch_template, **template.create_request())
        except Conflict as fault:
            if fault.code not in ALREADY_EXISTS:
                raise

    async def _delete(self, template_id: str) -> None:
        try:
            await self._clients.call(self._clients.ec2.delete_launch_template, LaunchTemplateId=template_id)
        except NotFound:
            return
