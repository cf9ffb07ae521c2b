"""Upkeep on the real parts, under the rights that ship: what nobody owns goes, and nothing else."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from activities.garbage_collection.base import LATELY
from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import OwnProduct, Product
from tests.support.product.scene import Scene, names
from tests.support.product.tidying import Outside, tidy, tidy_anew, unasked

OLD = 3 * 3600.0
"""Seconds: older than any grace."""
TRIALS = "/validation/"
"""In the names of launch templates that an EC2NodeClass is tried with; they come and go."""


async def test_instances_that_nobody_owns_go_with_their_nodes_and_no_other(own_product: OwnProduct) -> None:
    outside = Outside(own_product)
    await own_product.work()
    async with unasked(own_product, "instances"), own_product.scene("upkeep") as scene:
        await scene.run(1)
        (own,) = scene.alive()
        orphan = await outside.instance(own)
        forgotten = await outside.instance(own, **{labels.LAUNCH_GROUP: "a-plan-that-is-gone-0"})
        foreign = await outside.instance(own, cluster="somebody-elses")
        node = await eventually(lambda: node_of(scene, orphan))
        for old in (own, orphan, forgotten, foreign):
            own_product.aws.age(old, OLD)
        young = await outside.instance(own)

        async def collected() -> None:
            """A run may go by a list that is some seconds old: the young one stays young for as long."""
            own_product.aws.age(young, -LATELY)
            await tidy(own_product, "instances")
            await only_these_run(scene, [own, foreign, young])

        await eventually(collected)
        await eventually(lambda: no_node(scene, node))
        await eventually(lambda: scene.event(scene.name, "GarbageCollected", orphan))
        await eventually(lambda: own_product.metric("tenure_upkeep_collected_total", kind="instance"))
        await scene.pods_run(1)
        for other in (foreign, young):
            own_product.aws.terminate_instance(other)
        await eventually(lambda: only_these_run(scene, [own]))


async def test_an_instance_whose_launch_is_not_written_down_yet_is_spared(own_product: OwnProduct) -> None:
    """EC2 launched them, and its answer is lost again and again: whatever their age, their NodeClaims wait for them."""
    async with own_product.scene("upkeep") as scene:
        lost = scene.aws_fault("answer-lost", "CreateFleet")
        await scene.deploy(2)
        await eventually(lambda: scene.instances_alive(2))
        bought = scene.alive()
        for one in bought:
            own_product.aws.age(one, OLD)
        await tidy_anew(own_product, "instances")
        assert scene.alive() == bought
        scene.forgive(lost)
        await eventually(lambda: scene.nodes_are_initialized(2))
        await tidy_anew(own_product, "instances")
        assert scene.alive() == bought


async def test_a_nodeclaim_whose_instance_is_not_there_goes(product: Product) -> None:
    async with product.scene("upkeep", after="Never") as scene:
        (claim,) = await scene.run(1)
        (name,) = names([claim])
        await scene.scale(0)
        elsewhere = {"status": {"providerID": "aws:///us-west-2a/i-0123456789abcdef0"}}
        await product.patch(f"{NODE_CLAIMS.path(name)}/status", elsewhere)

        async def collected() -> None:
            await tidy(product, "nodeclaims")
            await scene.event(name, "GarbageCollected", "i-0123456789abcdef0")

        await eventually(collected)
        await eventually(lambda: scene.claims_are_gone([name]))


async def test_instances_get_their_names_once_their_node_has_joined(product: Product) -> None:
    outside = Outside(product)
    async with product.scene("upkeep") as scene:
        claims = await scene.run(2)

        async def named() -> None:
            """A run may go by a list that is some seconds old."""
            await tidy(product, "tags")
            for claim in claims:
                tags = await outside.tags(claim["status"]["providerID"].rpartition("/")[2])
                assert tags.get(labels.TAG_NAME) == claim["status"]["nodeName"]
                assert tags[labels.TAG_NODECLAIM] == claim["metadata"]["name"]
                assert tags[labels.TAG_EKS_CLUSTER_NAME] == product.sandbox.plan.cluster_name

        await eventually(named)
        for claim in await scene.claims():
            assert claim["metadata"]["annotations"][labels.TAGGED] == "true"
            assert claim["metadata"]["annotations"][labels.CLUSTER_NAME_TAGGED] == "true"


async def test_launch_templates_go_when_nothing_runs_from_them_and_a_steady_pool_keeps_its_own(
    own_product: OwnProduct,
) -> None:
    """Whichever worker looks: one that has just started remembers no launch."""
    outside = Outside(own_product)
    await own_product.work()
    async with own_product.scene("upkeep") as scene:
        claims = await scene.run(1)
        kept = {one: name for one, name in (await outside.templates(scene.name)).items() if TRIALS not in name}
        assert kept
        await own_product.rest()
        await own_product.go_on()
        for template in kept:
            own_product.aws.age(template, OLD)
        for _ in range(3):
            await tidy(own_product, "launch-templates")
        await eventually(lambda: templates_are(outside, scene, kept))
        await scene.scale(0)
        await eventually(lambda: scene.claims_are_gone(names(claims)))
        await eventually(lambda: scene.instances_alive(0))

        async def collected() -> None:
            await tidy(own_product, "launch-templates")
            await templates_are(outside, scene, {})

        await eventually(collected)
        await scene.scale(1)
        await eventually(lambda: scene.pods_run(1))
        await eventually(lambda: names_of_templates_are(outside, scene, [*kept.values()]))


async def test_profiles_go_when_no_class_names_them(own_product: OwnProduct) -> None:
    outside = Outside(own_product)
    await own_product.work()
    ((current, path),) = (await outside.profiles()).items()
    left = await outside.profile(f"{current[:30]}-left", path=path, role="KarpenterNodeRole-demo")
    own_product.aws.age(current, OLD)
    await tidy(own_product, "instance-profiles")
    assert set(await outside.profiles()) == {current, left}
    own_product.aws.age(left, OLD)
    await tidy(own_product, "instance-profiles")
    assert set(await outside.profiles()) == {current}


async def test_a_worker_killed_while_it_collects_leaves_the_rest_to_the_next(own_product: OwnProduct) -> None:
    outside = Outside(own_product)
    await own_product.work()
    async with own_product.scene("upkeep") as scene:
        await scene.run(1)
        (own,) = scene.alive()
        orphans = [await outside.instance(own) for _ in range(3)]
        slow = scene.aws_fault("latency", "TerminateInstances", orphans[1], latency=20.0)
        for orphan in orphans:
            own_product.aws.age(orphan, OLD)
        done = asyncio.create_task(tidy_anew(own_product, "instances"))
        await eventually(partial(was_asked, scene, slow))
        await own_product.kill()
        scene.forgive(slow)
        await own_product.go_on()
        await done
        await eventually(lambda: only_these_run(scene, [own]))
        await throughout(lambda: scene.pods_run(1), seconds=1)


async def templates_are(outside: Outside, scene: Scene, wanted: Mapping[str, str]) -> None:
    """These by their ids, and none of a trial."""
    found = await outside.templates(scene.name)
    assert found == wanted, found


async def names_of_templates_are(outside: Outside, scene: Scene, wanted: Sequence[str]) -> None:
    found = await outside.templates(scene.name)
    assert sorted(found.values()) == sorted(wanted), found


async def was_asked(scene: Scene, fault: str) -> None:
    assert scene.hits(fault), "nothing was asked to end yet"


async def only_these_run(scene: Scene, instances: Sequence[str]) -> None:
    assert sorted(scene.alive()) == sorted(instances), f"{scene.name}: instances {scene.alive()}"


async def node_of(scene: Scene, instance: str) -> str:
    """The Node that an instance has made."""
    found = [one for one in await scene.nodes() if one["spec"].get("providerID", "").endswith(f"/{instance}")]
    assert found, f"{instance} has not joined"
    return str(found[0]["metadata"]["name"])


async def no_node(scene: Scene, name: str) -> None:
    assert name not in names(await scene.nodes()), f"Node {name} is left"
