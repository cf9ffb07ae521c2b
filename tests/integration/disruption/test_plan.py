"""Explanations of voluntary disruption on real components: blockers of a node and a pod, and planned commands."""

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.cli.disruption.plan import fetch_disruption_status
from tenure.cli.nodes.get import read
from tenure.cli.nodes.history import read as history
from tenure.cli.nodes.why import explain_nodes_or_pod, format_explanations
from tenure.cli.temporal_client import Connection
from tenure.kube.client.resources import NODES
from tenure.sandbox.nodes.fault_rules import SlowReady
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct


async def test_blocker_of_a_node_is_shown_in_events_and_commands(product: InstalledProduct) -> None:
    async with product.scope("asked") as scope:
        (claim,) = object_names(await scope.run_pods(1))
        (node,) = object_names(await scope.nodes())
        await product.patch(NODES.path(node), {"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}})
        await wait_until(lambda: scope.assert_event(claim, "DisruptionBlocked", f"{DO_NOT_DISRUPT}: true"))
        connection = product.connection
        await wait_until(lambda: _assert_explained(connection, node, "disruption  not disrupted (NodeDoNotDisrupt;"))
        pod = (await scope.pods())[0]["metadata"]["name"]
        expected = f"Pod default/{pod} · node {node}", "not disrupted (NodeDoNotDisrupt;"
        await wait_until(lambda: _assert_explained(connection, f"default/{pod}", *expected))
        await wait_until(lambda: _assert_ineligible(connection, scope))
        await wait_until(lambda: _assert_listed(connection, node, claim))
        [(_, events)] = await history(connection, claim)
        assert any(one.kind == "shown" and "Phase Ready" in one.text for one in events)


async def test_command_of_a_node_is_explained(product: InstalledProduct) -> None:
    async with product.scope("explained", after="Never") as scope:
        (claim,) = object_names(await scope.run_pods(1))
        await scope.inject_node_fault(SlowReady(seconds=20))
        await product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
        waits = "command     Drifted (step Wait): waits for"
        await wait_until(lambda: _assert_explained(product.connection, claim, waits))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([claim]))


async def _assert_explained(connection: Connection, name: str, *messages: str) -> None:
    explanation = format_explanations(await explain_nodes_or_pod(connection, name))
    assert all(message in explanation for message in messages), explanation


async def _assert_listed(connection: Connection, node: str, claim: str) -> None:
    listed = await read(await connection.connect(), connection.cluster, [node], "")
    assert [(one.name, one.phase, one.price > 0) for one in listed] == [(claim, "Ready", True)], listed


async def _assert_ineligible(connection: Connection, scope: ClusterScope) -> None:
    found = await fetch_disruption_status(connection)
    assert not found.blocked and found.nodes >= 1 and found.ineligible.get("NodeDoNotDisrupt"), found
    own_nodes = {*object_names(await scope.nodes())}
    assert not any(own_nodes & {*one.nodes} for one in found.commands)
