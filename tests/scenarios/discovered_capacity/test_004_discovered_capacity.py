"""Promise 5: capacity is learned from the instance itself."""

import pytest

from tenure.apis import labels
from tenure.apis.quantity import parse_quantity
from tenure.kube.client.resources import NODES
from tenure.model.base import instance_id_of
from tenure.sandbox.nodes.fault_rules import LessMemory
from tests.scenarios.discovered_capacity.pods_and_nodeclasses import (
    LARGE,
    MIB,
    assert_discovered,
    created_at,
    deploy_pods,
    inject_less_memory,
    instance_type_of,
    node_memory,
    temporary_nodeclass,
    wait_until_launched_types,
)
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.garbage_collection import ExternalAws
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct

LONG = "600s"
"""consolidateAfter of nodes that must stay during the whole test."""


@pytest.mark.row("004-a")
async def test_capacity_is_discovered_for_the_image_that_the_node_runs(product: InstalledProduct) -> None:
    async with temporary_nodeclass(product, "four-images", "bottlerocket@1.44.0") as found:
        amis = found["status"]["amis"]
        assert len({one["id"] for one in amis}) == 4 and "nvidia" in amis[0]["name"], "the NVIDIA image is the newest"
        (standard,) = {one["id"] for one in amis if "x86_64" in one["name"] and "nvidia" not in one["name"]}
        async with product.scope("004-a", of_class="four-images", types=["m6i.large"]) as scope:
            (claim,) = await scope.run_pods(1)
            assert claim["status"]["imageID"] == standard
            memory = await node_memory(product, claim)
            await wait_until(lambda: assert_discovered(product, standard, "m6i.large", memory))


