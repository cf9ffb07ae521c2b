"""When instance types and prices are read again, and which values remain after a failed read."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.apis import labels
from tenure.aws.client.client import AwsClients
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.instancetype.info import TypeInfo
from tenure.aws.instancetype.prices import LINUX, ListedPrices, PricesRead, PriceTable, read_on_demand, read_spot
from tenure.aws.instancetype.provider import AwsOfferings
from tenure.aws.instancetype.resolver import resolve_types
from tenure.aws.instancetype.static_prices import estimate_price, estimate_windows_license
from tenure.aws.settings import AwsSettings
from tenure.model.errors import Forbidden, TryLater
from tests.support.aws.builders import SETTINGS, ZONES, build_nodeclass, build_type_info, region, resolved_status
from tests.unit.aws.fakes import FakeClients, FakeClock, NoPlacementGroups, NoZonalShifts, all_responses, product

HOUR = 3600.0
A, B, C = ZONES


def build_offerings(clients: FakeClients, clock: FakeClock, settings: AwsSettings = SETTINGS) -> AwsOfferings:
    return AwsOfferings(
        clients,  # type: ignore[arg-type]
        settings,
        placement=NoPlacementGroups(),  # type: ignore[arg-type]
        zones=NoZonalShifts(),  # type: ignore[arg-type]
        reservations=Reservations(clients, settings),  # type: ignore[arg-type]
        clock=clock,
    )


async def run_pending_tasks() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def read_prices(
    *, spot: Mapping[tuple[str, str], float] | None = None, windows: ListedPrices | None = None
) -> PricesRead:
    return PricesRead(ListedPrices(spot=spot or {}), windows or ListedPrices(), complete=True)


async def prices_of(one: AwsOfferings, **status: Any) -> dict[str, float]:
    types = await one.instance_types(build_nodeclass(resolved_status(**status)))
    return {each.name: each.offerings[0].price for each in types}


async def test_region_is_read_once_and_refreshed_in_background_after_twelve_hours() -> None:
    clients, clock = FakeClients(all_responses("m5.large")), FakeClock()
    one = build_offerings(clients, clock)
    await asyncio.gather(one.region(), one.region())
    clock.now = 11 * HOUR
    first = await one.region()
    await run_pending_tasks()
    assert clients.call_counts["describe_instance_types"] == 1
    clock.now = 13 * HOUR
    assert await one.region() is first
    await run_pending_tasks()
    assert clients.call_counts["describe_instance_types"] == 2
    assert await one.region() is not first


async def test_failed_price_read_keeps_values_and_is_retried() -> None:
    clients, clock = FakeClients(all_responses("m5.large", price=0.5)), FakeClock()
    one = build_offerings(clients, clock)
    assert await prices_of(one) == {"m5.large": 0.5}
    clients.faults["get_products"] = TryLater("no")
    clock.now = 13 * HOUR
    await one.refresh()
    assert await prices_of(one) == {"m5.large": 0.5}
    del clients.faults["get_products"]
    clients.responses = all_responses("m5.large", price=0.7)
    clock.now += 700
    await one.refresh()
    assert await prices_of(one) == {"m5.large": 0.7}


@pytest.mark.parametrize("broken", [Forbidden("no"), {"NoName": "x"}])
async def test_failed_type_read_keeps_known_types_and_is_retried_later(broken: Forbidden | dict[str, str]) -> None:
    """Also for plans, which refresh first, and also if EC2's response is not as expected."""
    clients, clock = FakeClients(all_responses("m5.large")), FakeClock()
    one = build_offerings(clients, clock)
    first = await one.region()
    if isinstance(broken, Forbidden):
        clients.faults["describe_instance_types"] = broken
    else:
        clients.responses["describe_instance_types"].append(broken)
    clock.now = 13 * HOUR
    await one.refresh()
    clock.now = 14 * HOUR
    for _ in range(3):
        assert await one.region() is first
        await run_pending_tasks()
    assert (await one.catalogue([build_nodeclass(resolved_status())])).by_node_class.keys() == {"default"}
    assert clients.call_counts["describe_instance_types"] == 3


