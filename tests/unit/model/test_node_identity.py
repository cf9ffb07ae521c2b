"""Which Node belongs to a NodeClaim."""

from typing import Any

import pytest

from tenure.model.facts import NodeClaimFact, NodeFact
from tenure.model.nodeclaim.node_identity import NodeStatus, identify_node
from tests.support.controller.builders import claim_fact, node_fact

PROVIDER_ID = "aws:///us-west-2a/i-n1"
REGISTERED = {"registered": True, "node_name": "n1"}


def nodes(*names: str, **more: Any) -> list[NodeFact]:
    return [node_fact(name=name, uid=f"uid-{name}", **more) for name in names]


def identify(claim: NodeClaimFact, existing: list[NodeFact]) -> tuple[NodeStatus, str, list[str]]:
    with_provider_id = [one for one in existing if one.provider_id == claim.provider_id]
    named = next((one for one in existing if one.name == claim.node_name), None)
    found = identify_node(claim, with_provider_id, named)
    return found.status, found.node.name if found.node else "", [one.name for one in found.strangers]


@pytest.mark.parametrize(
    ("claim", "existing", "expected"),
    [
        ({}, [], (NodeStatus.STARTING, "", [])),
        ({}, nodes("n1"), (NodeStatus.PRESENT, "n1", [])),
        ({}, nodes("n1", ready=False), (NodeStatus.NOT_READY, "n1", [])),
        ({}, nodes("n2", "n1"), (NodeStatus.PRESENT, "n1", ["n2"])),
        (REGISTERED, nodes("n1"), (NodeStatus.PRESENT, "n1", [])),
        (REGISTERED, nodes("n1", ready=False), (NodeStatus.NOT_READY, "n1", [])),
        (REGISTERED, [], (NodeStatus.MISSING, "", [])),
        (REGISTERED, nodes("n0", "n1"), (NodeStatus.PRESENT, "n1", ["n0"])),
        (REGISTERED, nodes("n2"), (NodeStatus.PRESENT, "n2", [])),
        (REGISTERED, nodes("n2", "n3"), (NodeStatus.MISSING, "", ["n2", "n3"])),
        (REGISTERED, nodes("n1", provider_id=""), (NodeStatus.PRESENT, "n1", [])),
        (REGISTERED, nodes("n1", provider_id="aws:///us-west-2a/i-other"), (NodeStatus.MISSING, "", [])),
        ({"registered": True}, nodes("n1"), (NodeStatus.PRESENT, "n1", [])),
    ],
    ids=[
        "not joined",
        "joined",
        "joined and not ready",
        "two before registration",
        "registered",
        "not ready",
        "gone",
        "second Node with its provider ID",
        "joined again under another name",
        "gone with two candidates",
        "provider ID not set yet",
        "name reused by another instance",
        "registered without a name",
    ],
)
def test_node_of_a_nodeclaim(
    claim: dict[str, Any], existing: list[NodeFact], expected: tuple[NodeStatus, str, list[str]]
) -> None:
    found = claim_fact(provider_id=PROVIDER_ID, **claim)
    assert identify(found, existing) == expected
    assert identify(found, existing[::-1]) == expected, "the order of the Nodes does not matter"
