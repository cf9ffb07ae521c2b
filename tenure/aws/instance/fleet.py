"""The port `Fleet`: prepares the fixed request of a launch, calls CreateFleet, and describes the instances."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.apis.hash import HASH_VERSION, nodeclass_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import parse_resources
from tenure.aws.amifamily.families import family_of
from tenure.aws.amifamily.image_disks import UNKNOWN_DISKS, DisksByImage, ImageDisks
from tenure.aws.amifamily.user_data import UserDataError, render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of
from tenure.aws.client.client import AwsClients
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.eks_cluster import Clusters
from tenure.aws.instance.create_fleet import FleetCalls
from tenure.aws.instance.filter import ALL_TYPES_UNAVAILABLE, Candidate, Selection, select_offerings
from tenure.aws.instance.instances import AwsInstances
from tenure.aws.instance.launch_templates import (
    LaunchTemplate,
    LaunchTemplates,
    Placement,
    ReservationTarget,
    launch_template,
)
from tenure.aws.instance.nodeclaim_status import launch_facts
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.instancetype.provider import AwsOfferings
from tenure.aws.instancetype.resolver import ResolvedTypes
from tenure.aws.instancetype.unavailable_offerings import UnavailableOfferings
from tenure.aws.nodeclass.subnets_and_security_groups import FreeAddresses
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import node_tags
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.instance_types import InstanceType, UnavailableOffering
from tenure.model.launch import (
    FleetResult,
    LaunchGroup,
    LaunchOverride,
    LaunchPreparation,
    LaunchRejection,
    LaunchRequest,
    PreparedLaunchRequest,
)
from tenure.model.nodeclaim.names import parse_dra_drivers
from tenure.model.nodeoverlays import OverlayFact
from tenure.model.provider_results import LaunchFacts
from tenure.model.requirements import RequirementError

MAX_TEMPLATES: Final = 50
"""EC2's limit for `LaunchTemplateConfigs` of CreateFleet."""
ReadAcceptedOverlays = Callable[[], Awaitable[Sequence[OverlayFact]]]
"""Returns the valid NodeOverlays; raises model.faults."""
_LaunchTarget = tuple[str, str]
"""Name of the instance type, and ID of the reservation, which is empty if not reserved."""


def needs_efa_interfaces(claim: NodeClaim, settings: AwsSettings) -> bool:
    """Whether its pods request EFA, as a resource of a device plugin or as devices of the DRA driver."""
    if parse_resources(claim.spec.resources.requests).get(labels.EFA):
        return True
    return settings.is_gate_enabled(FeatureGate.DRA_EFA) and labels.EFA_DRA_DRIVER in parse_dra_drivers(
        claim.metadata.annotations
    )


class _TemplateKey(NamedTuple):
    """The values in which the launch templates of one launch differ."""

    image_id: str
    placement_group: str
    reservation: str
    pods: int
    efa: int
    kubelet: str
    """JSON of spec.kubelet with the values of its expressions; empty without expressions."""
    disks: ImageDisks