def test_instance_type_with_missing_fields_is_parsed() -> None:
    assert TypeInfo.from_ec2({"InstanceType": "new.large", "NetworkInfo": {"NetworkCards": [{}]}}).vcpus == 0


async def test_nodeclass_is_resolved_once_until_it_changes() -> None:
    one = build_offerings(FakeClients(all_responses("m5.large", "m6g.large")), FakeClock())
    status = resolved_status()
    first = await one.types_for(build_nodeclass(status))
    assert await one.types_for(build_nodeclass(status)) is first
    assert await one.types_for(build_nodeclass(status | {"subnets": status["subnets"][:1]})) is not first


def test_spot_price_without_history_is_on_demand_price() -> None:
    prices = PriceTable(ListedPrices({"m5.large": 0.1}))
    assert prices.price("m5.large", "us-west-2a", "spot") == 0.1
    known = prices.merge(read_prices(spot={("m5.large", "us-west-2a"): 0.03}))
    assert known.price("m5.large", "us-west-2a", "spot") == 0.03
    assert known.price("m5.large", "us-west-2b", "spot") is None
    assert known.price("m5.large", "us-west-2b", "on-demand") == 0.1
    assert known.price("x1.huge", "us-west-2b", "on-demand") is None


@pytest.mark.parametrize(
    ("windows", "on_demand", "spot"),
    [
        (ListedPrices({"m5.large": 0.188}, {("m5.large", A): 0.125}), 0.188, 0.125),
        (ListedPrices({"m5.large": 0.188}), 0.188, 0.03 + 2 * 0.046),
        (ListedPrices(), 0.1 + 2 * 0.046, 0.03 + 2 * 0.046),
    ],
)
def test_windows_price_includes_the_license(windows: ListedPrices, on_demand: float, spot: float) -> None:
    """`windows-price`: AWS's price if there is one, else the Linux price and a license by vCPU."""
    licenses = {"m5.large": estimate_windows_license(build_type_info("m5.large"))}
    linux = ListedPrices({"m5.large": 0.1}, {("m5.large", A): 0.03})
    prices = PriceTable(linux, windows_licenses=licenses).merge(read_prices(windows=windows))
    assert prices.price("m5.large", A, "on-demand", "windows") == pytest.approx(on_demand)
    assert prices.price("m5.large", A, "spot", "windows") == pytest.approx(spot)
    assert prices.price("m5.large", B, "spot", "windows") is None, "EC2 offers no spot capacity there"
    assert (prices.price("m5.large", A, "on-demand"), prices.price("m5.large", A, "spot")) == (0.1, 0.03)


def test_windows_price_of_an_estimate_includes_the_license() -> None:
    prices = PriceTable(estimates={"m5.large": 0.1}, windows_licenses={"m5.large": 0.092})
    assert prices.price("m5.large", A, "on-demand", "windows") == pytest.approx(0.192)
    assert prices.price("x1.huge", A, "on-demand", "windows") is None


@pytest.mark.parametrize(("family", "price"), [("Windows2022", 0.188), ("AL2023", 0.1), ("Custom", 0.1)])
def test_offerings_have_the_price_of_the_operating_system(family: str, price: float) -> None:
    of_region = region("m5.large", on_demand={"m5.large": 0.1})
    of_region = replace(of_region, prices=replace(of_region.prices, windows=ListedPrices({"m5.large": 0.188})))
    node_class = build_nodeclass(resolved_status(), amiFamily=family)
    (found,) = resolve_types(of_region, node_class, SETTINGS).types
    assert {one.price for one in found.offerings if one.capacity_type == labels.ON_DEMAND} == {price}


