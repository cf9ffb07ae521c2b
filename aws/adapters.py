"""Puts the AWS adapters together. `worker.py` gives them to the activities, and mypy proves the fit there."""

from dataclasses import dataclass

from aws.client import AwsClients
from aws.cluster import Clusters
from aws.fleet import AwsFleet, HeededOverlays
from aws.images import Images
from aws.instance_status import AwsInstanceStatuses
from aws.instance_types import Region
from aws.instances import AwsInstances
from aws.launch_templates import LaunchTemplates
from aws.leftovers import AwsLeftovers
from aws.network import FreeAddresses, Networks
from aws.node_class import AwsNodeClasses
from aws.node_class_parts import Parts
from aws.offerings import AwsOfferings
from aws.placement import PlacementGroups
from aws.profiles import Profiles
from aws.queue import SqsQueue
from aws.reservations import Reservations
from aws.settings import AwsSettings
from aws.validating import Validation
from aws.zonal_shift import ZonalShifts


@dataclass(frozen=True, slots=True)
class AwsAdapters:
    """One of each for the process; they share clients, threads and what was learnt of subnets."""

    clients: AwsClients
    fleet: AwsFleet
    instances: AwsInstances
    resolver: AwsNodeClasses
    offerings: AwsOfferings
    leftovers: AwsLeftovers
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
    overlays: HeededOverlays | None = None,
) -> AwsAdapters:
    """Opens no connection; takes some tenths of a second where it makes the clients itself.

    `region`: as read by an earlier one. `overlays`: None where nothing is launched."""
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
                networks=Networks(clients, free, refresh_seconds=settings.subnet_refresh_seconds),
                profiles=profiles,
                placement=placement,
                reservations=reservations,
            ),
            validation=Validation(clients, settings, clusters=clusters, offerings=offerings),
            clusters=clusters,
            templates=templates,
        ),
        offerings=offerings,
        leftovers=AwsLeftovers(clients, settings, templates=templates, profiles=profiles),
        zones=zones,
        reservations=reservations,
        queue=SqsQueue(clients),
        statuses=AwsInstanceStatuses(clients),
    )
