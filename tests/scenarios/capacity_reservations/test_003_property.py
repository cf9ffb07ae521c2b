"""Promise 4 as a property: with the gate off, no public function of the AWS adapters depends on reservations."""

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
from tenure.model.launch import PreparedLaunchRequest
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tests.adapters.aws.conftest import control, endpoint  # noqa: F401 -- fixtures
from tests.support.aws.builders import build_nodeclaim, build_nodeclass
from tests.support.aws.recorded_responses import Response, ResponseRecorder
from tests.support.aws.steps import make_launch_group

A = TypeVar("A")
MISSING_INSTANCE = "i-0123456789abcdef0"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = ("m5.large", "c5.large", "m6g.large", "g4dn.xlarge")
REQUESTED_CLAIM = build_nodeclaim((labels.CAPACITY_TYPE, "In", "reserved", "on-demand"), (labels.ARCH, "In", "amd64"))
STALE_RESERVATION = {"id": "cr-0123456789abcdef0", "instanceType": "m5.large", "availabilityZone": "us-west-2a"}
_UNUSED = {"close"}
"""Functions that make no AWS calls."""


def nodeclass_with_reservations() -> EC2NodeClass:
    """The class selects reservations, and a worker with the gate on left one in its status."""
    return build_nodeclass(
        {
            "capacityReservations": [STALE_RESERVATION],
            "conditions": [{"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True"}],
        },
        capacityReservationSelectorTerms=[{"tags": {"team": "a"}}],
    )


class AdapterResults(dict[str, object]):
    """Results by function name."""

    async def record(self, name: str, call: Awaitable[A]) -> A:
        found = await call
        self[name] = found
        return found


async def call_all_adapters(cloud: AwsAdapters) -> AdapterResults:
    """Results of all public functions of the adapters, called in the order of a class's and its nodes' lifecycle."""
    results = AdapterResults()
    await _call_nodeclass_adapters(cloud, results)
    one = _resolved_nodeclass(results["resolver.resolve"])
    await _call_offering_adapters(cloud, one, results)
    await _call_launch_adapters(cloud, one, results)
    await _call_orphaned_resource_adapters(cloud, results)
    await _call_event_adapters(cloud, results)
    await results.record("resolver.clean_up", cloud.resolver.clean_up(one))
    return results


async def _call_nodeclass_adapters(cloud: AwsAdapters, results: AdapterResults) -> None:
    await results.record("zones.check", cloud.zones.check())
    await results.record("zones.fetch_shifted_zones", cloud.zones.fetch_shifted_zones())
    await results.record("offerings.refresh", cloud.offerings.refresh())
    await results.record("resolver.preview", cloud.resolver.preview(nodeclass_with_reservations()))
    await results.record("resolver.profile_of", cloud.resolver.profile_of(nodeclass_with_reservations()))
    await results.record("resolver.resolve", cloud.resolver.resolve(nodeclass_with_reservations()))
    await results.record("reservations.resolve", cloud.reservations.resolve(nodeclass_with_reservations()))
    results["reservations.for_nodeclass"] = cloud.reservations.for_nodeclass(nodeclass_with_reservations())
    await results.record(
        "reservations.refresh_counts", cloud.reservations.refresh_counts([nodeclass_with_reservations()])
    )
    results["reservations.capacities"] = cloud.reservations.capacities([nodeclass_with_reservations()])
    results["reservations.remaining"] = cloud.reservations.remaining(str(STALE_RESERVATION["id"]))
    await results.record("reservations.find_ending", cloud.reservations.find_ending([str(STALE_RESERVATION["id"])]))


async def _call_offering_adapters(cloud: AwsAdapters, one: EC2NodeClass, results: AdapterResults) -> None:
    region = await cloud.offerings.region()
    results["offerings.region"] = region.types, region.zones_of, region.zones
    await results.record("offerings.instance_types", cloud.offerings.instance_types(one))
    results["offerings.types_for"] = (await cloud.offerings.types_for(one)).types
    await results.record("offerings.catalogue", cloud.offerings.catalogue([one]))
    await results.record("offerings.image_disks", cloud.offerings.image_disks(one))
    await results.record("offerings.reservation_capacities", cloud.offerings.reservation_capacities([one]))
    await results.record("offerings.fetch_shifted_zones", cloud.offerings.fetch_shifted_zones())


async def _call_launch_adapters(cloud: AwsAdapters, one: EC2NodeClass, results: AdapterResults) -> None:
    prepared = await results.record("fleet.prepare", cloud.fleet.prepare(REQUESTED_CLAIM, one, now=NOW))
    assert isinstance(prepared, PreparedLaunchRequest), prepared
    group = make_launch_group(prepared.request, members=2)
    fleet_result = await results.record("fleet.create", cloud.fleet.create(group))
    await results.record("fleet.find", cloud.fleet.find(group))
    await results.record("fleet.describe", cloud.fleet.describe(fleet_result, one, REQUESTED_CLAIM))
    first = fleet_result.instances[0].instance_id
    await results.record("instances.get", cloud.instances.get(first))
    await results.record("instances.list_managed", cloud.instances.list_managed())
    await results.record("instances.find_by_nodeclaim", cloud.instances.find_by_nodeclaim("nobody"))
    await results.record("instances.find_by_tag", cloud.instances.find_by_tag(labels.LAUNCH_GROUP, group.group_id))
    await results.record("orphaned_resources.tag_instance", cloud.orphaned_resources.tag_instance(first, {"Name": "a"}))
    await results.record("instances.is_zone_shifted", cloud.instances.is_zone_shifted("usw2-az1"))
    await results.record("instances.reboot", cloud.instances.reboot(first))
    await results.record("instances.stop", cloud.instances.stop(MISSING_INSTANCE))
    await results.record("instances.start", cloud.instances.start(MISSING_INSTANCE))
    await results.record("instances.terminate", cloud.instances.terminate(first))


