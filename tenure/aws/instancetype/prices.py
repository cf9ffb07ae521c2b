"""Prices per hour in US dollars (in China: yuan): on-demand prices from the price list, spot prices from the history.

Without a price list, static estimates apply. Without a spot history, spot has the on-demand price. A type that the
price list lacks, such as a type in preview, has no price and cannot be launched.
"""

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog

from tenure.apis import labels
from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.clock import utc_now
from tenure.model.errors import Fault

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_PRODUCTS: Final = (("Shared", "Compute Instance"), ("Dedicated", "Compute Instance (bare metal)"))
_COMMON: Final = {
    "serviceCode": "AmazonEC2",
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_SPOT_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Empty maps: not read yet, or not available."""

    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(instance type, zone) to the latest price."""
    estimates: Mapping[str, float] = field(default_factory=dict)

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """None if unknown: such an offering is not launched."""
        if capacity_type == labels.SPOT and self.spot:
            return self.spot.get((instance_type, zone))
        return (self.on_demand or self.estimates).get(instance_type)

    def merge(self, read: "PricesRead") -> "PriceTable":
        """Update prices; a price that was not read keeps its last value."""
        return PriceTable({**self.on_demand, **read.on_demand}, {**self.spot, **read.spot}, self.estimates)


@dataclass(frozen=True, slots=True)
class PricesRead:
    """Result of a refresh; incomplete if a query failed or returned no on-demand price."""

    on_demand: Mapping[str, float]
    spot: Mapping[tuple[str, str], float]
    complete: bool


async def read_prices(clients: AwsClients, settings: AwsSettings) -> PricesRead:
    """Read both kinds concurrently. A fault of one is logged and does not affect the other."""
    has_price_list = price_list_is_there(settings)
    on_demand, spot = await asyncio.gather(
        _or_none(read_on_demand(clients, settings.region)) if has_price_list else _no_prices(),
        _or_none(read_spot(clients)),
    )
    return PricesRead(on_demand or {}, spot or {}, complete=bool(on_demand or not has_price_list) and spot is not None)


def price_list_is_there(settings: AwsSettings) -> bool:
    """Whether the price list API is reachable: not in an isolated VPC, and not in GovCloud."""
    return not settings.isolated_vpc and not settings.region.startswith("us-gov")


async def read_on_demand(clients: AwsClients, region: str) -> dict[str, float]:
    """pricing:GetProducts, for shared tenancy and bare metal. Raises model.faults."""
    currency = "CNY" if region.startswith("cn-") else "USD"
    found: dict[str, float] = {}
    for tenancy, family in _PRODUCTS:
        filters = _COMMON | {"regionCode": region, "tenancy": tenancy, "productFamily": family}
        rows = await clients.paginate(
            clients.pricing.get_products,
            "PriceList",
            lambda product: _parse_product(product, currency),
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in filters.items()],
            PaginationConfig={"PageSize": 100},
        )
        found.update((name, price) for name, price in rows if price)
    return found


async def read_spot(clients: AwsClients, now: datetime | None = None) -> dict[tuple[str, str], float]:
    """ec2:DescribeSpotPriceHistory: the current price of each type and zone. Raises model.faults."""
    rows = await clients.paginate(
        clients.ec2.describe_spot_price_history,
        "SpotPriceHistory",
        _spot_row,
        ProductDescriptions=list(_SPOT_PRODUCTS),
        StartTime=now or utc_now(),
        PaginationConfig={"PageSize": 1000},
    )
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    for offering_key, at, price in rows:
        if price and (offering_key not in latest or latest[offering_key][0] < at):
            latest[offering_key] = (at, price)
    return {offering_key: price for offering_key, (_, price) in latest.items()}


async def _or_none(reading: Awaitable[T]) -> T | None:
    try:
        return await reading
    except Fault as fault:
        _log.warning("failed to read prices, using the last known ones", reason=fault.message)
        return None


async def _no_prices() -> dict[str, float]:
    return {}


def _spot_row(row: Mapping[str, Any]) -> tuple[tuple[str, str], datetime, float]:
    return (row["InstanceType"], row["AvailabilityZone"]), row["Timestamp"], float(row["SpotPrice"])


def _parse_product(product: Any, currency: str) -> tuple[str, float]:
    """(instance type, price per hour); zero if the product has no price in this currency."""
    parsed = json.loads(product)
    name = parsed.get("product", {}).get("attributes", {}).get("instanceType", "")
    for term in parsed.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            price = float(dimension.get("pricePerUnit", {}).get(currency, 0) or 0)
            if price:
                return name, price
    return name, 0.0
