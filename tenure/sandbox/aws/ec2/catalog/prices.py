"""Instance prices close to AWS's public list for us-west-2, in US dollars per hour, and DescribeSpotPriceHistory.

Prices are the same in every run. Windows costs 0.046 dollars per vCPU and hour more than Linux. Most families have one
price per vCPU; accelerated and burstable types are listed individually. The price of a type in neither table is
estimated from vCPUs, memory, local disks, network and accelerators. Spot prices of Linux are 28 to 42 % of on-demand
prices. The history has the current price of each type and zone, as of the hour.
"""

from __future__ import annotations

import datetime as dt
import re
import zlib
from functools import cache
from typing import Any

from tenure.sandbox.aws.ec2.call import Call
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types, offerings
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate
from tenure.sandbox.aws.wire.responses import dry_run_ok, invalid_value

PER_VCPU = {
    "a1": 0.0255, "c3": 0.0525, "c4": 0.0498, "c5": 0.0425, "c5a": 0.0385, "c5ad": 0.043, "c5d": 0.048,
    "c5n": 0.054, "c6a": 0.03825, "c6g": 0.034, "c6gd": 0.0384, "c6gn": 0.0432, "c6i": 0.0425, "c6id": 0.0504,
    "c6in": 0.0567, "c7a": 0.05132, "c7g": 0.03625, "c7gd": 0.04536, "c7gn": 0.0624, "c7i": 0.044625,
    "c7i-flex": 0.0423938, "c8g": 0.03988, "c8gd": 0.049, "c8gn": 0.05925, "c8i": 0.04686, "c8i-flex": 0.04452,
    "c8a": 0.05388, "d2": 0.1725, "d3": 0.1248, "d3en": 0.1315, "h1": 0.0585, "i2": 0.2132, "i3": 0.078,
    "i3en": 0.113, "i4g": 0.0772, "i4i": 0.0858, "i7i": 0.0944, "i7ie": 0.12995, "i8g": 0.0858, "im4gn": 0.09095,
    "is4gen": 0.1152, "m1": 0.0875, "m2": 0.1225, "m3": 0.0665, "m4": 0.05, "m5": 0.048, "m5a": 0.043,
    "m5ad": 0.0515, "m5d": 0.0565, "m5dn": 0.068, "m5n": 0.0595, "m5zn": 0.0826, "m6a": 0.0432, "m6g": 0.0385,
    "m6gd": 0.0452, "m6i": 0.048, "m6id": 0.05933, "m6idn": 0.0795, "m6in": 0.0696, "m7a": 0.05796, "m7g": 0.0408,
    "m7gd": 0.05335, "m7i": 0.0504, "m7i-flex": 0.04788, "m8a": 0.06086, "m8g": 0.04488, "m8gd": 0.05869,
    "m8i": 0.05292, "m8i-flex": 0.05027, "m8azn": 0.1038, "r3": 0.083,
    "r4": 0.0665, "r5": 0.063, "r5a": 0.0565, "r5ad": 0.0655,
    "r5b": 0.0745, "r5d": 0.072, "r5dn": 0.0835, "r5n": 0.0745, "r6a": 0.0567, "r6g": 0.0504, "r6gd": 0.0576,
    "r6i": 0.063, "r6id": 0.0756, "r6idn": 0.0977, "r6in": 0.08718, "r7a": 0.07608, "r7g": 0.05355, "r7gd": 0.06805,
    "r7i": 0.06615, "r7iz": 0.093, "r8a": 0.07988, "r8g": 0.05892, "r8gd": 0.07345, "r8i": 0.06946,
    "r8i-flex": 0.06599, "x1": 0.10422, "x1e": 0.2085, "x2gd": 0.0835, "x2idn": 0.10422, "x2iedn": 0.20844,
    "x2iezn": 0.2085, "x8g": 0.0977, "z1d": 0.093,
}  # fmt: skip

