"""Promise 2, with the worker killed between CreateFleet and the write of its result."""

import pytest

from tenure.model.base import instance_id_of
from tenure.sandbox.fault_proxy import Cut
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct

GROUP = 3


@pytest.mark.row("001-g")
async def test_single_launch_repeats_its_call_after_a_lost_response_and_worker_kill(
    own_product: DedicatedProduct,
) -> None:
    """EC2 launches the instance, but its response never arrives."""
    await own_product.ensure_worker()
    async with own_product.scope("001-g") as scope:
        name = await scope.create_standalone_nodeclaim()
        fault = scope.inject_aws_fault("answer-lost", "CreateFleet", name)
        await wait_until(lambda: scope.assert_instances_alive(1))
        await own_product.kill_worker()
        (claim,) = await scope.nodeclaims()
        assert "providerID" not in claim.get("status", {})
        scope.remove_aws_fault(fault)
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_nodes_initialized(1))
        await _assert_one_instance_each(scope, [name])
        await own_product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{name}")
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


@pytest.mark.row("001-g")
async def test_launch_group_has_one_instance_per_nodeclaim_after_a_worker_kill(own_product: DedicatedProduct) -> None:
    """EC2's response arrives, but no status can be written."""
    await own_product.ensure_worker()
    async with own_product.scope("001-g") as scope:
        status_fault = scope.inject_api_fault(Cut(), f"/nodeclaims/{scope.name}-[a-z0-9]+/status", "PATCH")
        await scope.create_deployment(GROUP)
        await wait_until(lambda: scope.assert_instances_alive(GROUP))
        await wait_until(lambda: _assert_tried(status_fault.hits))
        await own_product.kill_worker()
        claims = await scope.nodeclaims()
        assert len(claims) == GROUP and not any(claim.get("status", {}).get("providerID") for claim in claims)
        scope.remove_api_fault(status_fault)
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_pods_running(GROUP))
        await wait_until(lambda: scope.assert_nodes_initialized(GROUP))
        await _assert_one_instance_each(scope, object_names(claims))


async def _assert_one_instance_each(scope: ClusterScope, claims: list[str]) -> None:
    """The NodeClaims are unchanged, each has its own instance, and one client token was used."""
    found = await scope.nodeclaims()
    assert sorted(object_names(found)) == sorted(claims)
    instances = [instance_id_of(claim["status"]["providerID"]) for claim in found]
    assert sorted(instances) == sorted(scope.launched_instances()) == sorted(scope.alive_instances())
    assert len(set(instances)) == len(claims)
    assert len(scope.client_tokens()) == 1


async def _assert_tried(hits: int) -> None:
    assert hits, "no status write was attempted yet"
