"""The cache key of resolved types: relevant fields change it, other fields do not."""

from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.amifamily.image_disks import DisksByImage, ImageDisks
from tenure.aws.instancetype.provider import TypeCache, key_of
from tenure.aws.instancetype.resolver import ResolvedTypes
from tenure.aws.nodeclass.placement_groups import PlacementGroup
from tests.support.aws.builders import build_nodeclass, resolved_status
from tests.unit.aws.fakes import FakeClock

RELEVANT: list[dict[str, Any]] = [
    {"kubelet": {"maxPods": 10}},
    {"kubelet": {"evictionHard": {"memory.available": "5%"}}},
    {"instanceStorePolicy": "RAID0"},
    {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "60Gi"}}]},
    {"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]},
    {"connectionTracking": {"udpTimeout": 60}},
    {"cpuOptions": {"nestedVirtualization": "enabled"}},
    {"enclaveOptions": {"enabled": True}},
    {"ipPrefixCount": 2},
    {"amiFamily": "Custom"},
    {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
]
IRRELEVANT: list[dict[str, Any]] = [
    {"tags": {"a": "b"}},
    {"userData": "#!/bin/sh"},
    {"role": "another"},
    {"role": "", "instanceProfile": "mine"},
    {"detailedMonitoring": True},
    {"metadataOptions": {"httpTokens": "optional"}},
    {"context": "c"},
    {"associatePublicIPAddress": True},
    {"amiSelectorTerms": [{"alias": "al2023@v20260101"}]},
    {"subnetSelectorTerms": [{"id": "subnet-1"}]},
]


def key(
    one: EC2NodeClass, epoch: int = 1, group: PlacementGroup | None = None, disks: DisksByImage | None = None
) -> str:
    return key_of(one, epoch=epoch, group=group, reserved=(), disks=disks or {})


def plain(status: dict[str, Any] | None = None, **spec: Any) -> EC2NodeClass:
    return build_nodeclass(resolved_status() if status is None else status, **spec)


@pytest.mark.parametrize("spec", RELEVANT, ids=lambda spec: "-".join(spec))
def test_relevant_fields_change_key(spec: dict[str, Any]) -> None:
    assert key(plain(**spec)) != key(plain())


@pytest.mark.parametrize("spec", IRRELEVANT, ids=lambda spec: "-".join(spec))
def test_irrelevant_fields_keep_key(spec: dict[str, Any]) -> None:
    assert key(plain(**spec)) == key(plain())


def test_disks_of_images_change_key() -> None:
    first, second = ({"ami-1": ImageDisks(root_device=device)} for device in ("/dev/sda1", "/dev/xvda"))
    assert len({key(plain()), key(plain(), disks=first), key(plain(), disks=second)}) == 3


def test_zones_change_key_but_subnet_order_does_not() -> None:
    status = resolved_status()
    reversed_status = status | {"subnets": status["subnets"][::-1]}
    second = {"id": "subnet-z", "zone": "us-west-2a", "zoneID": "usw2-az1"}
    more = status | {"subnets": [*status["subnets"], second]}
    fewer = status | {"subnets": status["subnets"][:2]}
    moved = status | {"subnets": [{**status["subnets"][0], "zoneID": "usw2-az9"}, *status["subnets"][1:]]}
    assert key(plain(reversed_status)) == key(plain(more)) == key(plain())
    assert key(plain(fewer)) != key(plain())
    assert key(plain(moved)) != key(plain())


def test_images_and_their_order_change_key() -> None:
    status = resolved_status()
    reversed_status = status | {"amis": status["amis"][::-1]}
    other = status | {"amis": [{**status["amis"][0], "id": "ami-other"}, *status["amis"][1:]]}
    assert len({key(plain()), key(plain(reversed_status)), key(plain(other))}) == 3


def test_region_and_placement_group_change_key() -> None:
    group = PlacementGroup(id="pg-1", strategy="cluster")
    assert len({key(plain()), key(plain(), epoch=2), key(plain(), group=group)}) == 3


def test_types_are_kept_while_they_are_used() -> None:
    clock, types = FakeClock(), ResolvedTypes(())
    cache = TypeCache(clock)
    cache.put("deleted", "old", types)
    cache.put("used", "key", types)
    for _ in range(3):
        clock.now += 10 * 3600
        assert cache.get("used", "key") is types
    assert cache.get("used", "old") is None and set(cache._by_class) == {"used"}


def test_equal_nodeclasses_share_types_until_last_one_is_removed() -> None:
    cache, types, others = TypeCache(), ResolvedTypes(()), ResolvedTypes(())
    cache.put("a", "same", types)
    assert cache.get("b", "same") is types
    cache.put("a", "other", others)
    assert cache.get("b", "same") is types
    cache.retain_only({"a"})
    assert cache.get("c", "same") is None
    assert cache.get("a", "other") is others