async def _call_orphaned_resource_adapters(cloud: AwsAdapters, results: AdapterResults) -> None:
    templates = await results.record(
        "orphaned_resources.list_launch_templates", cloud.orphaned_resources.list_launch_templates()
    )
    profiles = await results.record(
        "orphaned_resources.list_instance_profiles", cloud.orphaned_resources.list_instance_profiles()
    )
    await results.record("orphaned_resources.delete_template", cloud.orphaned_resources.delete_template(templates[0]))
    await results.record("orphaned_resources.delete_profile", cloud.orphaned_resources.delete_profile(profiles[0]))


async def _call_event_adapters(cloud: AwsAdapters, results: AdapterResults) -> None:
    await results.record("queue.receive", cloud.queue.receive("demo", wait=0))
    await results.record("queue.delete", cloud.queue.delete("demo", ["a receipt"]))
    await results.record("statuses.read", cloud.statuses.read())


def _resolved_nodeclass(resolved: Any) -> EC2NodeClass:
    """The class as the API server would store it, with the stale reservation that the gate would clear."""
    raw = nodeclass_with_reservations().to_object()
    return EC2NodeClass.from_object({**raw, "status": {**resolved.status, "capacityReservations": [STALE_RESERVATION]}})


class RecordedAdapters:
    """The adapters of a new worker with recorded AWS responses."""

    def __init__(self, clients: AwsClients, aws_settings: AwsSettings) -> None:
        self.clients, self.aws_settings, self.tape = clients, aws_settings, ResponseRecorder(_limit_types)
        self.tape.attach(clients)

    def adapters(self) -> AwsAdapters:
        return build(self.aws_settings, clients=self.clients)


@pytest.fixture
async def recorded_adapters(
    endpoint: str,  # noqa: F811
    control: AwsControl,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[RecordedAdapters]:
    """Responses recorded from a worker with the gate off, in a region with few instance types."""
    monkeypatch.setitem(os.environ, "AWS_ACCESS_KEY_ID", WORKER_KEY)
    monkeypatch.setitem(os.environ, "AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("tenure.aws.client.rate_limiter.TokenBucket.acquire", _skip_rate_limit)
    aws_settings = AwsSettings(cluster_name="demo", region="us-west-2", endpoint_url=endpoint, pool_size=8)
    one = RecordedAdapters(AwsClients(aws_settings), aws_settings)
    await call_all_adapters(one.adapters())
    yield one
    one.clients.close()


async def _skip_rate_limit(_: object, *__: object) -> None:
    """Rate limits do not matter here."""


def _limit_types(operation: str, response: Response) -> None:
    if "PriceList" in response:
        response["PriceList"] = [one for one in response["PriceList"] if any(f'"{name}"' in one for name in TYPES)]
    for key in ("InstanceTypes", "InstanceTypeOfferings", "SpotPriceHistory"):
        if key in response:
            response[key] = [one for one in response[key] if one["InstanceType"] in TYPES]


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
"""The fields of an instance that was launched into a reservation."""


def scatter(data: Mapping[str, Any], seed: int, share: float) -> Any:
    """Merge the data into a share of all mappings of a response, replacing existing keys."""
    dice = Random(seed)

    def scatter_value(value: Any) -> Any:
        if isinstance(value, list):
            return [scatter_value(one) for one in value]
        if not isinstance(value, dict):
            return value
        found = {key: scatter_value(one) if key != "ResponseMetadata" else one for key, one in value.items()}
        return {**found, **data} if dice.random() < share else found

    return scatter_value


@pytest.mark.row("003-h")
async def test_all_public_functions_are_called(recorded_adapters: RecordedAdapters) -> None:
    cloud = recorded_adapters.adapters()
    recorded_adapters.tape.replay(lambda response: response)
    adapters = {one.name: getattr(cloud, one.name) for one in fields(cloud) if one.name != "clients"}
    public = {
        f"{name}.{method}"
        for name, adapter in adapters.items()
        for method, _ in inspect.getmembers(type(adapter), inspect.isfunction)
        if not method.startswith("_") and method not in _UNUSED
    }
    assert public == (await call_all_adapters(cloud)).keys()


@pytest.mark.row("003-h")
async def test_reservations_in_responses_change_nothing_with_gate_off(recorded_adapters: RecordedAdapters) -> None:
    recorded_adapters.tape.replay(lambda response: response)
    expected = await call_all_adapters(recorded_adapters.adapters())
    loop = asyncio.new_event_loop()

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @example(data=TARGETED, seed=0, share=1.0)
    @given(data=DATA, seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.5, 1.0]))
    def holds(data: dict[str, Any], seed: int, share: float) -> None:
        recorded_adapters.tape.replay(scatter(data, seed, share))
        found = loop.run_until_complete(call_all_adapters(recorded_adapters.adapters()))
        assert found == expected

    await asyncio.to_thread(holds)
    loop.close()