@pytest.mark.row("004-b")
async def test_pod_on_an_undersized_node_gets_the_next_larger_type(product: InstalledProduct) -> None:
    async with product.scope("004-b", types=["m5.large", "m5.xlarge"]) as scope:
        await inject_less_memory(scope, "m5.large")
        await deploy_pods(scope, 1, LARGE)
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until_launched_types(scope, "m5.large", "m5.xlarge")
        first = (await scope.nodeclaim_workflows())[0].name
        await wait_until(lambda: scope.assert_event(first, "SmallerThanPlanned", "memory"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([first]))
        await scope.scale_deployment(3)
        await wait_until(lambda: scope.assert_pods_running(3))
        await wait_until_launched_types(scope, "m5.large", "m5.xlarge", "m5.xlarge")


@pytest.mark.row("004-b")
async def test_pods_of_one_plan_each_run_at_the_second_attempt(product: InstalledProduct) -> None:
    """Each pod may get one undersized node before any node has reported its memory, but not a second."""
    async with product.scope("004-b", types=["m5zn.large", "m5zn.xlarge"], after=LONG) as scope:
        await inject_less_memory(scope, "m5zn.large")
        await deploy_pods(scope, 3, LARGE)
        await wait_until(lambda: scope.assert_pods_running(3))
        claims, nodes = await scope.nodeclaims(), await scope.nodes()
        assert sorted(map(instance_type_of, claims)).count("m5zn.xlarge") == 2, "each runs two of the pods"
        first_discovered_at = min(
            (created_at(one) for one in nodes if instance_type_of(one) == "m5zn.large"), default=None
        )
        assert first_discovered_at and all(
            created_at(one) <= first_discovered_at for one in claims if instance_type_of(one) == "m5zn.large"
        )


@pytest.mark.row("004-b")
async def test_type_with_less_allocatable_memory_than_estimated_is_not_launched(product: InstalledProduct) -> None:
    """A percentage threshold applies to the estimate in the planner, and to the real memory in the kubelet."""
    kubelet = {"evictionHard": {"memory.available": "10%", "nodefs.available": "10%"}}
    async with (
        temporary_nodeclass(product, "thresholds", "al2023@v20250829", kubelet=kubelet),
        product.scope("004-b", of_class="thresholds", types=["m5ad.large", "m5ad.xlarge"], after=LONG) as scope,
    ):
        await scope.create_deployment(1)
        (first,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        image, memory = first["status"]["imageID"], await node_memory(product, first)
        await wait_until(lambda: assert_discovered(product, image, "m5ad.large", memory))
        name = await deploy_pods(
            scope, 1, f"{await _memory_between(product, first, memory)}Ki", f"{scope.name}-between"
        )
        await wait_until(lambda: scope.assert_pods_running(1, name))
        await wait_until_launched_types(scope, "m5ad.large", "m5ad.xlarge")
        await scope.scale_deployment(3, name)
        await wait_until(lambda: scope.assert_pods_running(3, name))
        await wait_until_launched_types(scope, "m5ad.large", "m5ad.xlarge", "m5ad.xlarge")


@pytest.mark.row("004-d")
async def test_nodes_with_devices_run_the_image_for_their_devices(product: InstalledProduct) -> None:
    expected = {"g5.xlarge": "x86_64-nvidia", "inf2.xlarge": "x86_64-neuron", "g5g.xlarge": "arm64-nvidia"}
    async with temporary_nodeclass(product, "for-devices", "al2023@v20250829") as found:
        names = {one["id"]: one["name"] for one in found["status"]["amis"]}
        async with product.scope("004-d", of_class="for-devices", types=list(expected)) as scope:
            claims = await _deploy_one_of_each(scope, list(expected))
            for instance_type, claim in claims.items():
                assert expected[instance_type] in names[claim["status"]["imageID"]]


@pytest.mark.row("004-e")
async def test_smallest_memory_of_three_nodes_of_a_type_is_kept(product: InstalledProduct) -> None:
    async with product.scope("004-e", types=["m5a.large"], after=LONG) as scope:
        image = await _deploy_one_more(scope, 1, reports=7650)
        await wait_until(lambda: assert_discovered(product, image, "m5a.large", 7650 * MIB))
        await _deploy_one_more(scope, 2, reports=7640)
        await wait_until(lambda: assert_discovered(product, image, "m5a.large", 7640 * MIB))
        await _deploy_one_more(scope, 3, reports=7700)
        await assert_throughout(lambda: assert_discovered(product, image, "m5a.large", 7640 * MIB), seconds=4)


@pytest.mark.row("004-g")
async def test_discovered_memory_applies_to_the_next_plan(product: InstalledProduct) -> None:
    async with product.scope("004-g", types=["m5d.large", "m5d.xlarge"], after=LONG) as scope:
        await inject_less_memory(scope, "m5d.large")
        await scope.create_deployment(1)
        first = await wait_until(lambda: _assert_registered(scope, 1))
        assert instance_type_of(first) == "m5d.large"
        await deploy_pods(scope, 1, LARGE, f"{scope.name}-large")
        await wait_until(lambda: scope.assert_pods_running(1, f"{scope.name}-large"))
        await wait_until_launched_types(scope, "m5d.large", "m5d.xlarge")


@pytest.mark.row("004-h")
async def test_each_kind_of_node_launches_with_its_image_variant(product: InstalledProduct) -> None:
    expected = {
        "m6a.large": "x86_64",
        "m6g.large": "arm64",
        "g4dn.xlarge": "nvidia-x86_64",
        "g5g.xlarge": "nvidia-arm64",
        "m6i.large": "x86_64",
    }
    async with temporary_nodeclass(product, "variants", "bottlerocket@1.46.0") as found:
        images = {one["id"]: one["name"] for one in found["status"]["amis"]}
        async with product.scope("004-h", of_class="variants", types=list(expected)) as scope:
            claims = await _deploy_one_of_each(scope, list(expected))
            runs = {one["id"]: one["image_id"] for one in product.aws.list_instances()["instances"]}
            for instance_type, claim in claims.items():
                image, instance = claim["status"]["imageID"], instance_id_of(claim["status"]["providerID"])
                assert runs[instance] == image, "status.imageID is not the instance's image"
                assert _image_variant(images[image]) == expected[instance_type]
            used = {claim["status"]["imageID"] for claim in claims.values()}
            assert len(used) == 4
            await wait_until(lambda: _assert_one_template_for_each(scope, used))


async def _memory_between(product: InstalledProduct, claim: Object, memory: int) -> int:
    """KiB between the real allocatable memory of such a node and the amount that its NodeClaim's overhead implies."""
    reported = {kind: parse_quantity(claim["status"][kind]["memory"]) for kind in ("capacity", "allocatable")}
    node = await product.kube.request("GET", NODES.path(claim["status"]["nodeName"]))
    real = parse_quantity(node["status"]["allocatable"]["memory"])
    promised = memory - (reported["capacity"] - reported["allocatable"])
    assert promised - real > MIB, "the estimate must exceed the real memory"
    return (real + promised) // 2 // 1024


async def _deploy_one_of_each(scope: ClusterScope, types: list[str]) -> dict[str, Object]:
    """One pod per instance type runs on a node of that type. Returns NodeClaims by type."""
    for number, one in enumerate(types):
        selector = {labels.NODEPOOL: scope.name, labels.INSTANCE_TYPE: one}
        await scope.create_deployment(1, f"{scope.name}-{number}", nodeSelector=selector)
    for number in range(len(types)):
        await wait_until(lambda number=number: scope.assert_pods_running(1, f"{scope.name}-{number}"))  # type: ignore[misc]
    claims = {instance_type_of(claim): claim for claim in await scope.nodeclaims()}
    assert sorted(claims) == sorted(types)
    return claims


async def _deploy_one_more(scope: ClusterScope, count: int, *, reports: int) -> str:
    """Node number `count`, filled by a pod, reports this many MiB. Returns its image."""
    await scope.inject_node_fault(LessMemory(mebibytes=reports), count=1)
    await scope.create_deployment(1, f"{scope.name}-{count}")
    newest = await wait_until(lambda: _assert_registered(scope, count))
    assert await node_memory(scope.product, newest) == reports * MIB
    return str(newest["status"]["imageID"])


async def _assert_registered(scope: ClusterScope, count: int) -> Object:
    """The newest of this many NodeClaims, which all have Nodes."""
    claims = await scope.nodeclaims()
    assert len(claims) == count and all((claim.get("status") or {}).get("nodeName") for claim in claims)
    return claims[-1]


def _image_variant(image: str) -> str:
    """The variant in a name such as bottlerocket-aws-k8s-1.34-nvidia-x86_64-v1.46.0-abcd."""
    return image.partition("1.34-")[2].partition("-v")[0]


async def _assert_one_template_for_each(scope: ClusterScope, images: set[str]) -> None:
    """The NodePool has one launch template per image, once those of class validation are deleted. Other tests run at
    the same time, some with the same images.
    """
    created = await ExternalAws(scope.product).launch_templates(scope.name)
    found = await scope.product.launch_template_images(list(created.values()))
    assert sorted(found.values()) == sorted(images), f"launch templates of {found}"
