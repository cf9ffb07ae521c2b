"""Promise 2, with the worker killed between CreateFleet and what is written down of it."""

import pytest

from tenure.sandbox.fault_proxy import Cut
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct
from tests.support.product.scene import ClusterScope, object_names

GROUP = 3


@pytest.mark.row("001-g")
async def test_killed_before_the_answer_a_claim_alone_repeats_the_call_and_gets_the_same_instance(
    own_product: DedicatedProduct,
) -> None:
    """EC2 does the work, and its answer never arrives."""
    await own_product.ensure_worker()
    async with own_product.scope("001-g") as scope:
        name = await scope.create_standalone_nodeclaim()
        lost = scope.inject_aws_fault("answer-lost", "CreateFleet", name)
        await wait_until(lambda: scope.assert_instances_alive(1))
        await own_product.kill_worker()
        (claim,) = await scope.nodeclaims()
        assert "providerID" not in claim.get("status", {})
        scope.remove_aws_fault(lost)
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_nodes_initialized(1))
        await _assert_one_instance_each(scope, [name])
        await own_product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{name}")
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


@pytest.mark.row("001-g")
async def test_killed_before_the_status_a_launch_group_gets_one_instance_per_claim(
    own_product: DedicatedProduct,
) -> None:
    """EC2's answer arrives, and not a word of it can be written down."""
    await own_product.ensure_worker()
    async with own_product.scope("001-g") as scope:
        mute = scope.inject_api_fault(Cut(), f"/nodeclaims/{scope.name}-[a-z0-9]+/status", "PATCH")
        await scope.create_deployment(GROUP)
        await wait_until(lambda: scope.assert_instances_alive(GROUP))
        await wait_until(lambda: _assert_tried(mute.hits))
        await own_product.kill_worker()
        claims = await scope.nodeclaims()
        assert len(claims) == GROUP and not any(claim.get("status", {}).get("providerID") for claim in claims)
        scope.remove_api_fault(mute)
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_pods_running(GROUP))
        await wait_until(lambda: scope.assert_nodes_initialized(GROUP))
        await _assert_one_instance_each(scope, object_names(claims))


async def _assert_one_instance_each(scope: ClusterScope, claims: list[str]) -> None:
    """The same NodeClaims, as many instances, each its own, and one token for all of it."""
    found = await scope.nodeclaims()
    assert sorted(object_names(found)) == sorted(claims)
    instances = [claim["status"]["providerID"].rpartition("/")[2] for claim in found]
    assert sorted(instances) == sorted(scope.launched_instances()) == sorted(scope.alive_instances())
    assert len(set(instances)) == len(claims)
    assert len(scope.client_tokens()) == 1


async def _assert_tried(hits: int) -> None:
    assert hits, "nothing was to be written down yet"
