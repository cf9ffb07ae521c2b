"""Instance types that are incompatible with an EC2NodeClass: listed, but not available."""

from typing import Any

import pytest

from tenure.aws.instancetype.capacity import Machine
from tenure.aws.instancetype.resolver import resolve_types, why_incompatible
from tests.support.aws.builders import SETTINGS, build_nodeclass, machine, region, resolved_status

FIRST = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
IPV6_SETTINGS = SETTINGS.model_copy(update={"cluster_dns": "fd00::a"})


def interfaces(*more: tuple[int, int, str]) -> list[dict[str, Any]]:
    return [FIRST, *({"networkCardIndex": c, "deviceIndex": d, "interfaceType": kind} for c, d, kind in more)]


@pytest.mark.parametrize(
    ("name", "family", "spec", "expected"),
    [
        ("m5.large", "AL2023", {}, ""),
        ("a1.large", "AL2023", {}, "a1"),
        ("a1.large", "AL2", {}, ""),
        ("mac1.metal", "AL2023", {}, "architecture"),
        ("m5.large", "AL2023", {"connectionTracking": {"udpTimeout": 60}}, ""),
        ("m4.large", "AL2023", {"connectionTracking": {"udpTimeout": 60}}, "Nitro"),
        ("m5.metal", "AL2023", {"connectionTracking": {"udpTimeout": 60}}, "Nitro"),
        ("m5.large", "AL2023", {"cpuOptions": {"nestedVirtualization": "enabled"}}, "nested"),
        ("m5.large", "AL2023", {"cpuOptions": {"nestedVirtualization": "disabled"}}, ""),
        ("m5.large", "AL2023", {"enclaveOptions": {"enabled": True}}, "Nitro Enclaves"),
        ("m5.large", "AL2023", {"enclaveOptions": {"enabled": False}}, ""),
        ("m5.xlarge", "AL2023", {"enclaveOptions": {"enabled": True}}, ""),
        ("m5.large", "AL2023", {"networkInterfaces": interfaces()}, ""),
        ("t2.large", "AL2023", {"networkInterfaces": interfaces()}, "ENA"),
        ("m4.16xlarge", "AL2023", {"networkInterfaces": interfaces()}, ""),
        ("m5.large", "AL2023", {"networkInterfaces": interfaces((0, 2, "interface"))}, ""),
        ("m5.large", "AL2023", {"networkInterfaces": interfaces((0, 3, "interface"))}, "fewer network cards"),
        ("m5.large", "AL2023", {"networkInterfaces": interfaces((1, 0, "interface"))}, "fewer network cards"),
        ("m5.large", "AL2023", {"networkInterfaces": interfaces((0, 1, "efa-only"))}, "EFA"),
        ("p4d.24xlarge", "AL2023", {"networkInterfaces": interfaces(*((c, 1, "efa-only") for c in range(4)))}, ""),
        ("p4d.24xlarge", "AL2023", {"networkInterfaces": interfaces((4, 1, "efa-only"))}, "fewer network cards"),
        # An interface of m5.large takes ten addresses, one of which is its own.
        ("m5.large", "AL2023", {"ipPrefixCount": 9}, ""),
        ("m5.large", "AL2023", {"ipPrefixCount": 10}, "ipPrefixCount"),
        ("m5.large", "AL2023", {"ipPrefixCount": 0}, ""),
        ("m5.large", "AL2023", {"ipPrefixCount": 10, "networkInterfaces": interfaces()}, "ipPrefixCount"),
    ],
)
def test_incompatibility_reasons(name: str, family: str, spec: dict[str, Any], expected: str) -> None:
    reason = why_incompatible(machine(name, family, **spec))
    assert expected in reason
    assert bool(reason) == bool(expected)


def test_ipv6_prefixes_replace_ipv6_addresses() -> None:
    none = machine("t2.large", settings=IPV6_SETTINGS, ipPrefixCount=12)
    assert none.info.ipv6_per_interface == 12
    assert why_incompatible(none)
    assert not why_incompatible(machine("t2.large", settings=IPV6_SETTINGS, ipPrefixCount=11))


@pytest.mark.parametrize(
    ("strategy", "is_compatible"), [("cluster", False), ("spread", True), ("partition", True), ("", True)]
)
def test_placement_group_strategy_limits_types(strategy: str, is_compatible: bool) -> None:
    one = machine("t3.large")
    in_placement_group = Machine(one.info, one.family, one.kubelet, one.spec, one.settings, strategy)
    assert (not why_incompatible(in_placement_group)) is is_compatible


def test_incompatible_type_is_listed_with_prices_and_unavailable() -> None:
    one = build_nodeclass(resolved_status(), connectionTracking={"udpTimeout": 60})
    types = resolve_types(region("m4.large", "m5.large"), one, SETTINGS).by_name
    assert {name: any(o.available for o in found.offerings) for name, found in types.items()} == {
        "m4.large": False,
        "m5.large": True,
    }
    assert types["m4.large"].offerings