BY_TYPE = {
    "t1.micro": 0.02, "t2.nano": 0.0058, "t2.micro": 0.0116, "t2.small": 0.023, "t2.medium": 0.0464,
    "t2.large": 0.0928, "t2.xlarge": 0.1856, "t2.2xlarge": 0.3712,
    "t3.nano": 0.0052, "t3.micro": 0.0104, "t3.small": 0.0208, "t3.medium": 0.0416, "t3.large": 0.0832,
    "t3.xlarge": 0.1664, "t3.2xlarge": 0.3328,
    "t3a.nano": 0.0047, "t3a.micro": 0.0094, "t3a.small": 0.0188, "t3a.medium": 0.0376, "t3a.large": 0.0752,
    "t3a.xlarge": 0.1504, "t3a.2xlarge": 0.3008,
    "t4g.nano": 0.0042, "t4g.micro": 0.0084, "t4g.small": 0.0168, "t4g.medium": 0.0336, "t4g.large": 0.0672,
    "t4g.xlarge": 0.1344, "t4g.2xlarge": 0.2688,
    "g4dn.xlarge": 0.526, "g4dn.2xlarge": 0.752, "g4dn.4xlarge": 1.204, "g4dn.8xlarge": 2.176,
    "g4dn.12xlarge": 3.912, "g4dn.16xlarge": 4.352, "g4dn.metal": 7.824,
    "g5.xlarge": 1.006, "g5.2xlarge": 1.212, "g5.4xlarge": 1.624, "g5.8xlarge": 2.448, "g5.12xlarge": 5.672,
    "g5.16xlarge": 4.096, "g5.24xlarge": 8.144, "g5.48xlarge": 16.288,
    "g5g.xlarge": 0.42, "g5g.2xlarge": 0.556, "g5g.4xlarge": 0.828, "g5g.8xlarge": 1.372, "g5g.16xlarge": 2.744,
    "g5g.metal": 2.744,
    "g6.xlarge": 0.8048, "g6.2xlarge": 0.9776, "g6.4xlarge": 1.3232, "g6.8xlarge": 2.0144, "g6.12xlarge": 4.6016,
    "g6.16xlarge": 3.3968, "g6.24xlarge": 6.6752, "g6.48xlarge": 13.3504,
    "g6e.xlarge": 1.861, "g6e.2xlarge": 2.24208, "g6e.4xlarge": 3.00424, "g6e.8xlarge": 4.52856,
    "g6e.12xlarge": 10.49264, "g6e.16xlarge": 7.57719, "g6e.24xlarge": 15.06559, "g6e.48xlarge": 30.13118,
    "g6f.large": 0.202, "g6f.xlarge": 0.242, "g6f.2xlarge": 0.484, "g6f.4xlarge": 0.968,
    "gr6.4xlarge": 1.5392, "gr6.8xlarge": 2.4464, "gr6f.4xlarge": 1.184,
    "p3dn.24xlarge": 31.212, "p4d.24xlarge": 21.9576, "p4de.24xlarge": 27.4471, "p5.4xlarge": 6.88,
    "p5.48xlarge": 55.04, "p5e.48xlarge": 59.7, "p5en.48xlarge": 63.296, "p6-b200.48xlarge": 113.9328,
    "p6-b300.48xlarge": 142.416,
    "inf1.xlarge": 0.228, "inf1.2xlarge": 0.362, "inf1.6xlarge": 1.18, "inf1.24xlarge": 4.721,
    "inf2.xlarge": 0.7582, "inf2.8xlarge": 1.96786, "inf2.24xlarge": 6.49063, "inf2.48xlarge": 12.98127,
    "trn1.2xlarge": 1.34375, "trn1.32xlarge": 21.5, "trn1n.32xlarge": 24.78, "trn2.3xlarge": 2.235,
    "trn2.48xlarge": 35.7608, "trn2u.48xlarge": 35.7608, "dl2q.24xlarge": 8.9194, "vt1.3xlarge": 0.65,
    "vt1.6xlarge": 1.3, "vt1.24xlarge": 5.2, "f2.6xlarge": 1.98, "f2.12xlarge": 3.96, "f2.48xlarge": 15.84,
}  # fmt: skip

WINDOWS_PER_VCPU = 0.046
# Families with more network or volume bandwidth, by the letters after the generation.
FAST_NETWORK = re.compile(r"[cmr]\d+[a-z]*[nb][a-z]*\.")


@cache
def on_demand_price(instance_type: str) -> float | None:
    """Dollars per hour, or None for a type that does not exist."""
    facts = all_types().get(instance_type)
    if facts is None:
        return None
    listed = BY_TYPE.get(instance_type)
    if listed is not None:
        return listed
    rate = PER_VCPU.get(instance_type.split(".")[0])
    cpus = facts["VCpuInfo"]["DefaultVCpus"]
    return round(rate * cpus if rate is not None else _estimate_price(instance_type, facts), 5)


