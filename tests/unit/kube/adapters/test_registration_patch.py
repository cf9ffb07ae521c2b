"""The patch that registers a Node."""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.kube.adapters.nodes import _registration_patch
from tests.support.kube.builders import claim_json, node_json

CLAIM = claim_json("c1")
CLAIM["metadata"] |= {"uid": "uid-c1", "labels": {labels.NODEPOOL: "general"}}


def registered_node(**metadata: Any) -> dict[str, Any]:
    node = node_json("n1")
    node["metadata"] |= {
        "labels": {labels.REGISTERED: "true", labels.NODEPOOL: "general"},
        "finalizers": [labels.TERMINATION_FINALIZER],
        "ownerReferences": [{"kind": "NodeClaim", "uid": "uid-c1"}],
        **metadata,
    }
    return node


def test_registered_node_is_not_patched() -> None:
    assert _registration_patch(registered_node(), NodeClaim.from_object(CLAIM)) is None
    being_deleted = registered_node(finalizers=[], deletionTimestamp="2026-01-01T12:00:00Z")
    assert _registration_patch(being_deleted, NodeClaim.from_object(CLAIM)) is None


def test_node_of_a_standalone_nodeclaim_needs_no_nodepool_label() -> None:
    standalone = {**CLAIM, "metadata": {**CLAIM["metadata"], "labels": {}}}
    node = registered_node(labels={labels.REGISTERED: "true"})
    assert _registration_patch(node, NodeClaim.from_object(standalone)) is None


@pytest.mark.parametrize(
    ("removed", "field"),
    [
        ({"finalizers": []}, "finalizers"),
        ({"ownerReferences": []}, "ownerReferences"),
        ({"labels": {labels.REGISTERED: "true"}}, "labels"),
    ],
)
def test_removed_part_is_restored_without_annotations_and_other_labels(removed: dict[str, Any], field: str) -> None:
    patch = _registration_patch(registered_node(**removed), NodeClaim.from_object(CLAIM))
    assert patch is not None and patch["metadata"][field]
    assert "annotations" not in patch["metadata"] and patch["metadata"]["labels"] == {labels.NODEPOOL: "general"}
