"""Promise 4 as a property: with the gate off no public function of the AWS adapters sees a reservation."""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters, build
from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.model.launch import LaunchPrepared
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tests.adapters.aws.conftest import control, endpoint  # noqa: F401 -- fixtures
from tests.support.aws.builders import claim, node_class
from tests.support.aws.steps import group_of
from tests.support.aws.tape import Answer, Tape

A = TypeVar("A")
GONE = "i-0123456789abcdef0"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = ("m5.large", "c5.large", "m6g.large", "g4dn.xlarge")
WANTED = claim((labels.CAPACITY_TYPE, "In", "reserved", "on-demand"), (labels.ARCH, "In", "amd64"))
LEFT = {"id": "cr-0123456789abcdef0", "instanceType": "m5.large", "availabilityZone": "us-west-2a"}
_UNUSED = {"close"}
"""What asks nothing of AWS."""


def the_class() -> EC2NodeClass:
    """It selects reservations, and a worker with the gate on has left one in its status."""
    return node_class(
        {
            "capacityReservations": [LEFT],
            "conditions": [{"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True"}],
        },
        capacityReservationSelectorTerms=[{"tags": {"team": "a"}}],
    )


class Said(dict[str, object]):
    """Answers by the function's name."""

    async def note(self, name: str, answer: Awaitable[A]) -> A:
        found = await answer
        self[name] = found
        return found


async def everything(cloud: AwsAdapters) -> Said:
    """What each public function of the adapters answers, in the order in which a class and its nodes live."""
    said = Said()
    await _of_classes(cloud, said)
    one = _written(said["resolver.resolve"])
    await _of_offerings(cloud, one, said)
    await _of_launches(cloud, one, said)
    await _of_leftovers(cloud, said)
    await _of_events(cloud, said)
    await said.note("resolver.clean_up", cloud.resolver.clean_up(one))
    return said


async def _of_classes(cloud: AwsAdapters, said: Said) -> None:
    await said.note("zones.check", cloud.zones.check())
    await said.note("zones.away", cloud.zones.away())
    await said.note("offerings.refresh", cloud.offerings.refresh())
    await said.note("resolver.preview", cloud.resolver.preview(the_class()))
    await said.note("resolver.profile_of", cloud.resolver.profile_of(the_class()))
    await said.note("resolver.resolve", cloud.resolver.resolve(the_class()))
    await said.note("reservations.resolve", cloud.reservations.resolve(the_class()))
    said["reservations.of"] = cloud.reservations.of(the_class())
    await said.note("reservations.freshen", cloud.reservations.freshen([the_class()]))
    said["reservations.rooms"] = cloud.reservations.rooms([the_class()])
    said["reservations.remaining"] = cloud.reservations.remaining(str(LEFT["id"]))
    await said.note("reservations.ending", cloud.reservations.ending([str(LEFT["id"])]))


async def _of_offerings(cloud: AwsAdapters, one: EC2NodeClass, said: Said) -> None:
    region = await cloud.offerings.region()
    said["offerings.region"] = region.types, region.zones_of, region.zones
    await said.note("offerings.instance_types", cloud.offerings.instance_types(one))
    said["offerings.resolved"] = (await cloud.offerings.resolved(one)).types
    await said.note("offerings.catalogue", cloud.offerings.catalogue([one]))
    await said.note("offerings.rooms", cloud.offerings.rooms([one]))
    await said.note("offerings.away", cloud.offerings.away())


async def _of_launches(cloud: AwsAdapters, one: EC2NodeClass, said: Said) -> None:
    prepared = await said.note("fleet.prepare", cloud.fleet.prepare(WANTED, one, now=NOW))
    assert isinstance(prepared, LaunchPrepared), prepared
    group = group_of(prepared.request, members=2)
    answer = await said.note("fleet.create", cloud.fleet.create(group))
    await said.note("fleet.find", cloud.fleet.find(group))
    await said.note("fleet.describe", cloud.fleet.describe(answer, one, WANTED))
    first = answer.instances[0].instance_id
    await said.note("instances.get", cloud.instances.get(first))
    await said.note("instances.list_managed", cloud.instances.list_managed())
    await said.note("instances.named", cloud.instances.named("nobody"))
    await said.note("instances.tagged", cloud.instances.tagged(labels.LAUNCH_GROUP, group.group_id))
    await said.note("leftovers.tag", cloud.leftovers.tag(first, {"Name": "a"}))
    await said.note("instances.reboot", cloud.instances.reboot(first))
    await said.note("instances.stop", cloud.instances.stop(GONE))
    await said.note("instances.start", cloud.instances.start(GONE))
    await said.note("instances.terminate", cloud.instances.terminate(first))


async def _of_leftovers(cloud: AwsAdapters, said: Said) -> None:
    templates = await said.note("leftovers.templates", cloud.leftovers.templates())
    profiles = await said.note("leftovers.profiles", cloud.leftovers.profiles())
    await said.note("leftovers.delete_template", cloud.leftovers.delete_template(templates[0]))
    await said.note("leftovers.delete_profile", cloud.leftovers.delete_profile(profiles[0]))


async def _of_events(cloud: AwsAdapters, said: Said) -> None:
    await said.note("queue.receive", cloud.queue.receive("demo", wait=0))
    await said.note("queue.delete", cloud.queue.delete("demo", ["a receipt"]))
    await said.note("statuses.read", cloud.statuses.read())