@cache
def spot_price(instance_type: str, zone: str) -> float | None:
    """Dollars per hour in a zone, or None if the type does not exist or is not available as spot."""
    base = on_demand_price(instance_type)
    if base is None or "spot" not in all_types()[instance_type]["SupportedUsageClasses"]:
        return None
    family = 0.28 + _hash_fraction(instance_type.split(".")[0]) * 0.10
    return round(base * (family + _hash_fraction(f"{instance_type}/{zone}") * 0.04), 6)


def windows_license(instance_type: str) -> float | None:
    """Dollars per hour that Windows adds to the price, or None for a type that does not run Windows."""
    facts = all_types()[instance_type]
    if "x86_64" not in facts["ProcessorInfo"]["SupportedArchitectures"]:
        return None
    return round(int(facts["VCpuInfo"]["DefaultVCpus"]) * WINDOWS_PER_VCPU, 5)


def _hash_fraction(text: str) -> float:
    return zlib.crc32(text.encode()) % 1000 / 1000


def _estimate_price(name: str, facts: dict[str, Any]) -> float:
    """Rates close to the listed families: 4 to 5 cents per vCPU with its memory, less for arm64, more for faster
    networks, and accelerators by their memory.
    """
    cpus = facts["VCpuInfo"]["DefaultVCpus"]
    gib = facts["MemoryInfo"]["SizeInMiB"] / 1024
    disks = facts.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)
    gpus_gib = facts.get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0) / 1024
    arm = "arm64" in facts["ProcessorInfo"]["SupportedArchitectures"]
    network = 1.3 if FAST_NETWORK.match(name) else 1.0
    return float((cpus * 0.0285 + gib * 0.0044) * (0.9 if arm else 1.0) * network + disks * 0.00012 + gpus_gib * 0.035)


LINUX_PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
WINDOWS_PRODUCTS = ("Windows", "Windows (Amazon VPC)")
FILTERS = frozenset(
    {"availability-zone", "availability-zone-id", "instance-type", "product-description", "spot-price", "timestamp"}
)
Row = tuple[str, str, str, float]


def describe_spot_price_history(call: Call) -> dict[str, Any]:
    request = call.params
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    since, until = _parse_time(request.get("StartTime")), _parse_time(request.get("EndTime"))
    if since and until and since > until:
        raise invalid_value("StartTime must not be after EndTime")
    now = call.environment.now()
    stamp = now.replace(minute=0, second=0, microsecond=0)
    rows = [row for row in _price_rows(call) if not filters or matches_filters(filters, _filter_facts(row))]
    page_items, token = paginate(rows, request, lambda r: r[:3], low=1, high=10000, unpaged=1000)
    return {"SpotPriceHistory": [_price_view(row, stamp) for row in page_items], "NextToken": token}


def _parse_time(text: str | None) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
    except ValueError:
        raise invalid_value(f"Invalid value '{text}' for a time.") from None


def _price_rows(call: Call) -> list[Row]:
    request, region = call.params, call.environment.region
    instance_types = frozenset(request.get("InstanceTypes") or ())
    zone = request.get("AvailabilityZone")
    wanted = request.get("ProductDescriptions") or (*LINUX_PRODUCTS, *WINDOWS_PRODUCTS)
    linux = next((product for product in LINUX_PRODUCTS if product in wanted), None)
    windows = next((product for product in WINDOWS_PRODUCTS if product in wanted), None)
    rows = []
    for name, where in offerings(region, "availability-zone"):
        price = spot_price(name, where)
        if price is not None and (not instance_types or name in instance_types) and zone in (None, where):
            rows += [(name, where, linux, price)] if linux else []
            license_price = windows_license(name) if windows else None
            rows += [(name, where, windows, price + license_price)] if windows and license_price is not None else []
    return rows


def _filter_facts(row: Row) -> dict[str, list[str]]:
    return {
        "instance-type": [row[0]],
        "availability-zone": [row[1]],
        "product-description": [row[2]],
        "spot-price": [f"{row[3]:.6f}"],
    }


def _price_view(row: Row, stamp: dt.datetime) -> dict[str, Any]:
    return {
        "InstanceType": row[0],
        "AvailabilityZone": row[1],
        "ProductDescription": row[2],
        "SpotPrice": f"{row[3]:.6f}",
        "Timestamp": stamp,
    }
