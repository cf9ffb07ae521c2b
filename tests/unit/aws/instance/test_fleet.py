"""The prepared request of a launch stays within EC2's limits."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from tenure.apis import labels
from tenure.apis.ec2nodeclass import ResolvedCapacityReservation
from tenure.aws.client.client import AwsClients
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.instance.fleet import AwsFleet
from tenure.aws.instancetype.resolver import resolve_types
from tenure.aws.nodeclass.subnets_and_security_groups import FreeAddresses
from tenure.model.launch import PreparedLaunchRequest
from tests.support.aws.builders import SETTINGS, ZONES, build_nodeclaim, build_nodeclass, region, resolved_status

TYPES = tuple(
    f"{family}.{size}" for family in ("c5", "c6i", "m5", "m6i", "r5", "r6i") for size in ("large", "xlarge", "2xlarge")
)
RESERVED_CAPACITY = SETTINGS.model_copy(update={"feature_gates": {"ReservedCapacity": True}})


def respond(value: Any) -> Any:
    async def call(*arguments: Any) -> Any:
        return value

    return call


async def test_reservations_beyond_the_limit_of_launch_templates_are_left_out() -> None:
    """Each reservation has its own template, and EC2 rejects a request with more than 50."""
    node_class = build_nodeclass(resolved_status())
    reservations = [
        ResolvedCapacityReservation.from_object({"id": f"cr-{n}-{zone}", "instanceType": n, "availabilityZone": zone})
        for n in TYPES
        for zone in ZONES
    ]
    types = resolve_types(region(*TYPES), node_class, SETTINGS, reservations=reservations)
    adapters: Any = {
        "offerings": SimpleNamespace(
            types_for=respond(types), fetch_shifted_zones=respond(frozenset()), image_disks=respond({})
        ),
        "templates": SimpleNamespace(ensure=respond(None)),
        "clusters": SimpleNamespace(facts=respond(ClusterFacts(name="demo", cidr="10.100.0.0/16"))),
        "reservations": SimpleNamespace(refresh_counts=respond(None), remaining=lambda one: 1, counts=None),
        "instances": None,
        "free": FreeAddresses(),
    }
    fleet = AwsFleet(cast(AwsClients, None), RESERVED_CAPACITY, **adapters)
    claim = build_nodeclaim((labels.CAPACITY_TYPE, "In", "reserved"))
    prepared = await fleet.prepare(claim, node_class, now=datetime.now(UTC))
    assert isinstance(prepared, PreparedLaunchRequest)
    overrides = prepared.request.overrides
    assert len(reservations) > len({one.launch_template for one in overrides}) == len(overrides) == 50
    assert {"c5.large", "c6i.large"} < {one.instance_type for one in overrides}, "the cheapest ones are used"
