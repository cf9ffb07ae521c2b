"""Capacity reservations against the AWS stand-in, under the shipped IAM policy: selection, launch and description."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.errors import Throttled
from tenure.model.launch import FleetResult, LaunchRejection, LaunchRequest
from tenure.model.provider_results import InstanceFacts, LaunchFacts
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import build_nodeclaim, build_nodeclass
from tests.support.aws.steps import launch_template_data, make_launch_group, prepare_launch, resolve_nodeclass

ANY = (labels.CAPACITY_TYPE, "In", "reserved", "on-demand", "spot")
NODECLAIM = build_nodeclaim(ANY, (labels.INSTANCE_TYPE, "In", "m5.large", "m5.xlarge"))
TAGS = {"team": "a"}


@pytest.fixture
async def cloud(endpoint: str, control: AwsControl, region: Region) -> AsyncIterator[AwsAdapters]:
    one = adapters(endpoint, region, feature_gates={"ReservedCapacity": True})
    yield one
    one.close()


@pytest.fixture
async def cloud_without_gate(endpoint: str, control: AwsControl, region: Region) -> AsyncIterator[AwsAdapters]:
    """Adapters with the ReservedCapacity gate off."""
    one = adapters(endpoint, region)
    yield one
    one.close()


def selecting_nodeclass(*terms: dict[str, Any]) -> EC2NodeClass:
    return build_nodeclass(capacityReservationSelectorTerms=list(terms or ({"tags": TAGS},)))


def reservation_ids(one: EC2NodeClass) -> list[str]:
    return [found.id for found in one.status.capacity_reservations]


async def launch(
    cloud: AwsAdapters, one: EC2NodeClass, nodeclaim: NodeClaim = NODECLAIM, members: int = 1
) -> tuple[LaunchRequest, FleetResult]:
    request = await prepare_launch(cloud, one, nodeclaim)
    return request, await cloud.fleet.create(make_launch_group(request, members))


async def describe_launched(
    cloud: AwsAdapters, one: EC2NodeClass, result: FleetResult
) -> tuple[InstanceFacts, LaunchFacts]:
    found = await cloud.instances.get(result.instances[0].instance_id)
    assert found is not None
    return found, (await cloud.fleet.describe(result, one, NODECLAIM))[0]


def reservation_labels(facts: LaunchFacts) -> list[str | None]:
    return [facts.labels.get(key) for key in labels.RESERVATION_LABELS]


async def test_selector_terms_are_ored_and_their_fields_anded(cloud: AwsAdapters, control: AwsControl) -> None:
    tagged = control.make_reservation(tags=TAGS)
    tagged_open = control.make_reservation(tags={"kind": "x"}, criteria="open")
    control.make_reservation(tags={"kind": "x"})
    named = control.make_reservation()
    shared = control.make_reservation(tags=TAGS, owner="999999999999")
    terms = ({"tags": TAGS, "ownerID": "999999999999"}, {"tags": {"kind": "*"}, "instanceMatchCriteria": "open"})
    assert reservation_ids(await resolve_nodeclass(cloud, selecting_nodeclass(*terms))) == sorted([tagged_open, shared])
    one = build_nodeclass(capacityReservationSelectorTerms=[{"id": named}, {"tags": TAGS}], uid="other")
    assert reservation_ids(await resolve_nodeclass(cloud, one)) == sorted([named, tagged, shared])


async def test_status_describes_each_reservation(cloud: AwsAdapters, control: AwsControl) -> None:
    block = control.make_reservation("m5.xlarge", kind="capacity-block", lasts=86400, tags=TAGS)
    (found,) = (await resolve_nodeclass(cloud, selecting_nodeclass())).status.capacity_reservations
    written = found.to_object()
    ends = datetime.fromisoformat(written.pop("endTime"))
    assert abs(ends - datetime.now(UTC) - timedelta(days=1)) < timedelta(minutes=5)
    assert written == {
        "availabilityZone": "us-west-2a",
        "id": block,
        "instanceMatchCriteria": "targeted",
        "instanceType": "m5.xlarge",
        "interruptible": False,
        "ownerID": "123456789012",
        "reservationType": "capacity-block",
        "state": "active",
    }


async def test_unknown_reservation_id_is_ignored(cloud: AwsAdapters, control: AwsControl) -> None:
    reservation = control.make_reservation()
    terms = [{"id": reservation}, {"id": "cr-0123456789abcdef0"}]
    assert reservation_ids(await resolve_nodeclass(cloud, selecting_nodeclass(*terms))) == [reservation]


async def test_cancelled_and_future_reservations_are_not_selected(cloud: AwsAdapters, control: AwsControl) -> None:
    cancelled, later = control.make_reservation(tags=TAGS), control.make_reservation(tags=TAGS, starts_in=3600)
    control.cancel_reservation(cancelled)
    assert (
        reservation_ids(
            await resolve_nodeclass(cloud, selecting_nodeclass({"id": cancelled}, {"id": later}, {"tags": TAGS}))
        )
        == []
    )


@pytest.mark.parametrize(
    ("more", "target", "kind", "interruptible"),
    [
        ({}, "on-demand", "default", "false"),
        ({"criteria": "open"}, "on-demand", "default", "false"),
        ({"kind": "capacity-block", "lasts": 86400}, "capacity-block", "capacity-block", "false"),
        ({"interruptible": True}, "reserved-capacity", "default", "true"),
    ],
)
async def test_launch_uses_the_reservation_and_labels_it(
    cloud: AwsAdapters, control: AwsControl, more: dict[str, Any], target: str, kind: str, interruptible: str
) -> None:
    reservation = control.make_reservation(tags=TAGS, **more)
    one = await resolve_nodeclass(cloud, selecting_nodeclass())
    request, result = await launch(cloud, one)
    assert {override.reservation_id for override in request.overrides} == {reservation}
    assert control.list_reservations()[reservation]["instances"] == [result.instances[0].instance_id]
    found, facts = await describe_launched(cloud, one, result)
    assert found.capacity_type == facts.labels[labels.CAPACITY_TYPE] == "reserved"
    assert reservation_labels(facts) == [reservation, kind, interruptible]
    assert (found.reservation_id, found.reservation_type) == (reservation, kind)
    assert control.list_denials() == []


async def test_full_reservation_falls_back_to_spot(cloud: AwsAdapters, control: AwsControl) -> None:
    reservation = control.make_reservation(tags=TAGS, count=2)
    one = await resolve_nodeclass(cloud, selecting_nodeclass())
    request, result = await launch(cloud, one, members=3)
    assert request.capacity_type == "reserved"
    assert len(result.instances) == 2
    assert [(error.code, error.reservation_id) for error in result.errors] == [
        ("ReservationCapacityExceeded", reservation)
    ]
    after, _ = await launch(cloud, one)
    assert after.capacity_type == "spot"
    only = build_nodeclaim((labels.CAPACITY_TYPE, "In", "reserved"))
    assert isinstance(await cloud.fleet.prepare(only, one, now=datetime.now(UTC)), LaunchRejection)


async def test_each_reservation_has_its_own_launch_template(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    offerings = [("m5.large", "us-west-2a"), ("m5.large", "us-west-2b"), ("m5.xlarge", "us-west-2b")]
    created = {control.make_reservation(name, zone, tags=TAGS): (name, zone) for name, zone in offerings}
    request = await prepare_launch(cloud, await resolve_nodeclass(cloud, selecting_nodeclass()), NODECLAIM)
    assert {one.reservation_id: (one.instance_type, one.zone) for one in request.overrides} == created
    for one in request.overrides:
        assert launch_template_data(endpoint, one.launch_template)["CapacityReservationSpecification"] == {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": one.reservation_id},
        }


async def test_on_demand_launch_avoids_open_reservations_with_gate_on(cloud: AwsAdapters, control: AwsControl) -> None:
    open_one = control.make_reservation(criteria="open", count=9)
    one = await resolve_nodeclass(cloud)
    nodeclaim = build_nodeclaim((labels.CAPACITY_TYPE, "In", "on-demand"), (labels.INSTANCE_TYPE, "In", "m5.large"),
                   (labels.ZONE, "In", "us-west-2a"))  # fmt: skip
    _, result = await launch(cloud, one, nodeclaim)
    found, facts = await describe_launched(cloud, one, result)
    assert control.list_reservations()[open_one]["instances"] == []
    assert (found.capacity_type, reservation_labels(facts)) == ("on-demand", [None] * 3)


async def test_reservations_in_status_are_ignored_and_cleared_with_gate_off(
    cloud_without_gate: AwsAdapters, cloud: AwsAdapters, control: AwsControl
) -> None:
    control.make_reservation(tags=TAGS)
    conditions = [{"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True"}]
    raw = (await resolve_nodeclass(cloud, selecting_nodeclass())).to_object()
    raw["status"]["conditions"] = conditions
    nodeclass = EC2NodeClass.from_object(raw)
    assert len(reservation_ids(nodeclass)) == 1
    types = {one.name: one for one in await cloud_without_gate.offerings.instance_types(nodeclass)}
    assert "reserved" not in types["m5.large"].labels[labels.CAPACITY_TYPE]
    assert not [one for one in types["m5.large"].offerings if one.capacity_type == "reserved"]
    assert await cloud_without_gate.offerings.reservation_capacities([nodeclass]) == {}
    request = await prepare_launch(cloud_without_gate, nodeclass, NODECLAIM)
    assert request.capacity_type == "spot"
    found = await cloud_without_gate.resolver.resolve(nodeclass)
    assert found.status["capacityReservations"] == []
    off = next(one for one in found.conditions if one.type == labels.CAPACITY_RESERVATIONS_READY)
    assert off.status == ""


async def test_expiring_capacity_block_gets_no_launch(cloud: AwsAdapters, control: AwsControl) -> None:
    soon = control.make_reservation(kind="capacity-block", lasts=39 * 60, tags=TAGS)
    control.make_reservation("m5.xlarge", lasts=39 * 60, tags=TAGS)
    one = await resolve_nodeclass(cloud, selecting_nodeclass())
    states = {found.id: found.state for found in one.status.capacity_reservations}
    assert states.pop(soon) == "expiring"
    assert list(states.values()) == ["active"]
    request = await prepare_launch(cloud, one, NODECLAIM)
    assert {override.instance_type for override in request.overrides} == {"m5.xlarge"}
    assert set(await cloud.reservations.find_ending([soon, *states])) == {soon}


async def test_instance_of_cancelled_reservation_counts_as_on_demand(cloud: AwsAdapters, control: AwsControl) -> None:
    reservation = control.make_reservation(tags=TAGS)
    one = await resolve_nodeclass(cloud, selecting_nodeclass())
    _, result = await launch(cloud, one)
    control.cancel_reservation(reservation)
    found, _ = await describe_launched(cloud, one, result)
    assert (found.capacity_type, found.reservation_id) == ("on-demand", "")


async def test_reservation_capacities_are_read_once_a_minute(cloud: AwsAdapters, control: AwsControl) -> None:
    reservation = control.make_reservation(tags=TAGS, count=3)
    one = await resolve_nodeclass(cloud, selecting_nodeclass())
    for _ in range(3):
        headroom = await cloud.offerings.reservation_capacities([one])
    assert headroom[reservation].available == 3
    assert control.count_calls("ec2:DescribeCapacityReservations") == 1


async def test_last_capacities_apply_while_ec2_is_throttled(
    control: AwsControl, region: Region, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.aws.instancetype.capacity_reservations.FRESH_SECONDS", 0.0)
    cloud = adapters(endpoint, region, feature_gates={"ReservedCapacity": True})
    reservation = control.make_reservation(tags=TAGS, count=2)
    one = await resolve_nodeclass(cloud, selecting_nodeclass())
    control.add_fault("throttle", service="ec2", action="DescribeCapacityReservations")
    assert (await cloud.offerings.reservation_capacities([one]))[reservation].available == 2
    request, _ = await launch(cloud, one)
    assert request.capacity_type == "reserved"
    with pytest.raises(Throttled):
        await cloud.reservations.find_ending([reservation])
    cloud.close()
