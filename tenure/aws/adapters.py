"""Constructs the AWS adapters. In `build_ports` of `tenure/worker/adapters.py`, mypy checks them against the ports."""

from dataclasses import dataclass

from tenure.aws.amifamily.images import Images
from tenure.aws.client.client import AwsClients
from tenure.aws.eks_cluster import Clusters
from tenure.aws.instance.fleet import AwsFleet, ReadAcceptedOverlays
from tenure.aws.instance.instances import AwsInstances
from tenure.aws.instance.launch_templates import LaunchTemplates
from tenure.aws.instance.orphans import AwsOrphanedResources
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.instancetype.provider import AwsOfferings
from tenure.aws.instancetype.resolver import Region
from tenure.aws.interruption.instance_status import AwsInstanceStatuses
from tenure.aws.interruption.sqs import SqsQueue
from tenure.aws.interruption.zonal_shift import ZonalShifts
from tenure.aws.nodeclass.instance_profiles import Profiles
from tenure.aws.nodeclass.placement_groups import PlacementGroups
from tenure.aws.nodeclass.status import AwsNodeClasses, Parts
from tenure.aws.nodeclass.subnets_and_security_groups import FreeAddresses, Networks
from tenure.aws.nodeclass.validation import Validation
from tenure.aws.settings import AwsSettings


@dataclass(frozen=True, slots=True)
class AwsAdapters:
    """The AWS adapters of a process, with shared clients, rate limits and cached subnets."""

    clients: AwsClients
    fleet: AwsFleet
    instances: AwsInstances
    resolver: AwsNodeClasses
    offerings: AwsOfferings
    orphaned_resources: AwsOrphanedResources
    zones: ZonalShifts
    reservations: Reservations
    queue: SqsQueue
    statuses: AwsInstanceStatuses

    def close(self) -> None:
        self.clients.close()


def build(
    settings: AwsSettings,
    *,
    region: Region | None = None,
    clients: AwsClients | None = None,
    overlays: ReadAcceptedOverlays | None = None,
) -> AwsAdapters:
    """Opens no connection; takes some tenths of a second without `clients`.

    `region`: data from earlier adapters. `overlays`: None if the process launches no instances."""
    clients = clients or AwsClients(settings)
    clusters = Clusters(clients, settings)
    templates = LaunchTemplates(clients, settings)
    profiles = Profiles(clients, settings)
    free = FreeAddresses(settings.subnet_refresh_seconds)
    placement = PlacementGroups(clients)
    zones = ZonalShifts(clients, settings)
    reservations = Reservations(clients, settings)
    offerings = AwsOfferings(
        clients, settings, placement=placement, zones=zones, reservations=reservations, region=region
    )
    instances = AwsInstances(clients, settings, zones, reservations)
    return AwsAdapters(
        clients=clients,
        fleet=AwsFleet(
            clients,
            settings,
            offerings=offerings,
            templates=templates,
            clusters=clusters,
            free=free,
            reservations=reservations,
            instances=instances,
            overlays=overlays,
        ),
        instances=instances,
        resolver=AwsNodeClasses(
            parts=Parts(
                images=Images(clients, clusters, refresh_seconds=settings.ami_refresh_seconds),
                networks=Networks(
                    clients,
                    free,
                    subnet_seconds=settings.subnet_refresh_seconds,
                    group_seconds=settings.security_group_refresh_seconds,
                ),
                profiles=profiles,
                placement=placement,
                reservations=reservations,
            ),
            validation=Validation(clients, settings, clusters=clusters, offerings=offerings),
            clusters=clusters,
            templates=templates,
        ),
        offerings=offerings,
        orphaned_resources=AwsOrphanedResources(clients, settings, templates=templates, profiles=profiles),
        zones=zones,
        reservations=reservations,
        queue=SqsQueue(clients),
        statuses=AwsInstanceStatuses(clients),
    )
