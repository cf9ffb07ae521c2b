"""Drains on the real parts: protected pods, escalation, dead kubelets."""

from datetime import UTC, datetime, timedelta

from tenure.kube.client.resources import NODE_CLAIMS
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.drains import annotate_do_not_disrupt, delete_with_drain_rules, single_pod, started_at
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct
from tests.support.product.scene import object_names


async def test_a_pod_protected_for_a_time_leaves_at_its_time(product: InstalledProduct) -> None:
    async with product.scope("protected", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        lasts = datetime.now(UTC) - started_at(await single_pod(scope)) + timedelta(seconds=60)
        pod = await annotate_do_not_disrupt(scope, f"{int(lasts.total_seconds())}s")
        name = claim["metadata"]["name"]
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_conditions_mention(name, "do-not-disrupt", "passes at"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        assert datetime.now(UTC) >= started_at(pod) + timedelta(seconds=int(lasts.total_seconds()))


async def test_a_drain_that_is_held_for_too_long_escalates(product: InstalledProduct) -> None:
    async with product.scope("escalated", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        pod = await annotate_do_not_disrupt(scope, "true")
        await delete_with_drain_rules(scope, claim, whenBlocked="escalate", blockedFor="5s")
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        await wait_until(lambda: scope.assert_event(pod["metadata"]["name"], "Disrupted", "its node terminates then"))


async def test_pods_of_a_kubelet_that_died_in_the_drain_are_waited_for_only_so_long(product: InstalledProduct) -> None:
    async with product.scope("dead", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        await annotate_do_not_disrupt(scope, "true")
        await delete_with_drain_rules(scope, claim, nodeNotReady="45s")
        await wait_until(lambda: scope.assert_conditions_mention(claim["metadata"]["name"], "do-not-disrupt"))
        await scope.inject_node_fault(NotReady(), node=claim["status"]["nodeName"])
        await wait_until(lambda: scope.assert_blocked_by(claim["metadata"]["name"], "the node is NotReady since"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
