"""Promise 2, with the worker killed between CreateFleet and what is written down of it."""

import pytest

from tenure.sandbox.fault_proxy import Cut
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names

GROUP = 3


@pytest.mark.row("001-g")
async def test_killed_before_the_answer_a_claim_alone_repeats_the_call_and_gets_the_same_instance(
    own_product: OwnProduct,
) -> None:
    """EC2 does the work, and its answer never arrives."""
    await own_product.work()
    async with own_product.scene("001-g") as scene:
        name = await scene.claim_by_hand()
        lost = scene.aws_fault("answer-lost", "CreateFleet", name)
        await eventually(lambda: scene.instances_alive(1))
        await own_product.kill()
        (claim,) = await scene.claims()
        assert "providerID" not in claim.get("status", {})
        scene.forgive(lost)
        await own_product.go_on()
        await eventually(lambda: scene.nodes_are_initialized(1))
        await _one_instance_each(scene, [name])
        await own_product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{name}")
        await eventually(lambda: scene.claims_are_gone([name]))


@pytest.mark.row("001-g")
async def test_killed_before_the_status_a_launch_group_gets_one_instance_per_claim(
    own_product: OwnProduct,
) -> None:
    """EC2's answer arrives, and not a word of it can be written down."""
    await own_product.work()
    async with own_product.scene("001-g") as scene:
        mute = scene.api_fault(Cut(), f"/nodeclaims/{scene.name}-[a-z0-9]+/status", "PATCH")
        await scene.deploy(GROUP)
        await eventually(lambda: scene.instances_alive(GROUP))
        await eventually(lambda: _tried(mute.hits))
        await own_product.kill()
        claims = await scene.claims()
        assert len(claims) == GROUP and not any(claim.get("status", {}).get("providerID") for claim in claims)
        scene.pardon(mute)
        await own_product.go_on()
        await eventually(lambda: scene.pods_run(GROUP))
        await eventually(lambda: scene.nodes_are_initialized(GROUP))
        await _one_instance_each(scene, names(claims))


async def _one_instance_each(scene: Scene, claims: list[str]) -> None:
    """The same NodeClaims, as many instances, each its own, and one token for all of it."""
    found = await scene.claims()
    assert sorted(names(found)) == sorted(claims)
    instances = [claim["status"]["providerID"].rpartition("/")[2] for claim in found]
    assert sorted(instances) == sorted(scene.launched()) == sorted(scene.alive())
    assert len(set(instances)) == len(claims)
    assert len(scene.tokens()) == 1


async def _tried(hits: int) -> None:
    assert hits, "nothing was to be written down yet"