async def test_windows_prices_are_read_without_licenses_that_users_bring() -> None:
    clients = FakeClients(all_responses("m5.large", price=0.5))
    requested = list[dict[str, str]]()
    paginate = clients.paginate

    async def record(method: str, *arguments: Any, **request: Any) -> list[Any]:
        if method == "get_products":
            requested.append({one["Field"]: one["Value"] for one in request["Filters"]})
        return await paginate(method, *arguments, **request)

    clients.paginate = record  # type: ignore[method-assign]
    await build_offerings(clients, FakeClock()).region()
    read = {(one["operatingSystem"], one.get("licenseModel"), one["tenancy"]) for one in requested}
    assert read == {
        (os, license_model, tenancy)
        for os, license_model in (("Linux", None), ("Windows", "No License required"))
        for tenancy in ("Shared", "Dedicated")
    }


async def test_new_price_is_in_next_catalogue() -> None:
    clients, clock = FakeClients(all_responses("m5.large", price=0.5)), FakeClock()
    one = build_offerings(clients, clock)
    status = resolved_status()
    before = await one.catalogue([build_nodeclass(status)])
    clients.responses = all_responses("m5.large", price=0.7)
    clock.now = 13 * HOUR
    await one.refresh()
    after = await one.catalogue([build_nodeclass(status)])
    assert [each.by_node_class["default"][0].offerings[0].price for each in (before, after)] == [0.5, 0.7]


async def test_nodeclass_that_cannot_be_resolved_is_left_out_of_catalogue() -> None:
    one = build_offerings(FakeClients(all_responses("m5.large")), FakeClock())
    image = {"id": "ami-1", "requirements": [{"key": "any", "operator": "Gt", "values": ["many"]}]}
    bad, good = build_nodeclass(resolved_status() | {"amis": [image]}, "bad"), build_nodeclass(resolved_status())
    bad = bad.model_copy(update={"metadata": bad.metadata.model_copy(update={"name": "bad"})})
    assert (await one.catalogue([bad, good])).by_node_class.keys() == {"default"}


async def test_nodeclasses_with_other_tags_share_types() -> None:
    one = build_offerings(FakeClients(all_responses("m5.large", "m6g.large")), FakeClock())
    first = await one.types_for(build_nodeclass(resolved_status(), uid="a"))
    assert (
        await one.types_for(build_nodeclass(resolved_status(), uid="b", tags={"x": "y"}, userData="#!/bin/sh")) is first
    )
    assert await one.types_for(build_nodeclass(resolved_status(), uid="c", kubelet={"maxPods": 5})) is not first


async def test_type_without_price_is_listed_without_offerings() -> None:
    responses = all_responses("m5.large", "m6g.large")
    responses["get_products"] = [product("m5.large", 0.1), product("m6g.large", 0)]
    one = build_offerings(FakeClients(responses), FakeClock())
    types = {each.name: each for each in await one.instance_types(build_nodeclass(resolved_status()))}
    assert types["m6g.large"].offerings == ()
    assert {o.price for o in types["m5.large"].offerings} == {0.1}


async def test_zone_without_type_or_subnet_is_unavailable() -> None:
    responses = all_responses("m5.large", "m6g.large")
    rows = responses["describe_instance_type_offerings"]
    responses["describe_instance_type_offerings"] = [
        r for r in rows if r != {"InstanceType": "m5.large", "Location": A}
    ]
    one = build_offerings(FakeClients(responses), FakeClock())
    status = resolved_status()
    types = await one.instance_types(build_nodeclass(status | {"subnets": status["subnets"][:2]}))
    available = {each.name: {o.zone for o in each.offerings if o.available} for each in types}
    assert available == {"m5.large": {B}, "m6g.large": {A, B}}
    assert {o.zone for o in types[0].offerings} == {A, B, C}
    assert {each.name: each.labels[labels.ZONE] for each in types} == {"m5.large": (B,), "m6g.large": (A, B)}


@pytest.mark.parametrize("fields", [{"isolated_vpc": True}, {"region": "us-gov-west-1"}, {"region": "us-gov-east-1"}])
async def test_isolated_vpc_and_govcloud_read_no_price_list(fields: dict[str, Any]) -> None:
    settings = SETTINGS.model_copy(update=fields)
    clients = FakeClients(all_responses("m5.large", price=0.5))
    one = build_offerings(clients, FakeClock(), settings)
    assert await prices_of(one) == {"m5.large": estimate_price(build_type_info("m5.large"), settings.region)}
    assert clients.call_counts["get_products"] == 0


