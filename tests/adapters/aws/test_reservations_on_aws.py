"""Capacity reservations against the stand-in, under the IAM policy that ships: selected, launched into, read back."""

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
from tenure.model.launch import FleetAnswer, LaunchRefused, LaunchRequest
from tenure.model.provider_results import InstanceFacts, LaunchFacts
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import claim, node_class
from tests.support.aws.steps import group_of, outsider, prepared, resolved

ANY = (labels.CAPACITY_TYPE, "In", "reserved", "on-demand", "spot")
WANTED = claim(ANY, (labels.INSTANCE_TYPE, "In", "m5.large", "m5.xlarge"))
TAGS = {"team": "a"}


@pytest.fixture
async def cloud(endpoint: str, control: AwsControl, region: Region) -> AsyncIterator[AwsAdapters]:
    one = adapters(endpoint, region, feature_gates={"ReservedCapacity": True})
    yield one
    one.close()


@pytest.fixture
async def plain(endpoint: str, control: AwsControl, region: Region) -> AsyncIterator[AwsAdapters]:
    """With the gate off."""
    one = adapters(endpoint, region)
    yield one
    one.close()


def selecting(*terms: dict[str, Any]) -> EC2NodeClass:
    return node_class(capacityReservationSelectorTerms=list(terms or ({"tags": TAGS},)))


def ids(one: EC2NodeClass) -> list[str]:
    return [found.id for found in one.status.capacity_reservations]


async def launched(
    cloud: AwsAdapters, one: EC2NodeClass, wanted: NodeClaim = WANTED, members: int = 1
) -> tuple[LaunchRequest, FleetAnswer]:
    request = await prepared(cloud, one, wanted)
    return request, await cloud.fleet.create(group_of(request, members))


async def shown(cloud: AwsAdapters, one: EC2NodeClass, answer: FleetAnswer) -> tuple[InstanceFacts, LaunchFacts]:
    found = await cloud.instances.get(answer.instances[0].instance_id)
    assert found is not None
    return found, (await cloud.fleet.describe(answer, one, WANTED))[0]


def three(facts: LaunchFacts) -> list[str | None]:
    return [facts.labels.get(key) for key in labels.RESERVATION_LABELS]


async def test_terms_are_alternatives_and_their_fields_all_hold(cloud: AwsAdapters, control: AwsControl) -> None:
    mine = control.make_reservation(tags=TAGS)
    tagged_open = control.make_reservation(tags={"kind": "x"}, criteria="open")
    control.make_reservation(tags={"kind": "x"})
    named = control.make_reservation()
    shared = control.make_reservation(tags=TAGS, owner="999999999999")
    terms = ({"tags": TAGS, "ownerID": "999999999999"}, {"tags": {"kind": "*"}, "instanceMatchCriteria": "open"})
    assert ids(await resolved(cloud, selecting(*terms))) == sorted([tagged_open, shared])
    one = node_class(capacityReservationSelectorTerms=[{"id": named}, {"tags": TAGS}], uid="other")
    assert ids(await resolved(cloud, one)) == sorted([named, mine, shared])


async def test_the_status_says_what_each_reservation_is(cloud: AwsAdapters, control: AwsControl) -> None:
    block = control.make_reservation("m5.xlarge", kind="capacity-block", lasts=86400, tags=TAGS)
    (found,) = (await resolved(cloud, selecting())).status.capacity_reservations
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


async def test_an_id_that_is_not_there_harms_no_other(cloud: AwsAdapters, control: AwsControl) -> None:
    mine = control.make_reservation()
    terms = [{"id": mine}, {"id": "cr-0123456789abcdef0"}]
    assert ids(await resolved(cloud, selecting(*terms))) == [mine]


async def test_what_is_over_or_has_not_begun_is_not_listed(cloud: AwsAdapters, control: AwsControl) -> None:
    gone, later = control.make_reservation(tags=TAGS), control.make_reservation(tags=TAGS, starts_in=3600)
    control.cancel_reservation(gone)
    assert ids(await resolved(cloud, selecting({"id": gone}, {"id": later}, {"tags": TAGS}))) == []


