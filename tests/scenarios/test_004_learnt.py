"""Promise 5: what is known of a machine is learnt from that machine."""

import pytest

from tenure.apis import labels
from tenure.apis.quantity import parse_quantity
from tenure.kube.client.resources import NODES
from tenure.sandbox.nodes.fault_rules import LessMemory
from tests.scenarios.acts_of_learning import (
    LARGE,
    MIB,
    born,
    has_less,
    is_learnt,
    memory_of,
    own_class,
    type_of,
    wants,
    were_bought,
)
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import Object
from tests.support.product.product import Product
from tests.support.product.scene import Scene
from tests.support.product.tidying import Outside

STAYS = "600s"
"""consolidateAfter of nodes that are to stay for as long as the test looks at them."""


@pytest.mark.row("004-a")
async def test_of_four_images_the_one_that_the_node_runs_is_learnt_for(product: Product) -> None:
    async with own_class(product, "four-images", "bottlerocket@1.44.0") as found:
        amis = found["status"]["amis"]
        assert len({one["id"] for one in amis}) == 4 and "nvidia" in amis[0]["name"], "the NVIDIA image is the newest"
        (standard,) = {one["id"] for one in amis if "x86_64" in one["name"] and "nvidia" not in one["name"]}
        async with product.scene("004-a", of_class="four-images", types=["m6i.large"]) as scene:
            (claim,) = await scene.run(1)
            assert claim["status"]["imageID"] == standard
            memory = await memory_of(product, claim)
            await eventually(lambda: is_learnt(product, standard, "m6i.large", memory))


@pytest.mark.row("004-b")
async def test_one_node_that_is_too_small_and_then_the_next_bigger_type(product: Product) -> None:
    async with product.scene("004-b", types=["m5.large", "m5.xlarge"]) as scene:
        await has_less(scene, "m5.large")
        await wants(scene, 1, LARGE)
        await eventually(lambda: scene.pods_run(1))
        await were_bought(scene, "m5.large", "m5.xlarge")
        first = (await scene.lives())[0].name
        await eventually(lambda: scene.event(first, "SmallerThanPlanned", "memory"))
        await eventually(lambda: scene.claims_are_gone([first]))
        await scene.scale(3)
        await eventually(lambda: scene.pods_run(3))
        await were_bought(scene, "m5.large", "m5.xlarge", "m5.xlarge")


@pytest.mark.row("004-b")
async def test_pods_that_were_planned_together_are_each_placed_at_the_second_try(product: Product) -> None:
    """Before any of their nodes has shown its memory each may be bought one: but none of them a second."""
    async with product.scene("004-b", types=["m5zn.large", "m5zn.xlarge"], after=STAYS) as scene:
        await has_less(scene, "m5zn.large")
        await wants(scene, 3, LARGE)
        await eventually(lambda: scene.pods_run(3))
        claims, nodes = await scene.claims(), await scene.nodes()
        assert sorted(map(type_of, claims)).count("m5zn.xlarge") == 2, "each takes two of the pods"
        shown = min((born(one) for one in nodes if type_of(one) == "m5zn.large"), default=None)
        assert shown and all(born(one) <= shown for one in claims if type_of(one) == "m5zn.large")


@pytest.mark.row("004-b")
async def test_a_type_that_leaves_pods_less_than_its_class_promises_is_not_bought_for_them(
    product: Product,
) -> None:
    """A threshold in percent is a share of the estimate to the planner, and of the real memory to the kubelet."""
    tenth = {"evictionHard": {"memory.available": "10%", "nodefs.available": "10%"}}
    async with (
        own_class(product, "thresholds", "al2023@v20250829", kubelet=tenth),
        product.scene("004-b", of_class="thresholds", types=["m5ad.large", "m5ad.xlarge"], after=STAYS) as scene,
    ):
        await scene.deploy(1)
        (first,) = await eventually(lambda: scene.nodes_are_initialized(1))
        image, memory = first["status"]["imageID"], await memory_of(product, first)
        await eventually(lambda: is_learnt(product, image, "m5ad.large", memory))
        name = await wants(scene, 1, f"{await _between(product, first, memory)}Ki", f"{scene.name}-between")
        await eventually(lambda: scene.pods_run(1, name))
        await were_bought(scene, "m5ad.large", "m5ad.xlarge")
        await scene.scale(3, name)
        await eventually(lambda: scene.pods_run(3, name))
        await were_bought(scene, "m5ad.large", "m5ad.xlarge", "m5ad.xlarge")


@pytest.mark.row("004-d")
async def test_machines_with_devices_run_the_image_for_their_devices(product: Product) -> None:
    wanted = {"g5.xlarge": "x86_64-nvidia", "inf2.xlarge": "x86_64-neuron", "g5g.xlarge": "arm64-nvidia"}
    async with own_class(product, "for-devices", "al2023@v20250829") as found:
        names = {one["id"]: one["name"] for one in found["status"]["amis"]}
        async with product.scene("004-d", of_class="for-devices", types=list(wanted)) as scene:
            claims = await _one_of_each(scene, list(wanted))
            for instance_type, claim in claims.items():
                assert wanted[instance_type] in names[claim["status"]["imageID"]]


