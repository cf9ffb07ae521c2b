"""A worker that is killed, or that lacks a permission."""

from typing import Any

from tenure.cli.sandbox.worker_process import WORKER_KEY
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.drains import budget, budget_counts, budget_path
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import OwnProduct
from tests.support.product.scene import names
from tests.support.product.settings import SHARED

CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tenure"


async def test_worker_killed_during_launch_repeats_the_call_and_gets_the_same_instance(
    own_product: OwnProduct,
) -> None:
    await own_product.work(**SHARED)
    async with own_product.scene("kill-launch") as scene:
        name = await scene.claim_by_hand()
        lost = scene.aws_fault("answer-lost", "CreateFleet", name)
        await eventually(lambda: scene.instances_alive(1))
        await own_product.kill()
        (claim,) = await scene.claims()
        assert "providerID" not in claim.get("status", {})
        scene.forgive(lost)
        await own_product.go_on()
        (claim,) = await eventually(lambda: scene.nodes_are_initialized(1))
        assert [claim["status"]["providerID"].rpartition("/")[2]] == scene.launched() == scene.alive()
        assert len(scene.tokens()) == 1
        await own_product.delete(NODE_CLAIMS.path(name))
        await eventually(lambda: scene.claims_are_gone([name]))


async def test_worker_killed_during_drain_continues_the_drain(own_product: OwnProduct) -> None:
    await own_product.work(**SHARED)
    async with own_product.scene("kill-drain", after="Never") as scene:
        (claim,) = await scene.run(1)
        (name,) = names([claim])
        await scene.make(budget(scene.name, maxUnavailable=0))
        await eventually(lambda: budget_counts(scene, 1))
        await own_product.delete(NODE_CLAIMS.path(name))
        await eventually(lambda: scene.says(name, "maxUnavailable 0"))
        await own_product.kill()
        await throughout(lambda: scene.pods_run(1), seconds=2)
        await own_product.go_on()
        await own_product.patch(budget_path(scene.name), {"spec": {"maxUnavailable": 1}})
        await eventually(lambda: scene.claims_are_gone([name]))


async def test_rbac_denial_of_evictions_is_reported_and_drain_continues_when_granted(
    own_product: OwnProduct,
) -> None:
    await own_product.work(**SHARED)
    role = await own_product.kube.request("GET", CLUSTER_ROLE)
    without = [rule for rule in role["rules"] if "pods/eviction" not in rule.get("resources", ())]
    assert len(without) == len(role["rules"]) - 1
    async with own_product.scene("rbac", after="Never") as scene:
        (claim,) = await scene.run(1)
        (name,) = names([claim])
        await own_product.patch(CLUSTER_ROLE, {"rules": without})
        try:
            await own_product.delete(NODE_CLAIMS.path(name))
            await eventually(lambda: scene.says(name, "pods/eviction"))
            await scene.pods_run(1)
        finally:
            await own_product.patch(CLUSTER_ROLE, {"rules": role["rules"]})
        await eventually(lambda: scene.claims_are_gone([name]))


async def test_iam_denial_of_launches_is_reported_and_node_launches_when_allowed(own_product: OwnProduct) -> None:
    await own_product.work(**SHARED)
    own_product.aws.guard_key(WORKER_KEY, "permissions boundary", deny("ec2:CreateFleet"))
    async with own_product.scene("iam") as scene:
        try:
            await scene.deploy(1)
            await eventually(lambda: claim_says(scene, "ec2:CreateFleet"))
            assert scene.launched() == []
        finally:
            own_product.aws.guard_key(WORKER_KEY, "permissions boundary", None)
        await eventually(lambda: scene.pods_run(1))
        await scene.instances_alive(1)


async def claim_says(scene: Any, words: str) -> None:
    claims = names(await scene.claims())
    assert claims
    await scene.says(claims[0], words)


def deny(action: str) -> dict[str, Any]:
    statements = [
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Deny", "Action": action, "Resource": "*"},
    ]
    return {"Version": "2012-10-17", "Statement": statements}