class AwsFleet:
    """Raises model.faults."""

    def __init__(
        self,
        clients: AwsClients,
        settings: AwsSettings,
        *,
        offerings: AwsOfferings,
        templates: LaunchTemplates,
        clusters: Clusters,
        free: FreeAddresses,
        reservations: Reservations,
        instances: AwsInstances,
        overlays: ReadAcceptedOverlays | None = None,
    ) -> None:
        self._clients, self._settings, self._reservations = clients, settings, reservations
        self._overlays = overlays
        self._offerings, self._templates, self._clusters, self._free = offerings, templates, clusters, free
        self._unavailable = UnavailableOfferings()
        self._calls = FleetCalls(
            clients,
            templates=templates,
            instances=instances,
            unavailable=self._unavailable,
            free=free,
            counts=reservations.counts,
        )

    async def prepare(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        *,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
        now: datetime,
        unavailable: Sequence[UnavailableOffering] = (),
        is_retry: bool = False,
    ) -> LaunchPreparation:
        """The launch request, after its templates are created; a rejection if no offering is left or it is invalid.

        `unavailable` offerings are excluded. `is_retry`: an attempt failed, so templates are looked up without the
        cache.
        """
        types = await self._resolve_types(claim, node_class, discovered)
        unavailable_offerings = self._unavailable.for_nodeclass(
            unavailable, node_class=node_class.name, placement_group=types.placement_group, now=now
        )
        shifted_zones = await self._offerings.fetch_shifted_zones()
        full = unavailable_offerings.full_subnets
        subnets = self._free.choose_subnets(
            [one for one in node_class.status.subnets if one.zone_id not in shifted_zones and one.id not in full]
        )
        try:
            await self._reservations.refresh_counts([node_class])
            selection = select_offerings(
                claim, types, subnets.keys(), unavailable_offerings.covers, self._reservations.remaining
            )
        except RequirementError as error:
            return LaunchRejection(reason=labels.LAUNCH_FAILED, message=f"NodeClaim {claim.name}: {error}")
        if selection is None:
            return LaunchRejection(reason="InsufficientCapacity", message=ALL_TYPES_UNAVAILABLE)
        try:
            cluster, disks = await self._clusters.facts(), await self._offerings.image_disks(node_class)
            templates = self._templates_for(selection, claim, node_class, cluster, types.kubelets, disks)
        except UserDataError as error:
            return LaunchRejection(reason="NodeClassNotReady", message=f"EC2NodeClass {node_class.name}: {error}")
        distinct = {one.name: one for one in templates.values()}
        if is_retry:
            self._templates.forget(distinct)
        await self._templates.ensure(list(distinct.values()))
        request = self._request(selection, templates, subnets, claim, node_class)
        return PreparedLaunchRequest(
            request=request.model_copy(update={"node_class_stamp": _nodeclass_stamp(node_class, cluster)})
        )

    async def create(self, group: LaunchGroup) -> FleetResult:
        """A rejection by EC2 is a result. A fault means that the outcome of the call is unknown."""
        return await self._calls.create(group)

    async def find(self, group: LaunchGroup) -> FleetResult:
        """The pending and running instances of this attempt."""
        return await self._calls.find(group)

    async def describe(
        self,
        result: FleetResult,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        *,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
    ) -> Sequence[LaunchFacts]:
        """From cached types and subnets, without a call."""
        types = await self._resolve_types(claim, node_class, discovered)
        return [launch_facts(one, types.by_name.get(one.instance_type), node_class, claim) for one in result.instances]

    async def _resolve_types(
        self, claim: NodeClaim, node_class: EC2NodeClass, discovered: DiscoveredCapacity
    ) -> ResolvedTypes:
        """The types as the plan of the claim saw them, with discovered capacity and NodeOverlays."""
        spec_hash = node_class.metadata.annotations.get(labels.NODECLASS_HASH, "")
        types = (await self._offerings.types_for(node_class)).with_discovered(discovered, spec_hash)
        if self._overlays is None or not self._is_overlaid(claim):
            return types
        return types.with_overlays(await self._overlays(), claim.metadata.labels)

    def _is_overlaid(self, claim: NodeClaim) -> bool:
        """Whether NodeOverlays apply: the plan annotated the claim, or this worker's gate is enabled."""
        overlay_annotations = claim.metadata.annotations.keys() & {
            labels.PRICE_OVERLAY_APPLIED,
            labels.CAPACITY_OVERLAY_APPLIED,
        }
        return bool(overlay_annotations) or self._settings.is_gate_enabled(FeatureGate.NODE_OVERLAY)

    def _templates_for(
        self,
        selection: Selection,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        cluster: ClusterFacts,
        kubelets: Mapping[str, Mapping[str, Any]],
        disks: DisksByImage,
    ) -> Mapping[_LaunchTarget, LaunchTemplate]:
        """Types with the same image and user data share a template; each reservation has its own. Expensive offerings
        are left out if the request would have too many templates."""
        is_custom = not family_of(node_class).syncs_taints_itself
        with_efa = needs_efa_interfaces(claim, self._settings)
        by_key: dict[_TemplateKey, LaunchTemplate] = {}
        by_target: dict[_LaunchTarget, LaunchTemplate] = {}
        for one, reservation in _type_reservations(selection):
            computed = kubelets.get(one.name)
            # The user data of the family Custom is not rendered, so these values do not occur in it.
            key = _TemplateKey(
                image_id=one.image_id,
                placement_group=one.placement_group,
                reservation=reservation,
                pods=0 if is_custom else one.capacity.get(labels.PODS, 0),
                efa=one.capacity.get(labels.EFA, 0) if with_efa else 0,
                kubelet=json.dumps(computed, sort_keys=True) if computed and not is_custom else "",
                disks=disks.get(one.image_id, UNKNOWN_DISKS),
            )
            if key not in by_key and len(by_key) < MAX_TEMPLATES:
                by_key[key] = self._build_template(key, selection, claim, node_class, cluster)
            if key in by_key:
                by_target[one.name, reservation] = by_key[key]
        return by_target

    def _build_template(
        self, key: _TemplateKey, selection: Selection, claim: NodeClaim, node_class: EC2NodeClass, cluster: ClusterFacts
    ) -> LaunchTemplate:
        """Raises UserDataError."""
        family = family_of(node_class)
        bootstrap = bootstrap_of(
            node_class,
            claim,
            family,
            cluster,
            capacity_type=selection.capacity_type,
            max_pods=key.pods,
            computed=json.loads(key.kubelet) if key.kubelet else None,
        )
        placement = Placement(tenancy=selection.tenancy, group=key.placement_group, partition=selection.partition)
        return launch_template(
            node_class,
            family,
            self._settings,
            image_id=key.image_id,
            user_data=render(family, bootstrap),
            tags=node_tags(self._settings, node_class, claim.nodepool),
            capacity_type=selection.capacity_type,
            placement=placement,
            reservation=ReservationTarget(reservation_id=key.reservation, market=selection.market),
            efa_interfaces=key.efa,
            disks=key.disks,
        )

    def _request(
        self,
        selection: Selection,
        templates: Mapping[_LaunchTarget, LaunchTemplate],
        subnets: Mapping[str, str],
        claim: NodeClaim,
        node_class: EC2NodeClass,
    ) -> LaunchRequest:
        relaxed = claim.metadata.annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED) == "true"
        overrides = (
            one for candidate in selection.candidates for one in _launch_overrides(candidate, templates, subnets)
        )
        return LaunchRequest(
            node_class=node_class.name,
            capacity_type=selection.capacity_type,
            market=selection.market,
            overrides=tuple(overrides),
            tags=node_tags(self._settings, node_class, claim.nodepool),
            instance_profile=node_class.status.instance_profile,
            context="" if relaxed else node_class.spec.context or "",
            placement_group=selection.candidates[0].type.placement_group,
            partition=selection.partition,
            prioritized=any(offering.overlaid for one in selection.candidates for offering in one.offerings),
        )


def _type_reservations(selection: Selection) -> Iterator[tuple[InstanceType, str]]:
    """Each type with each of its reservations; with an empty ID if not reserved."""
    for candidate in selection.candidates:
        for reservation in dict.fromkeys(offering.reservation_id for offering in candidate.offerings):
            yield candidate.type, reservation


def _launch_overrides(
    candidate: Candidate, templates: Mapping[_LaunchTarget, LaunchTemplate], subnets: Mapping[str, str]
) -> list[LaunchOverride]:
    found: InstanceType = candidate.type
    return [
        LaunchOverride(
            launch_template=templates[found.name, offering.reservation_id].name,
            instance_type=found.name,
            zone=offering.zone,
            subnet_id=subnets[offering.zone],
            image_id=found.image_id,
            priority=offering.price,
            reservation_id=offering.reservation_id,
        )
        for offering in candidate.offerings
        if (found.name, offering.reservation_id) in templates
    ]


def _nodeclass_stamp(node_class: EC2NodeClass, cluster: ClusterFacts) -> str:
    """Hash version and hash of the class as used for the templates; it may be newer than the class's annotation."""
    return f"{HASH_VERSION}/{nodeclass_hash(node_class, ca_bundle=cluster.ca_bundle)}"