@pytest.mark.parametrize(
    ("more", "target", "kind", "interruptible"),
    [
        ({}, "on-demand", "default", "false"),
        ({"criteria": "open"}, "on-demand", "default", "false"),
        ({"kind": "capacity-block", "lasts": 86400}, "capacity-block", "capacity-block", "false"),
        ({"interruptible": True}, "reserved-capacity", "default", "true"),
    ],
)
async def test_a_launch_goes_into_the_reservation_and_shows_it(
    cloud: AwsAdapters, control: AwsControl, more: dict[str, Any], target: str, kind: str, interruptible: str
) -> None:
    reservation = control.make_reservation(tags=TAGS, **more)
    one = await resolved(cloud, selecting())
    request, answer = await launched(cloud, one)
    assert {override.reservation_id for override in request.overrides} == {reservation}
    assert control.reservations()[reservation]["instances"] == [answer.instances[0].instance_id]
    found, facts = await shown(cloud, one, answer)
    assert found.capacity_type == facts.labels[labels.CAPACITY_TYPE] == "reserved"
    assert three(facts) == [reservation, kind, interruptible]
    assert (found.reservation_id, found.reservation_type) == (reservation, kind)
    assert control.denials() == []


async def test_a_full_reservation_is_left_for_what_can_be_bought(cloud: AwsAdapters, control: AwsControl) -> None:
    reservation = control.make_reservation(tags=TAGS, count=2)
    one = await resolved(cloud, selecting())
    request, answer = await launched(cloud, one, members=3)
    assert request.capacity_type == "reserved"
    assert len(answer.instances) == 2
    assert [(error.code, error.reservation_id) for error in answer.errors] == [
        ("ReservationCapacityExceeded", reservation)
    ]
    after, _ = await launched(cloud, one)
    assert after.capacity_type == "spot"
    only = claim((labels.CAPACITY_TYPE, "In", "reserved"))
    assert isinstance(await cloud.fleet.prepare(only, one, now=datetime.now(UTC)), LaunchRefused)


async def test_each_reservation_has_its_own_template(cloud: AwsAdapters, control: AwsControl, endpoint: str) -> None:
    places = [("m5.large", "us-west-2a"), ("m5.large", "us-west-2b"), ("m5.xlarge", "us-west-2b")]
    made = {control.make_reservation(name, zone, tags=TAGS): (name, zone) for name, zone in places}
    request = await prepared(cloud, await resolved(cloud, selecting()), WANTED)
    assert {one.reservation_id: (one.instance_type, one.zone) for one in request.overrides} == made
    ec2 = outsider(endpoint)
    for one in request.overrides:
        said = ec2.describe_launch_template_versions(LaunchTemplateName=one.launch_template, Versions=["$Latest"])
        data = said["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        assert data["CapacityReservationSpecification"] == {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": one.reservation_id},
        }


async def test_the_reservation_with_most_room_in_a_zone_is_taken(cloud: AwsAdapters, control: AwsControl) -> None:
    control.make_reservation(tags=TAGS, count=1)
    roomy = control.make_reservation(tags=TAGS, count=5)
    request = await prepared(cloud, await resolved(cloud, selecting()), WANTED)
    assert [one.reservation_id for one in request.overrides] == [roomy]


