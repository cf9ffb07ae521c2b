"""Final checks that instances, NodeClaims, Nodes and workflows are consistent, as in a run without faults."""

from collections import Counter

from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.kube.client.resources import NODES
from tenure.model.base import parse_instance_id
from tenure.model.nodeclaim.state import Phase
from tests.support.product.cluster_scope import ClusterScope, object_names, taint_texts
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def assert_nodes_consistent(scope: ClusterScope) -> None:
    """Each NodeClaim has one Node and one instance; none is tainted, cordoned or deleting."""
    claims, nodes = await scope.nodeclaims(), await scope.nodes()
    deleting = [one for one in (*claims, *nodes) if "deletionTimestamp" in one["metadata"]]
    assert not deleting, f"{scope.name}: {object_names(deleting)} are deleting"
    tainted = {node["metadata"]["name"]: taint_texts(node) for node in nodes if taint_texts(node)}
    assert not tainted, f"{scope.name}: {tainted}"
    cordoned = [node for node in nodes if node["spec"].get("unschedulable")]
    assert not cordoned, f"{scope.name}: {object_names(cordoned)} are cordoned"
    assert (
        Counter(map(_nodeclaim_instance_id, claims))
        == Counter(map(_node_instance_id, nodes))
        == Counter(scope.alive_instances())
    )


async def assert_workflows_completed(scope: ClusterScope) -> None:
    """Every workflow completed, every registered node was drained, and every instance belonged to one NodeClaim."""
    nodeclaims = await scope.nodeclaim_workflows()
    failed = [f"{nodeclaim.name} {nodeclaim.status}" for nodeclaim in nodeclaims if nodeclaim.status != "COMPLETED"]
    assert not failed, f"{scope.name}: {failed}"
    owned = Counter[str]()
    for nodeclaim in nodeclaims:
        owned.update(await _drained_instance(scope, nodeclaim))
    launched = Counter(scope.launched_instances())
    assert owned <= launched and max(launched.values(), default=1) == 1, f"{scope.name}: {owned} of {launched}"


async def _drained_instance(scope: ClusterScope, nodeclaim: NodeClaimSummary) -> list[str]:
    outcome = await scope.product.nodeclaim_workflows.fetch_outcome(nodeclaim)
    phases = [step.phase for step in outcome.history]
    assert phases[-1] is Phase.DELETED, f"{nodeclaim.name} ended in {phases[-1]}"
    drained = Phase.DRAIN in phases or not {Phase.INITIALIZATION, Phase.READY} & set(phases)
    assert drained, f"{nodeclaim.name} ended without a drain: {phases}"
    return [parse_instance_id(outcome.provider_id)] if outcome.provider_id else []


def assert_client_tokens_respected(scope: ClusterScope) -> None:
    """No client token launched more instances than its call requested."""
    tokens = set(scope.client_tokens())
    fleets = [one for one in scope.product.aws.list_fleets() if one["client_token"] in tokens]
    oversized = [one for one in fleets if len(one["instances"]) > one["target"]["TotalTargetCapacity"]]
    assert not oversized, f"{scope.name}: more than requested: {oversized}"


async def assert_nothing_remains(product: DedicatedProduct, scopes: list[ClusterScope]) -> None:
    """No object, finalizer or Lease of a deleted node remains, and no workflow failed."""
    for scope in scopes:
        await scope.assert_no_nodes()
    nodes = set(object_names(await product.items(NODES.path())))
    leases = set(object_names(await product.items(LEASES)))
    assert leases <= nodes, f"Leases without Node: {leases - nodes}"
    failed = await product.failed_workflows()
    assert not failed, failed


def _nodeclaim_instance_id(claim: Object) -> str:
    """Empty while the NodeClaim has no instance."""
    provider = (claim.get("status") or {}).get("providerID", "")
    return parse_instance_id(provider) if provider else ""


def _node_instance_id(node: Object) -> str:
    return parse_instance_id(node["spec"]["providerID"])