@pytest.mark.row("004-e")
async def test_the_smallest_of_three_nodes_of_a_type_is_remembered(product: Product) -> None:
    async with product.scene("004-e", types=["m5a.large"], after=STAYS) as scene:
        image = await _one_more(scene, 1, reports=7650)
        await eventually(lambda: is_learnt(product, image, "m5a.large", 7650 * MIB))
        await _one_more(scene, 2, reports=7640)
        await eventually(lambda: is_learnt(product, image, "m5a.large", 7640 * MIB))
        await _one_more(scene, 3, reports=7700)
        await throughout(lambda: is_learnt(product, image, "m5a.large", 7640 * MIB), seconds=4)


@pytest.mark.row("004-g")
async def test_what_a_node_has_shown_counts_in_the_next_plan(product: Product) -> None:
    async with product.scene("004-g", types=["m5d.large", "m5d.xlarge"], after=STAYS) as scene:
        await has_less(scene, "m5d.large")
        await scene.deploy(1)
        first = await eventually(lambda: _registered(scene, 1))
        assert type_of(first) == "m5d.large"
        await wants(scene, 1, LARGE, f"{scene.name}-large")
        await eventually(lambda: scene.pods_run(1, f"{scene.name}-large"))
        await were_bought(scene, "m5d.large", "m5d.xlarge")


@pytest.mark.row("004-h")
async def test_each_kind_of_machine_launches_with_its_own_variant(product: Product) -> None:
    wanted = {
        "m6a.large": "x86_64",
        "m6g.large": "arm64",
        "g4dn.xlarge": "nvidia-x86_64",
        "g5g.xlarge": "nvidia-arm64",
        "m6i.large": "x86_64",
    }
    async with own_class(product, "variants", "bottlerocket@1.46.0") as found:
        images = {one["id"]: one["name"] for one in found["status"]["amis"]}
        async with product.scene("004-h", of_class="variants", types=list(wanted)) as scene:
            claims = await _one_of_each(scene, list(wanted))
            runs = {one["id"]: one["image_id"] for one in product.aws.instances()["instances"]}
            for instance_type, claim in claims.items():
                image, instance = claim["status"]["imageID"], claim["status"]["providerID"].rpartition("/")[2]
                assert runs[instance] == image, "status.imageID tells the truth"
                assert _variant(images[image]) == wanted[instance_type]
            used = {claim["status"]["imageID"] for claim in claims.values()}
            assert len(used) == 4
            await eventually(lambda: _one_template_for_each(scene, used))


async def _between(product: Product, claim: Object, memory: int) -> int:
    """KiB that a node of its kind leaves for pods no more, and would by what its NodeClaim promised of its memory."""
    shown = {kind: parse_quantity(claim["status"][kind]["memory"]) for kind in ("capacity", "allocatable")}
    node = await product.kube.request("GET", NODES.path(claim["status"]["nodeName"]))
    real = parse_quantity(node["status"]["allocatable"]["memory"])
    promised = memory - (shown["capacity"] - shown["allocatable"])
    assert promised - real > MIB, "the case that this is about"
    return (real + promised) // 2 // 1024


async def _one_of_each(scene: Scene, types: list[str]) -> dict[str, Object]:
    """One pod for each instance type, which runs on it: NodeClaims by type."""
    for number, one in enumerate(types):
        selector = {labels.NODEPOOL: scene.name, labels.INSTANCE_TYPE: one}
        await scene.deploy(1, f"{scene.name}-{number}", nodeSelector=selector)
    for number in range(len(types)):
        await eventually(lambda number=number: scene.pods_run(1, f"{scene.name}-{number}"))  # type: ignore[misc]
    claims = {type_of(claim): claim for claim in await scene.claims()}
    assert sorted(claims) == sorted(types)
    return claims


async def _one_more(scene: Scene, count: int, *, reports: int) -> str:
    """Node number `count`, filled by a pod, reports so many MiB: the image that it runs."""
    await scene.trouble(LessMemory(mebibytes=reports), count=1)
    await scene.deploy(1, f"{scene.name}-{count}")
    newest = await eventually(lambda: _registered(scene, count))
    assert await memory_of(scene.product, newest) == reports * MIB
    return str(newest["status"]["imageID"])


async def _registered(scene: Scene, count: int) -> Object:
    """The newest of so many NodeClaims that all have their Nodes."""
    claims = await scene.claims()
    assert len(claims) == count and all((claim.get("status") or {}).get("nodeName") for claim in claims)
    return claims[-1]


def _variant(image: str) -> str:
    """Of a name such as bottlerocket-aws-k8s-1.34-nvidia-x86_64-v1.46.0-abcd."""
    return image.partition("1.34-")[2].partition("-v")[0]


async def _one_template_for_each(scene: Scene, images: set[str]) -> None:
    """Of the NodePool's own templates, once those of a trial are gone: others play at the same time, and some with the
    same images."""
    made = await Outside(scene.product).templates(scene.name)
    found = await scene.product.images_of_templates(list(made.values()))
    assert sorted(found.values()) == sorted(images), f"launch templates of {found}"
