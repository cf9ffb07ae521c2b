"""The worker is killed between drain and termination: one instance launched, one terminated, one NodeClaim gone.

Two acts: instances that end at the same time go in one call, and a fault of one scenario would befall the other's.
"""

from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim_state import Phase
from tests.support.product.eventually import eventually
from tests.support.product.objects import Object
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names


async def test_killed_after_the_drain_and_before_ec2_terminates(product: OwnProduct) -> None:
    await product.work()
    async with product.scene("drained", after="Never") as scene:
        (claim,) = await scene.run(1)
        (instance,) = scene.alive()
        refused = scene.aws_fault("5xx", "TerminateInstances", instance)
        await _delete(scene, claim)
        await eventually(lambda: _terminating(scene, refused))
        await product.kill()
        assert scene.alive() == [instance]
        scene.forgive(refused)
        await product.go_on()
        await _is_over(scene, claim["metadata"]["name"])


async def test_killed_after_ec2_terminates_and_before_the_answer(product: OwnProduct) -> None:
    await product.work()
    async with product.scene("ended", after="Never") as scene:
        (claim,) = await scene.run(1)
        (instance,) = scene.alive()
        lost = scene.aws_fault("answer-lost", "TerminateInstances", instance)
        await _delete(scene, claim)
        await eventually(lambda: _terminating(scene, lost))
        await product.kill()
        await eventually(lambda: scene.instances_alive(0))
        assert names(await scene.claims()) == names([claim])
        scene.forgive(lost)
        await product.go_on()
        await _is_over(scene, claim["metadata"]["name"])


async def _delete(scene: Scene, claim: Object) -> None:
    """Once no pod is left, since a pod on a node that is going is promised another node at once."""
    await scene.scale(0)
    await eventually(lambda: scene.pods_run(0))
    await scene.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))


async def _terminating(scene: Scene, fault: str) -> None:
    (life,) = await scene.lives()
    assert life.phase == Phase.TERMINATION.value and scene.hits(fault), life


async def _is_over(scene: Scene, name: str) -> None:
    await eventually(lambda: scene.claims_are_gone([name]))
    await scene.one_node_was_bought()
    assert not scene.alive()
    (life,) = await scene.lives()
    assert life.name == name and (await scene.product.lives.outcome(life)).reason == "Deleted"