async def test_with_the_gate_on_nothing_lands_in_an_open_reservation_by_chance(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    open_one = control.make_reservation(criteria="open", count=9)
    one = await resolved(cloud)
    wanted = claim((labels.CAPACITY_TYPE, "In", "on-demand"), (labels.INSTANCE_TYPE, "In", "m5.large"),
                   (labels.ZONE, "In", "us-west-2a"))  # fmt: skip
    _, answer = await launched(cloud, one, wanted)
    found, facts = await shown(cloud, one, answer)
    assert control.reservations()[open_one]["instances"] == []
    assert (found.capacity_type, three(facts)) == ("on-demand", [None] * 3)


async def test_with_the_gate_off_an_open_reservation_may_be_used_and_is_not_seen(
    plain: AwsAdapters, control: AwsControl
) -> None:
    open_one = control.make_reservation(criteria="open", tags=TAGS, count=9)
    one = await resolved(plain, selecting())
    assert ids(one) == []
    wanted = claim((labels.CAPACITY_TYPE, "In", "on-demand"), (labels.INSTANCE_TYPE, "In", "m5.large"),
                   (labels.ZONE, "In", "us-west-2a"))  # fmt: skip
    _, answer = await launched(plain, one, wanted)
    found, facts = await shown(plain, one, answer)
    assert control.reservations()[open_one]["instances"] == [found.instance_id]
    assert (found.capacity_type, found.reservation_id, three(facts)) == ("on-demand", "", [None] * 3)


async def test_with_the_gate_off_a_list_that_was_left_is_emptied_and_unused(
    plain: AwsAdapters, cloud: AwsAdapters, control: AwsControl
) -> None:
    control.make_reservation(tags=TAGS)
    conditions = [{"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True"}]
    raw = (await resolved(cloud, selecting())).to_object()
    raw["status"]["conditions"] = conditions
    left = EC2NodeClass.from_object(raw)
    assert len(ids(left)) == 1
    types = {one.name: one for one in await plain.offerings.instance_types(left)}
    assert "reserved" not in types["m5.large"].labels[labels.CAPACITY_TYPE]
    assert not [one for one in types["m5.large"].offerings if one.capacity_type == "reserved"]
    assert await plain.offerings.rooms([left]) == {}
    request = await prepared(plain, left, WANTED)
    assert request.capacity_type == "spot"
    found = await plain.resolver.resolve(left)
    assert found.status["capacityReservations"] == []
    off = next(one for one in found.conditions if one.type == labels.CAPACITY_RESERVATIONS_READY)
    assert off.status == ""


async def test_a_block_near_its_end_is_expiring_and_gets_no_launch(cloud: AwsAdapters, control: AwsControl) -> None:
    soon = control.make_reservation(kind="capacity-block", lasts=39 * 60, tags=TAGS)
    control.make_reservation("m5.xlarge", lasts=39 * 60, tags=TAGS)
    one = await resolved(cloud, selecting())
    states = {found.id: found.state for found in one.status.capacity_reservations}
    assert states.pop(soon) == "expiring"
    assert list(states.values()) == ["active"]
    request = await prepared(cloud, one, WANTED)
    assert {override.instance_type for override in request.overrides} == {"m5.xlarge"}
    assert set(await cloud.reservations.ending([soon, *states])) == {soon}


async def test_a_reservation_that_was_cancelled_leaves_an_on_demand_instance(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    reservation = control.make_reservation(tags=TAGS)
    one = await resolved(cloud, selecting())
    _, answer = await launched(cloud, one)
    control.cancel_reservation(reservation)
    found, _ = await shown(cloud, one, answer)
    assert (found.capacity_type, found.reservation_id) == ("on-demand", "")


async def test_rooms_are_what_ec2_says_and_are_asked_for_once_a_minute(cloud: AwsAdapters, control: AwsControl) -> None:
    reservation = control.make_reservation(tags=TAGS, count=3)
    one = await resolved(cloud, selecting())
    for _ in range(3):
        rooms = await cloud.offerings.rooms([one])
    assert rooms[reservation].available == 3
    assert control.count("ec2:DescribeCapacityReservations") == 1


async def test_while_ec2_does_not_answer_the_last_counts_stand(
    control: AwsControl, region: Region, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.aws.instancetype.capacity_reservations.FRESH_SECONDS", 0.0)
    cloud = adapters(endpoint, region, feature_gates={"ReservedCapacity": True})
    reservation = control.make_reservation(tags=TAGS, count=2)
    one = await resolved(cloud, selecting())
    control.add_fault("throttle", service="ec2", action="DescribeCapacityReservations")
    assert (await cloud.offerings.rooms([one]))[reservation].available == 2
    request, _ = await launched(cloud, one)
    assert request.capacity_type == "reserved"
    with pytest.raises(Throttled):
        await cloud.reservations.ending([reservation])
    cloud.close()