def _written(resolved: Any) -> EC2NodeClass:
    """As the API server would hold it, but for what the gate emptied, which is left there."""
    raw = the_class().to_object()
    return EC2NodeClass.from_object({**raw, "status": {**resolved.status, "capacityReservations": [LEFT]}})


class Played:
    """The adapters of a fresh worker on recorded answers."""

    def __init__(self, clients: AwsClients, told: AwsSettings) -> None:
        self.clients, self.told, self.tape = clients, told, Tape(_few_types)
        self.tape.listen(clients)

    def cloud(self) -> AwsAdapters:
        return build(self.told, clients=self.clients)


@pytest.fixture
async def played(endpoint: str, control: AwsControl, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Played]:  # noqa: F811
    """Recorded once from a worker with the gate off, in a region of few instance types."""
    monkeypatch.setitem(os.environ, "AWS_ACCESS_KEY_ID", WORKER_KEY)
    monkeypatch.setitem(os.environ, "AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("tenure.aws.client.rate_limiter.TokenBucket.take", _at_once)
    told = AwsSettings(cluster_name="demo", region="us-west-2", endpoint_url=endpoint, pool_size=8)
    one = Played(AwsClients(told), told)
    await everything(one.cloud())
    yield one
    one.clients.close()


async def _at_once(_: object, *__: object) -> None:
    """The pace of calls is no matter here."""


def _few_types(operation: str, answer: Answer) -> None:
    if "PriceList" in answer:
        answer["PriceList"] = [one for one in answer["PriceList"] if any(f'"{name}"' in one for name in TYPES)]
    for key in ("InstanceTypes", "InstanceTypeOfferings", "SpotPriceHistory"):
        if key in answer:
            answer[key] = [one for one in answer[key] if one["InstanceType"] in TYPES]


RESERVATION = st.fixed_dictionaries(
    {"CapacityReservationId": st.sampled_from(["cr-0123456789abcdef0", "cr-1", ""])},
    optional={
        "InstanceType": st.sampled_from(TYPES),
        "AvailabilityZone": st.sampled_from(["us-west-2a", "us-west-2b"]),
        "State": st.sampled_from(["active", "expired"]),
        "AvailableInstanceCount": st.integers(0, 5),
        "ReservationType": st.sampled_from(["default", "capacity-block"]),
    },
)
PREFERENCE = st.sampled_from(["open", "none", "capacity-reservations-only"])
DATA = st.fixed_dictionaries(
    {},
    optional={
        "CapacityReservationId": st.sampled_from(["cr-0123456789abcdef0", "cr-1", ""]),
        "CapacityReservationSpecification": st.fixed_dictionaries(
            {"CapacityReservationPreference": PREFERENCE}, optional={"CapacityReservationTarget": RESERVATION}
        ),
        "CapacityReservationPreference": PREFERENCE,
        "CapacityReservationTarget": RESERVATION,
        "CapacityReservations": st.lists(RESERVATION, max_size=3),
        "CapacityReservationOptions": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
        "CapacityReservationFleetId": st.text(max_size=8),
        "CapacityBlockId": st.text(max_size=8),
        "InstanceLifecycle": st.sampled_from(["capacity-block", "interruptible-capacity-reservation"]),
    },
)


TARGETED = {
    "CapacityReservationId": "cr-1",
    "CapacityReservationSpecification": {"CapacityReservationPreference": "capacity-reservations-only"},
    "CapacityReservations": [{"CapacityReservationId": "cr-1", "InstanceType": "m5.large", "State": "active"}],
    "InstanceLifecycle": "capacity-block",
}
"""As an instance looks that was launched into a reservation and nowhere else."""


def strewn(data: Mapping[str, Any], seed: int, share: float) -> Any:
    """Adds the data to a share of all the structures that an answer is made of, in the place of such that is there."""
    dice = Random(seed)

    def strew(value: Any) -> Any:
        if isinstance(value, list):
            return [strew(one) for one in value]
        if not isinstance(value, dict):
            return value
        found = {key: strew(one) if key != "ResponseMetadata" else one for key, one in value.items()}
        return {**found, **data} if dice.random() < share else found

    return strew


@pytest.mark.row("003-h")
async def test_no_public_function_is_left_out(played: Played) -> None:
    cloud = played.cloud()
    played.tape.rewind(lambda answer: answer)
    adapters = {one.name: getattr(cloud, one.name) for one in fields(cloud) if one.name != "clients"}
    public = {
        f"{name}.{method}"
        for name, adapter in adapters.items()
        for method, _ in inspect.getmembers(type(adapter), inspect.isfunction)
        if not method.startswith("_") and method not in _UNUSED
    }
    assert public == (await everything(cloud)).keys()


@pytest.mark.row("003-h")
async def test_with_the_gate_off_reservations_in_answers_change_nothing(played: Played) -> None:
    played.tape.rewind(lambda answer: answer)
    expected = await everything(played.cloud())
    loop = asyncio.new_event_loop()

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @example(data=TARGETED, seed=0, share=1.0)
    @given(data=DATA, seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.5, 1.0]))
    def holds(data: dict[str, Any], seed: int, share: float) -> None:
        played.tape.rewind(strewn(data, seed, share))
        found = loop.run_until_complete(everything(played.cloud()))
        assert found == expected

    await asyncio.to_thread(holds)
    loop.close()
