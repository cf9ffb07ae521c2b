"""DescribeInstanceTypes and DescribeInstanceTypeOfferings: each type's XML is written once, whole pages are kept as
bytes.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from sandbox.aws.ec2.call import Call
from sandbox.aws.ec2.filters import accepts, compile_filters
from sandbox.aws.ec2.paging import page
from sandbox.aws.ec2.types_data import all_types, offerings
from sandbox.aws.ec2.values import values_at
from sandbox.aws.wire.errors import AwsError, bad_combination, dry_run_ok, invalid_value
from sandbox.aws.wire.xml import Raw, answer, named_shape

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
        _pages[key] = answer("DescribeInstanceTypes", _types(request, names, filters))
    return _pages[key]


def _types(request: dict[str, Any], names: list[str], filters: list[Any]) -> dict[str, Any]:
    unknown = [name for name in names if name not in all_types()]
    if unknown:
        raise AwsError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        )
    chosen = [name for name in sorted(set(names)) or all_types() if accepts(filters, _facts(name))]
    shown, token = page(chosen, request, str, low=5, high=100, unpaged=None if names else 100)
    return {"InstanceTypes": [_xml(name) for name in shown], "NextToken": token}


@cache
def _xml(name: str) -> Raw:
    return named_shape("InstanceTypeInfo", all_types()[name])


@cache
def _facts(name: str) -> dict[str, list[str]]:
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
    key = f"{call.world.region} {json.dumps(request, sort_keys=True)}"
    if key not in _pages:
        rows = [
            row
            for row in offerings(call.world.region, location_type)
            if not filters or accepts(filters, {"instance-type": [row[0]], "location": [row[1]]})
        ]
        shown, token = page(rows, request, tuple, low=5, high=1000, unpaged=1000)
        views = [{"InstanceType": n, "LocationType": location_type, "Location": where} for n, where in shown]
        _pages[key] = answer("DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": views, "NextToken": token})
    return _pages[key]
