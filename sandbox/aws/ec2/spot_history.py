"""DescribeSpotPriceHistory from the price table: the present price of every type and zone, as of the hour."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sandbox.aws.ec2 import prices
from sandbox.aws.ec2.call import Call
from sandbox.aws.ec2.filters import accepts, compile_filters
from sandbox.aws.ec2.paging import page
from sandbox.aws.ec2.types_data import offerings
from sandbox.aws.wire.errors import dry_run_ok, invalid_value

PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
FILTERS = frozenset(
    {"availability-zone", "availability-zone-id", "instance-type", "product-description", "spot-price", "timestamp"}
)
Row = tuple[str, str, str, float]


def describe_spot_price_history(call: Call) -> dict[str, Any]:
    request = call.params
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    since, until = _moment(request.get("StartTime")), _moment(request.get("EndTime"))
    if since and until and since > until:
        raise invalid_value("StartTime must not be after EndTime")
    now = call.world.now()
    stamp = now.replace(minute=0, second=0, microsecond=0)
    rows = [row for row in _rows(call) if not filters or accepts(filters, _facts(row))]
    shown, token = page(rows, request, lambda r: r[:3], low=1, high=10000, unpaged=1000)
    return {"SpotPriceHistory": [_view(row, stamp) for row in shown], "NextToken": token}


def _moment(text: str | None) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
    except ValueError:
        raise invalid_value(f"Invalid value '{text}' for a time.") from None


def _rows(call: Call) -> list[Row]:
    request, region = call.params, call.world.region
    wanted = frozenset(request.get("InstanceTypes") or ())
    zone = request.get("AvailabilityZone")
    products = [p for p in PRODUCTS if p in (request.get("ProductDescriptions") or PRODUCTS)][:1]
    rows = []
    for name, where in offerings(region, "availability-zone"):
        price = prices.spot(name, where)
        if price is not None and (not wanted or name in wanted) and zone in (None, where):
            rows += [(name, where, product, price) for product in products]
    return rows


def _facts(row: Row) -> dict[str, list[str]]:
    return {
        "instance-type": [row[0]],
        "availability-zone": [row[1]],
        "product-description": [row[2]],
        "spot-price": [f"{row[3]:.6f}"],
    }


def _view(row: Row, stamp: dt.datetime) -> dict[str, Any]:
    return {
        "InstanceType": row[0],
        "AvailabilityZone": row[1],
        "ProductDescription": row[2],
        "SpotPrice": f"{row[3]:.6f}",
        "Timestamp": stamp,
    }