async def test_china_prices_are_in_yuan() -> None:
    clients = FakeClients({"get_products": [product("m5.large", 0.9, "CNY"), product("m5.xlarge", 0.1, "USD")]})
    settings = SETTINGS.model_copy(update={"region": "cn-north-1"})
    assert await read_on_demand(clients, settings.region, LINUX) == {"m5.large": 0.9}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("region", "pricing_region"),
    [
        ("us-west-2", "us-east-1"),
        ("eu-west-3", "eu-central-1"),
        ("cn-north-1", "cn-northwest-1"),
    ],
)
def test_price_list_is_read_in_its_region(region: str, pricing_region: str) -> None:
    assert AwsClients(SETTINGS.model_copy(update={"region": region})).pricing.meta.region_name == pricing_region


async def test_empty_price_list_is_read_again_soon() -> None:
    responses = all_responses("m5.large", price=0.5)
    clients, clock = FakeClients(responses | {"get_products": []}), FakeClock()
    one = build_offerings(clients, clock)
    assert await prices_of(one) == {"m5.large": estimate_price(build_type_info("m5.large"), SETTINGS.region)}
    clients.responses, clock.now = responses, 700
    await one.refresh()
    assert await prices_of(one) == {"m5.large": 0.5}


@pytest.mark.parametrize("odd", ["N/A", "", "nan", "inf", "-1"])
async def test_price_that_is_no_number_does_not_affect_others(odd: str) -> None:
    clients = FakeClients({"get_products": [product("m5.large", odd), product("m5.xlarge", 0.1)]})
    assert await read_on_demand(clients, SETTINGS.region, LINUX) == {"m5.xlarge": 0.1}  # type: ignore[arg-type]


async def test_latest_spot_price_per_zone_counts() -> None:
    def row(zone: str, hour: int, price: str, product: str = "Linux/UNIX") -> dict[str, Any]:
        found = {"InstanceType": "m5.large", "AvailabilityZone": zone, "SpotPrice": price}
        return {**found, "Timestamp": datetime(2026, 1, 1, hour, tzinfo=UTC), "ProductDescription": product}

    rows = [row(A, 1, "0.02"), row(A, 3, "0.03"), row(A, 2, "0.01"), row(B, 1, "0"), row(B, 2, "N/A"), row(B, 2, "NaN")]
    windows = [row(A, 4, "0.11", "Windows (Amazon VPC)"), row(A, 3, "0.12", "Windows")]
    clients = FakeClients({"describe_spot_price_history": [*rows, *windows]})
    assert await read_spot(clients) == ({("m5.large", A): 0.03}, {("m5.large", A): 0.11})  # type: ignore[arg-type]


def test_zone_missing_in_later_history_keeps_its_price() -> None:
    prices = PriceTable().merge(read_prices(spot={("m5.large", A): 0.03, ("m5.large", B): 0.04}))
    later = prices.merge(read_prices(spot={("m5.large", A): 0.05}))
    assert (later.price("m5.large", A, "spot"), later.price("m5.large", B, "spot")) == (0.05, 0.04)


async def test_prices_changed_during_resolution_are_used_afterwards() -> None:
    clients, clock = FakeClients(all_responses("m5.large", price=0.5)), FakeClock()
    one = build_offerings(clients, clock)
    await one.region()

    class RefreshingPlacement:
        """Refreshes the region while the placement group is resolved."""

        async def resolve(self, node_class: object) -> None:
            if clock.now == 0:
                clients.responses, clock.now = all_responses("m5.large", price=0.7), 13 * HOUR
                await one.refresh()

    one._placement = RefreshingPlacement()  # type: ignore[assignment]
    await prices_of(one)
    assert await prices_of(one) == {"m5.large": 0.7}
