"""Discovered memory changes the instance types that are selected and the resources of NodeClaims."""

from typing import Any

from tenure.aws.instance.filter import select_offerings
from tenure.aws.instance.nodeclaim_status import launch_facts
from tenure.aws.instancetype.resolver import ResolvedTypes, resolve_types
from tenure.model.discovered_capacity import DiscoveredCapacity, image_spec_key
from tenure.model.launch import FleetInstance
from tests.support.aws.builders import SETTINGS, ZONES, build_nodeclaim, build_nodeclass, region, resolved_status

MIB = 1 << 20
TYPES = ("m5.large", "m5.xlarge")
CLASS = build_nodeclass(resolved_status())
RESOLVED = resolve_types(region(*TYPES), CLASS, SETTINGS)
IMAGE = RESOLVED.by_name["m5.large"].image_id


def discovered_memory(mebibytes: int, image: str = IMAGE) -> DiscoveredCapacity:
    return DiscoveredCapacity(images={image: {"m5.large": mebibytes * MIB}})


def select_types(types: ResolvedTypes, memory: str) -> list[str]:
    requested = build_nodeclaim(
        ("node.kubernetes.io/instance-type", "In", *TYPES), requests={"cpu": "1", "memory": memory}
    )
    is_unavailable: Any = lambda *_: False  # noqa: E731 -- no offering is unavailable
    selection = select_offerings(requested, types, ZONES, is_unavailable, lambda _: 0)
    return [one.type.name for one in selection.candidates] if selection else []


def test_type_smaller_than_estimated_is_not_selected_for_large_requests() -> None:
    assert IMAGE
    assert select_types(RESOLVED, "6800Mi") == ["m5.large", "m5.xlarge"]
    assert select_types(RESOLVED.with_discovered(discovered_memory(7000)), "6800Mi") == ["m5.xlarge"]
    assert select_types(RESOLVED.with_discovered(discovered_memory(7000)), "6300Mi") == ["m5.large", "m5.xlarge"]
    assert select_types(RESOLVED.with_discovered(discovered_memory(7900)), "7100Mi") == ["m5.large", "m5.xlarge"]


def test_discovered_memory_applies_to_its_image_and_spec_only() -> None:
    for known in (discovered_memory(7000, "ami-other"), discovered_memory(7000, image_spec_key(IMAGE, "456"))):
        assert select_types(RESOLVED.with_discovered(known, "123"), "6800Mi") == ["m5.large", "m5.xlarge"]
    assert select_types(
        RESOLVED.with_discovered(discovered_memory(7000, image_spec_key(IMAGE, "123")), "123"), "6800Mi"
    ) == ["m5.xlarge"]


def test_nodeclaim_has_discovered_memory() -> None:
    instance = FleetInstance(
        instance_id="i-1",
        instance_type="m5.large",
        zone=ZONES[0],
        subnet_id="subnet-1",
        image_id=IMAGE,
        capacity_type="on-demand",
    )
    facts = [
        launch_facts(instance, types.by_name["m5.large"], CLASS, build_nodeclaim())
        for types in (RESOLVED, RESOLVED.with_discovered(discovered_memory(7000)))
    ]
    assert [one.capacity["memory"] // MIB for one in facts] == [7577, 7000]
    assert [one.allocatable["memory"] // MIB for one in facts] == [6903, 6326]
    assert facts[0].capacity["cpu"] == facts[1].capacity["cpu"]


def test_types_are_cached_until_new_discovery() -> None:
    assert RESOLVED.with_discovered(discovered_memory(7000)) is RESOLVED.with_discovered(discovered_memory(7000))
    assert select_types(RESOLVED.with_discovered(discovered_memory(7900)), "6800Mi") == ["m5.large", "m5.xlarge"]


def test_no_discovery_keeps_types() -> None:
    assert RESOLVED.with_discovered(DiscoveredCapacity()) is RESOLVED
