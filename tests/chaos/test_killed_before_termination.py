"""The worker is killed between drain and termination: one instance launches and terminates, one NodeClaim is deleted.

Two tests, since concurrent terminations share one call, and the fault of one scenario would affect the other.
"""

from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim.state import Phase
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct


async def test_worker_killed_before_ec2_terminates_the_instance(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("drained", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        (instance,) = scope.alive_instances()
        fault = scope.inject_aws_fault("5xx", "TerminateInstances", instance)
        await _delete_nodeclaim(scope, claim)
        await wait_until(lambda: _assert_terminating(scope, fault))
        await product.kill_worker()
        assert scope.alive_instances() == [instance]
        scope.remove_aws_fault(fault)
        await product.resume_worker()
        await _assert_completed(scope, claim["metadata"]["name"])


async def test_worker_killed_before_the_response_of_terminate_instances(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("ended", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        (instance,) = scope.alive_instances()
        fault = scope.inject_aws_fault("answer-lost", "TerminateInstances", instance)
        await _delete_nodeclaim(scope, claim)
        await wait_until(lambda: _assert_terminating(scope, fault))
        await product.kill_worker()
        await wait_until(lambda: scope.assert_instances_alive(0))
        assert object_names(await scope.nodeclaims()) == object_names([claim])
        scope.remove_aws_fault(fault)
        await product.resume_worker()
        await _assert_completed(scope, claim["metadata"]["name"])


async def _delete_nodeclaim(scope: ClusterScope, claim: Object) -> None:
    """Scale to zero first: a pod on a deleting node would be nominated to another node at once."""
    await scope.scale_deployment(0)
    await wait_until(lambda: scope.assert_pods_running(0))
    await scope.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))


async def _assert_terminating(scope: ClusterScope, fault: str) -> None:
    (nodeclaim,) = await scope.nodeclaim_workflows()
    assert nodeclaim.phase == Phase.TERMINATION.value and scope.aws_fault_hits(fault), nodeclaim


async def _assert_completed(scope: ClusterScope, name: str) -> None:
    await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
    await scope.assert_one_node_launched()
    assert not scope.alive_instances()
    (nodeclaim,) = await scope.nodeclaim_workflows()
    assert (
        nodeclaim.name == name
        and (await scope.product.nodeclaim_workflows.fetch_outcome(nodeclaim)).reason == "Deleted"
    )
