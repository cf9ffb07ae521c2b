"""Voluntary and involuntary disruption."""

from datetime import UTC, datetime

from tenure.apis import labels
from tenure.cli.disruption.pause import Target, build_pause, send_request
from tenure.model.signals import Resume
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import apply_drain_rules, terminating_pod
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct

BOTH_REPLACED_SECONDS = 240.0


async def test_drifted_nodes_are_replaced_within_budget(product: InstalledProduct) -> None:
    async with product.scope("drift", budget="1") as scope:
        old = object_names(await scope.run_pods(2))
        await product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
        await wait_until(lambda: assert_replaced_one_by_one(scope, old), seconds=BOTH_REPLACED_SECONDS)
        await wait_until(lambda: scope.assert_pods_running(2))
        await scope.wait_until_nodes_launched(4)
        assert {claim["metadata"]["labels"]["team"] for claim in await scope.nodeclaims()} == {"web"}


async def assert_replaced_one_by_one(scope: ClusterScope, old: list[str]) -> None:
    claims = await scope.nodeclaims()
    deleting = [name for claim in claims if "deletionTimestamp" in claim["metadata"] for name in object_names([claim])]
    if len(deleting) > 1:
        raise RuntimeError(f"the budget allows 1 node, and {deleting} are being deleted")
    remaining = [name for name in object_names(claims) if name in old]
    assert not remaining, f"{scope.name}: {remaining} are not replaced"


async def test_spot_interruption_replaces_node_before_it_is_reclaimed(product: InstalledProduct) -> None:
    async with product.scope("spot", capacity_type=labels.SPOT) as scope:
        (claim,) = await scope.run_pods(1)
        (instance,) = scope.launched_instances()
        product.aws.interrupt_spot(instance, notice_seconds=120)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


async def test_cancelled_disruption_returns_node_to_service(product: InstalledProduct) -> None:
    async with product.scope("cancel") as scope:
        (claim,) = await scope.run_pods(1)
        (name,), node = object_names([claim]), claim["status"]["nodeName"]
        await apply_drain_rules(scope, name, whenBlocked="giveUp", blockedFor="1h")
        async with terminating_pod(scope):
            await scope.scale_deployment(0)
            await wait_until(lambda: scope.assert_node_disrupted(node))
            await pause(product, scope)
            await wait_until(lambda: scope.assert_node_not_disrupted(node))
        await scope.assert_nodeclaims_exist([name])
        await resume(product, scope)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def pause(product: InstalledProduct, scope: ClusterScope) -> None:
    requested_pause = build_pause("1h", "", "smoke test", "ann@example.com", datetime.now(UTC))
    await send_request(product.connection, Target(pool=scope.name), "pause", requested_pause)


async def resume(product: InstalledProduct, scope: ClusterScope) -> None:
    await send_request(product.connection, Target(pool=scope.name), "resume", Resume(by="ann@example.com"))
