"""When types and prices are read again, and what a reading that fails leaves."""

import asyncio
from typing import Any

from aws.offerings import AwsOfferings
from aws.price_estimates import estimate
from aws.prices import PriceBook, PricesRead
from aws.reservations import Reservations
from aws.settings import AwsSettings
from model.faults import TryLater
from tests.aws.builders import SETTINGS, info, node_class, resolved_status
from tests.aws.fakes import FakeClients, NoGroups, NoShifts, all_answers

HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def offerings(clients: FakeClients, clock: Clock, settings: AwsSettings = SETTINGS) -> AwsOfferings:
    return AwsOfferings(
        clients,  # type: ignore[arg-type]
        settings,
        placement=NoGroups(),  # type: ignore[arg-type]
        zones=NoShifts(),  # type: ignore[arg-type]
        reservations=Reservations(clients, settings),  # type: ignore[arg-type]
        clock=clock,
    )


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def prices_of(one: AwsOfferings, **status: Any) -> dict[str, float]:
    types = await one.instance_types(node_class(resolved_status(**status)))
    return {each.name: each.offerings[0].price for each in types}


async def test_read_once_and_again_after_twelve_hours_beside_those_who_ask() -> None:
    clients, clock = FakeClients(all_answers("m5.large")), Clock()
    one = offerings(clients, clock)
    await asyncio.gather(one.region(), one.region())
    clock.now = 11 * HOUR
    first = await one.region()
    await settled()
    assert clients.asked["describe_instance_types"] == 1
    clock.now = 13 * HOUR
    assert await one.region() is first
    await settled()
    assert clients.asked["describe_instance_types"] == 2
    assert await one.region() is not first


async def test_prices_that_fail_are_asked_for_again_soon_and_keep_their_last_value() -> None:
    clients, clock = FakeClients(all_answers("m5.large", price=0.5)), Clock()
    one = offerings(clients, clock)
    assert await prices_of(one) == {"m5.large": 0.5}
    clients.faults["get_products"] = TryLater("no")
    clock.now = 13 * HOUR
    await one.refresh()
    assert await prices_of(one) == {"m5.large": 0.5}
    del clients.faults["get_products"]
    clients.answers = all_answers("m5.large", price=0.7)
    clock.now += 700
    await one.refresh()
    assert await prices_of(one) == {"m5.large": 0.7}


async def test_types_that_fail_later_leave_the_known_ones() -> None:
    clients, clock = FakeClients(all_answers("m5.large")), Clock()
    one = offerings(clients, clock)
    first = await one.region()
    clients.faults["describe_instance_types"] = TryLater("no")
    clock.now = 13 * HOUR
    assert await one.region() is first
    await settled()
    assert await one.region() is first


async def test_without_a_way_out_no_price_list_is_asked_for() -> None:
    clients = FakeClients(all_answers("m5.large", price=0.5))
    one = offerings(clients, Clock(), SETTINGS.model_copy(update={"isolated_vpc": True}))
    assert await prices_of(one) == {"m5.large": estimate(info("m5.large"))}
    assert clients.asked["get_products"] == 0


async def test_one_class_is_resolved_once_until_it_changes() -> None:
    one = offerings(FakeClients(all_answers("m5.large", "m6g.large")), Clock())
    status = resolved_status()
    first = await one.resolved(node_class(status))
    assert await one.resolved(node_class(status)) is first
    assert await one.resolved(node_class(status | {"subnets": status["subnets"][:1]})) is not first


def test_spot_without_a_history_costs_as_much_as_on_demand() -> None:
    book = PriceBook({"m5.large": 0.1})
    assert book.price("m5.large", "us-west-2a", "spot") == 0.1
    known = book.merged(PricesRead({}, {("m5.large", "us-west-2a"): 0.03}, complete=True))
    assert known.price("m5.large", "us-west-2a", "spot") == 0.03
    assert known.price("m5.large", "us-west-2b", "spot") is None
    assert known.price("m5.large", "us-west-2b", "on-demand") == 0.1
    assert known.price("x1.huge", "us-west-2b", "on-demand") is None
