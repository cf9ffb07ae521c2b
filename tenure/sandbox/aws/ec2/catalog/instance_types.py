"""DescribeInstanceTypes and DescribeInstanceTypeOfferings, from moto's catalogue of types and their zones.

The XML of each type is rendered once, and whole pages are cached as bytes.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from tenure.sandbox.aws.ec2.call import Call, values_at
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, invalid_value
from tenure.sandbox.aws.wire.xml import Raw, action_response, named_shape


@cache
def all_types() -> dict[str, dict[str, Any]]:
    """Facts by type name, with the member names of DescribeInstanceTypes, sorted by name."""
    return {name: INSTANCE_TYPES[name] for name in sorted(INSTANCE_TYPES)}


@cache
def offerings(region: str, location_type: str) -> tuple[tuple[str, str], ...]:
    """Sorted (type, location) pairs of a region. They include types without facts, like the real lists."""
    rows = INSTANCE_TYPE_OFFERINGS.get(location_type, {}).get(region, ())
    return tuple(sorted((row["InstanceType"], row["Location"]) for row in rows))


@cache
def offered_zones(region: str) -> dict[str, frozenset[str]]:
    zones: dict[str, set[str]] = {}
    for name, zone in offerings(region, "availability-zone"):
        zones.setdefault(name, set()).add(zone)
    return {name: frozenset(found) for name, found in zones.items()}


def vcpus(name: str) -> int:
    facts = all_types().get(name)
    return int(facts["VCpuInfo"]["DefaultVCpus"]) if facts else 0


def architectures(name: str) -> list[str]:
    facts = all_types().get(name)
    return list(facts["ProcessorInfo"]["SupportedArchitectures"]) if facts else []


def interface_slots(name: str) -> int:
    """Maximum number of network interfaces of the type, over all network cards."""
    network = all_types()[name].get("NetworkInfo", {})
    cards = sum(card.get("MaximumNetworkInterfaces", 0) for card in network.get("NetworkCards", ()))
    return int(cards or network.get("MaximumNetworkInterfaces", 1))


PATHS = {
    "auto-recovery-supported": "AutoRecoverySupported",
    "bare-metal": "BareMetal",
    "burstable-performance-supported": "BurstablePerformanceSupported",
    "current-generation": "CurrentGeneration",
    "ebs-info.ebs-optimized-support": "EbsInfo.EbsOptimizedSupport",
    "ebs-info.encryption-support": "EbsInfo.EncryptionSupport",
    "ebs-info.nvme-support": "EbsInfo.NvmeSupport",
    "free-tier-eligible": "FreeTierEligible",
    "hibernation-supported": "HibernationSupported",
    "hypervisor": "Hypervisor",
    "instance-storage-info.total-size-in-gb": "InstanceStorageInfo.TotalSizeInGB",
    "instance-storage-info.nvme-support": "InstanceStorageInfo.NvmeSupport",
    "instance-storage-supported": "InstanceStorageSupported",
    "instance-type": "InstanceType",
    "memory-info.size-in-mib": "MemoryInfo.SizeInMiB",
    "network-info.efa-supported": "NetworkInfo.EfaSupported",
    "network-info.ena-support": "NetworkInfo.EnaSupport",
    "network-info.encryption-in-transit-supported": "NetworkInfo.EncryptionInTransitSupported",
    "network-info.ipv4-addresses-per-interface": "NetworkInfo.Ipv4AddressesPerInterface",
    "network-info.ipv6-supported": "NetworkInfo.Ipv6Supported",
    "network-info.maximum-network-cards": "NetworkInfo.MaximumNetworkCards",
    "network-info.maximum-network-interfaces": "NetworkInfo.MaximumNetworkInterfaces",
    "network-info.network-performance": "NetworkInfo.NetworkPerformance",
    "nitro-enclaves-support": "NitroEnclavesSupport",
    "processor-info.supported-architecture": "ProcessorInfo.SupportedArchitectures",
    "processor-info.supported-features": "ProcessorInfo.SupportedFeatures",
    "processor-info.sustained-clock-speed-in-ghz": "ProcessorInfo.SustainedClockSpeedInGhz",
    "supported-boot-mode": "SupportedBootModes",
    "supported-root-device-type": "SupportedRootDeviceTypes",
    "supported-usage-class": "SupportedUsageClasses",
    "supported-virtualization-type": "SupportedVirtualizationTypes",
    "vcpu-info.default-cores": "VCpuInfo.DefaultCores",
    "vcpu-info.default-threads-per-core": "VCpuInfo.DefaultThreadsPerCore",
    "vcpu-info.default-vcpus": "VCpuInfo.DefaultVCpus",
}
FILTERS = frozenset(PATHS)
OFFERING_FILTERS = frozenset({"location", "instance-type"})
LOCATION_TYPES = frozenset({"region", "availability-zone", "availability-zone-id", "outpost"})
_pages: dict[str, bytes] = {}


def describe_instance_types(call: Call) -> bytes:
    request = call.params
    names = request.get("InstanceTypes") or []
    if names and "MaxResults" in request:
        raise bad_combination("The parameter InstanceTypes cannot be used with the parameter MaxResults")
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    key = json.dumps(request, sort_keys=True)
    if key not in _pages:
        _pages[key] = action_response("DescribeInstanceTypes", _describe_types(request, names, filters))
    return _pages[key]


def _describe_types(request: dict[str, Any], names: list[str], filters: list[Any]) -> dict[str, Any]:
    unknown = [name for name in names if name not in all_types()]
    if unknown:
        raise AwsError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        )
    chosen = [name for name in sorted(set(names)) or all_types() if matches_filters(filters, _filter_facts(name))]
    page_items, token = paginate(chosen, request, str, low=5, high=100, unpaged=None if names else 100)
    return {"InstanceTypes": [_type_xml(name) for name in page_items], "NextToken": token}


@cache
def _type_xml(name: str) -> Raw:
    return named_shape("InstanceTypeInfo", all_types()[name])


@cache
def _filter_facts(name: str) -> dict[str, list[str]]:
    facts = all_types()[name]
    return {filter_name: values_at(facts, path) for filter_name, path in PATHS.items()}


def describe_instance_type_offerings(call: Call) -> bytes:
    request = call.params
    location_type = request.get("LocationType", "region")
    if location_type not in LOCATION_TYPES:
        raise invalid_value(f"Invalid value '{location_type}' for LocationType.")
    filters = compile_filters(request.get("Filters"), OFFERING_FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    key = f"{call.environment.region} {json.dumps(request, sort_keys=True)}"
    if key not in _pages:
        rows = [
            row
            for row in offerings(call.environment.region, location_type)
            if not filters or matches_filters(filters, {"instance-type": [row[0]], "location": [row[1]]})
        ]
        page_items, token = paginate(rows, request, tuple, low=5, high=1000, unpaged=1000)
        views = [{"InstanceType": n, "LocationType": location_type, "Location": where} for n, where in page_items]
        _pages[key] = action_response(
            "DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": views, "NextToken": token}
        )
    return _pages[key]
