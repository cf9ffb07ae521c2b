"""Drains on the real parts: protected pods, escalation, dead kubelets, and single replicas that are surged first."""

from datetime import UTC, datetime, timedelta

from tenure.kube.adapters.workloads import RESTARTED_AT
from tenure.kube.client.resources import NODE_CLAIMS, WORKLOADS
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.drains import delete_under, protect, started, the_pod
from tests.support.product.eventually import eventually
from tests.support.product.product import Product
from tests.support.product.scene import Scene, names


async def test_a_pod_protected_for_a_time_leaves_at_its_time(product: Product) -> None:
    async with product.scene("protected", after="Never") as scene:
        (claim,) = await scene.run(1)
        lasts = datetime.now(UTC) - started(await the_pod(scene)) + timedelta(seconds=60)
        pod = await protect(scene, f"{int(lasts.total_seconds())}s")
        name = claim["metadata"]["name"]
        await product.delete(NODE_CLAIMS.path(name))
        await eventually(lambda: scene.says(name, "do-not-disrupt", "passes at"))
        await eventually(lambda: scene.claims_are_gone([name]))
        assert datetime.now(UTC) >= started(pod) + timedelta(seconds=int(lasts.total_seconds()))


async def test_a_drain_that_is_held_for_too_long_escalates(product: Product) -> None:
    async with product.scene("escalated", after="Never") as scene:
        (claim,) = await scene.run(1)
        pod = await protect(scene, "true")
        await delete_under(scene, claim, whenBlocked="escalate", blockedFor="5s")
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        await eventually(lambda: scene.event(pod["metadata"]["name"], "Disrupted", "its node has to be gone"))


async def test_pods_of_a_kubelet_that_died_in_the_drain_are_waited_for_only_so_long(product: Product) -> None:
    async with product.scene("dead", after="Never") as scene:
        (claim,) = await scene.run(1)
        await protect(scene, "true")
        await delete_under(scene, claim, nodeNotReady="45s")
        await eventually(lambda: scene.says(claim["metadata"]["name"], "do-not-disrupt"))
        await scene.trouble(NotReady(), node=claim["status"]["nodeName"])
        await eventually(lambda: scene.is_blocked_by(claim["metadata"]["name"], "the node is not Ready since"))
        await eventually(lambda: scene.claims_are_gone(names([claim])))


async def test_a_single_replica_has_its_successor_ready_before_it_goes(product: Product) -> None:
    async with product.scene("surged", after="Never") as scene:
        (claim,) = await scene.run(1)
        await delete_under(scene, claim, surgeSingleReplicas=True)
        await eventually(lambda: gone_and_never_down(scene, claim["metadata"]["name"]))
        deployment = await product.kube.request("GET", WORKLOADS["Deployment"].path(scene.name, namespace="default"))
        assert deployment["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT]
        assert deployment["metadata"]["generation"] == 2


class Down(Exception):
    """No pod was Ready at a moment; no AssertionError, so that nobody looks again."""


async def gone_and_never_down(scene: Scene, claim: str) -> None:
    """At every look at least one pod serves."""
    pods = await scene.pods()
    if not any(serves(one) for one in pods):
        raise Down(str([(one["metadata"]["name"], one["status"]) for one in pods]))
    await scene.claims_are_gone([claim])


def serves(pod: dict[str, object]) -> bool:
    """By its containers. Ready is taken for a moment, by the node lifecycle controller, from pods that start just when
    their node turns Ready; no drain can keep it from that."""
    status = pod["status"]
    assert isinstance(status, dict)
    return any(one["type"] == "ContainersReady" and one["status"] == "True" for one in status.get("conditions") or ())
