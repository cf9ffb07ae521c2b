"""Prices per hour in US dollars (in China: yuan): on-demand prices from the price list, spot prices from the history.

Without a price list, static estimates apply. Without a spot history, spot has the on-demand price. A type that the
price list lacks, such as a type in preview, has no price and cannot be launched. A Windows price includes the license.
If AWS lists none, it is the Linux price plus `static_prices.estimate_windows_license`.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field, replace
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
_SpotRow = tuple[bool, tuple[str, str], datetime, float]
"""Whether it is for Windows, (instance type, zone), time and price."""

_PRODUCTS: Final = (("Shared", "Compute Instance"), ("Dedicated", "Compute Instance (bare metal)"))
_COMMON: Final = {
    "serviceCode": "AmazonEC2",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
LINUX: Final = {"operatingSystem": "Linux"}
WINDOWS: Final = {"operatingSystem": "Windows", "licenseModel": "No License required"}
"""Filters of the price list. The license model excludes prices for licenses that the user brings."""
_SPOT_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)", "Windows", "Windows (Amazon VPC)")


@dataclass(frozen=True, slots=True)
class ListedPrices:
    """Prices of one operating system as AWS lists them. Empty maps: not read yet, or not available."""

    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(instance type, zone) to the latest price."""

    def merge(self, read: "ListedPrices") -> "ListedPrices":
        """Update prices; a price that was not read keeps its last value."""
        return ListedPrices({**self.on_demand, **read.on_demand}, {**self.spot, **read.spot})


@dataclass(frozen=True, slots=True)
class PriceTable:
    linux: ListedPrices = field(default_factory=ListedPrices)
    windows: ListedPrices = field(default_factory=ListedPrices)
    estimates: Mapping[str, float] = field(default_factory=dict)
    """On-demand prices of Linux."""
    windows_licenses: Mapping[str, float] = field(default_factory=dict)
    """Estimates, in the same unit."""

    def price(self, instance_type: str, zone: str, capacity_type: str, os: str = "linux") -> float | None:
        """None if unknown: such an offering is not launched."""
        if os == "windows":
            return self._windows_price(instance_type, zone, capacity_type)
        if capacity_type == labels.SPOT and self.linux.spot:
            return self.linux.spot.get((instance_type, zone))
        return (self.linux.on_demand or self.estimates).get(instance_type)

    def _windows_price(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        listed = (
            self.windows.spot.get((instance_type, zone))
            if capacity_type == labels.SPOT
            else self.windows.on_demand.get(instance_type)
        )
        if listed is not None:
            return listed
        linux = self.price(instance_type, zone, capacity_type)
        return None if linux is None else linux + self.windows_licenses.get(instance_type, 0.0)

    def merge(self, read: "PricesRead") -> "PriceTable":
        """Update prices; a price that was not read keeps its last value."""
        return replace(self, linux=self.linux.merge(read.linux), windows=self.windows.merge(read.windows))


@dataclass(frozen=True, slots=True)
class PricesRead:
    """Result of a refresh; incomplete if a query failed or returned no on-demand price of Linux."""

    linux: ListedPrices
    windows: ListedPrices
    complete: bool


async def read_prices(clients: AwsClients, settings: AwsSettings) -> PricesRead:
    """Read all kinds concurrently. A fault of one is logged and does not affect the others."""
    has_price_list = price_list_is_there(settings)
    linux, windows, spot = await asyncio.gather(
        _or_none(read_on_demand(clients, settings.region, LINUX)) if has_price_list else _no_prices(),
        _or_none(read_on_demand(clients, settings.region, WINDOWS)) if has_price_list else _no_prices(),
        _or_none(read_spot(clients)),
    )
    linux_spot, windows_spot = spot or ({}, {})
    return PricesRead(
        ListedPrices(linux or {}, linux_spot),
        ListedPrices(windows or {}, windows_spot),
        complete=bool(linux or not has_price_list) and windows is not None and spot is not None,
    )


def price_list_is_there(settings: AwsSettings) -> bool:
    """Whether the price list API is reachable: not in an isolated VPC, and not in GovCloud."""
    return not settings.isolated_vpc and not settings.region.startswith("us-gov")


async def read_on_demand(clients: AwsClients, region: str, product: Mapping[str, str]) -> dict[str, float]:
    """pricing:GetProducts, for shared tenancy and bare metal. `product`: LINUX or WINDOWS. Raises model.faults."""
    currency = "CNY" if region.startswith("cn-") else "USD"
    found: dict[str, float] = {}
    for tenancy, family in _PRODUCTS:
        filters = {**_COMMON, **product, "regionCode": region, "tenancy": tenancy, "productFamily": family}
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


async def read_spot(clients: AwsClients) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """ec2:DescribeSpotPriceHistory: the current prices of each type and zone, of Linux and of Windows. Raises
    model.faults."""
    rows = await clients.paginate(
        clients.ec2.describe_spot_price_history,
        "SpotPriceHistory",
        _spot_row,
        ProductDescriptions=list(_SPOT_PRODUCTS),
        StartTime=utc_now(),
        PaginationConfig={"PageSize": 1000},
    )
    return _latest_prices(rows, windows=False), _latest_prices(rows, windows=True)


def _latest_prices(rows: Iterable[_SpotRow], *, windows: bool) -> dict[tuple[str, str], float]:
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    for is_windows, offering_key, at, price in rows:
        if price and is_windows == windows and (offering_key not in latest or latest[offering_key][0] < at):
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


def _spot_row(row: Mapping[str, Any]) -> _SpotRow:
    is_windows = str(row["ProductDescription"]).startswith("Windows")
    return is_windows, (row["InstanceType"], row["AvailabilityZone"]), row["Timestamp"], _parse_price(row["SpotPrice"])


def _parse_product(product: Any, currency: str) -> tuple[str, float]:
    """(instance type, price per hour); zero if the product has no price in this currency."""
    parsed = json.loads(product)
    name = parsed.get("product", {}).get("attributes", {}).get("instanceType", "")
    for term in parsed.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            if price := _parse_price(dimension.get("pricePerUnit", {}).get(currency)):
                return name, price
    return name, 0.0


def _parse_price(text: Any) -> float:
    """Zero for anything that is not a price. As in Karpenter, such a row does not affect the others."""
    try:
        price = float(text)
    except (TypeError, ValueError):
        return 0.0
    return price if 0 < price < math.inf else 0.0
