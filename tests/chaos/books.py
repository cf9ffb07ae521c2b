"""The books at the end: instances, NodeClaims, Nodes and workflows against one another, as if nothing had happened."""

from collections import Counter

from tenure.cli.nodes.workflows import NodeLife
from tenure.kube.client.resources import NODES
from tenure.model.base import instance_id_of
from tenure.model.nodeclaim_state import Phase
from tests.support.product.objects import Object
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names, taints

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def nodes_are_whole(scene: Scene) -> None:
    """Each NodeClaim has one Node and one instance; none is tainted, cordoned or going."""
    claims, nodes = await scene.claims(), await scene.nodes()
    going = [one for one in (*claims, *nodes) if "deletionTimestamp" in one["metadata"]]
    assert not going, f"{scene.name}: {names(going)} are going"
    marked = {node["metadata"]["name"]: taints(node) for node in nodes if taints(node)}
    assert not marked, f"{scene.name}: {marked}"
    cordoned = [node for node in nodes if node["spec"].get("unschedulable")]
    assert not cordoned, f"{scene.name}: {names(cordoned)} are cordoned"
    assert Counter(map(_of_claim, claims)) == Counter(map(_of_node, nodes)) == Counter(scene.alive())


async def lives_were_lived(scene: Scene) -> None:
    """Every workflow completed; every node that joined was drained; every instance was one NodeClaim's."""
    lives = await scene.lives()
    bad = [f"{life.name} {life.status}" for life in lives if life.status != "COMPLETED"]
    assert not bad, f"{scene.name}: {bad}"
    owned = Counter[str]()
    for life in lives:
        owned.update(await _instance_of(scene, life))
    launched = Counter(scene.launched())
    assert owned <= launched and max(launched.values(), default=1) == 1, f"{scene.name}: {owned} of {launched}"


async def _instance_of(scene: Scene, life: NodeLife) -> list[str]:
    outcome = await scene.product.lives.outcome(life)
    phases = [step.phase for step in outcome.story]
    assert phases[-1] is Phase.GONE, f"{life.name} ended in {phases[-1]}"
    drained = Phase.DRAIN in phases or not {Phase.INITIALIZATION, Phase.READY} & set(phases)
    assert drained, f"{life.name} ended without a drain: {phases}"
    return [instance_id_of(outcome.provider_id)] if outcome.provider_id else []


def tokens_were_kept(scene: Scene) -> None:
    """No client token launched more than its call asked for."""
    tokens = set(scene.tokens())
    fleets = [one for one in scene.product.aws.launches() if one["client_token"] in tokens]
    over = [one for one in fleets if len(one["instances"]) > one["target"]["TotalTargetCapacity"]]
    assert not over, f"{scene.name}: more than asked for: {over}"


async def nothing_lingers(product: OwnProduct, scenes: list[Scene]) -> None:
    """No object, finalizer or Lease of a node that is gone, and no workflow that failed."""
    for scene in scenes:
        await scene.nothing_runs()
    nodes = set(names(await product.items(NODES.path())))
    leases = set(names(await product.items(LEASES)))
    assert leases <= nodes, f"Leases of no Node: {leases - nodes}"
    failed = await product.failed_workflows()
    assert not failed, failed


def _of_claim(claim: Object) -> str:
    """Empty while it has no instance."""
    provider = (claim.get("status") or {}).get("providerID", "")
    return instance_id_of(provider) if provider else ""


def _of_node(node: Object) -> str:
    return instance_id_of(node["spec"]["providerID"])
