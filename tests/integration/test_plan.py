"""What people are told of voluntary disruption on the real parts: why a node and a pod stay, and what would be done."""

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.cli.disruption.plan import look
from tenure.cli.nodes.get import read
from tenure.cli.nodes.history import read as history
from tenure.cli.nodes.why import tell
from tenure.cli.temporal_client import Connection
from tenure.kube.client.resources import NODES
from tests.support.product.eventually import eventually
from tests.support.product.product import Product
from tests.support.product.scene import Scene, names


async def test_a_node_says_what_keeps_it_when_that_changes_and_to_whom_asks(product: Product) -> None:
    async with product.scene("asked") as scene:
        (claim,) = names(await scene.run(1))
        (node,) = names(await scene.nodes())
        await product.patch(NODES.path(node), {"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}})
        await eventually(lambda: scene.event(claim, "DisruptionBlocked", f"{DO_NOT_DISRUPT}: true"))
        asking = product.connection
        await eventually(lambda: _tells(asking, node, "disruption  stays (NodeDoNotDisrupt;"))
        pod = (await scene.pods())[0]["metadata"]["name"]
        words = f"Pod default/{pod} · node {node}", "stays (NodeDoNotDisrupt;"
        await eventually(lambda: _tells(asking, f"default/{pod}", *words))
        await eventually(lambda: _is_kept(asking, scene))
        await eventually(lambda: _is_listed(asking, node, claim))
        [(_, events)] = await history(asking, claim)
        assert any(one.kind == "shown" and "Phase Ready" in one.said for one in events)


async def _tells(asking: Connection, name: str, *words: str) -> None:
    said = await tell(asking, name)
    assert all(word in said for word in words), said


async def _is_listed(asking: Connection, node: str, claim: str) -> None:
    listed = await read(asking, [node], "")
    assert [(one.name, one.phase, one.price > 0) for one in listed] == [(claim, "Ready", True)], listed


async def _is_kept(asking: Connection, scene: Scene) -> None:
    found = await look(asking)
    assert not found.blocked and found.nodes >= 1 and found.kept.get("NodeDoNotDisrupt"), found
    mine = {*names(await scene.nodes())}
    assert not any(mine & {*one.nodes} for one in found.commands)
