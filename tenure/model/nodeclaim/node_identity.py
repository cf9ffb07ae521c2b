"""Which Node belongs to a NodeClaim. Caches, plans and reports use this one rule.

Before registration, it is the Node with the provider ID of the NodeClaim. Registration stores its name in
`status.nodeName`. From then on, other Nodes with the same provider ID do not belong to the NodeClaim.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.facts import NodeClaimFact, NodeFact

REGISTERED_GAP: Final = f"label {labels.REGISTERED}"
"""The registration gap of a Node that has never been registered, such as one that its kubelet created again."""
NODEPOOL_GAP: Final = f"label {labels.NODEPOOL}"


class NodeStatus(StrEnum):
    STARTING = "Starting"
    """There has been no Node yet."""
    PRESENT = "Present"
    NOT_READY = "NotReady"
    MISSING = "Missing"
    """It was registered and no longer exists."""


class NodeOwner(Protocol):
    """A NodeClaim, or its fact."""

    @property
    def provider_id(self) -> str: ...

    @property
    def node_name(self) -> str: ...

    @property
    def registered(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    status: NodeStatus
    node: NodeFact | None = None
    strangers: tuple[NodeFact, ...] = ()
    """Other Nodes with the provider ID. Before registration, all but one: registration does not choose among them."""


def identify_node(claim: NodeOwner, with_provider_id: Iterable[NodeFact], named: NodeFact | None) -> NodeIdentity:
    """`with_provider_id`: all Nodes with the provider ID of the claim; `named`: the Node that its status names.

    A Node with another provider ID does not count: EC2 reuses the private DNS names of terminated instances. If the
    named Node is gone, the only other Node replaces it: its kubelet joined again under another name.
    """
    candidates = sorted(with_provider_id, key=lambda one: one.name)
    if is_named(claim):
        own = named if named is not None and named.provider_id in ("", claim.provider_id) else None
        if own is None and len(candidates) == 1:
            own = candidates[0]
    else:
        own = candidates[0] if candidates else named
    strangers = tuple(one for one in candidates if own is None or one.name != own.name)
    return NodeIdentity(_status_of(claim, own), own, strangers)


def identify_nodes(claims: Iterable[NodeClaim], nodes: Iterable[NodeFact]) -> dict[str, NodeIdentity]:
    """By the UID of the NodeClaim, for live lists.

    `nodes` may be those with the label of one NodePool: a Node without it is missing until registration restores it.
    """
    by_name = {node.name: node for node in nodes}
    by_provider: dict[str, list[NodeFact]] = {}
    for node in by_name.values():
        if node.provider_id:
            by_provider.setdefault(node.provider_id, []).append(node)
    return {
        claim.uid: identify_node(claim, by_provider.get(claim.provider_id, ()), by_name.get(claim.node_name))
        for claim in claims
    }


class DuplicateProviderIdError(ValueError):
    """A Node has the provider ID of a NodeClaim whose Node is another one."""


def describe_stranger(node: NodeFact, claim: NodeClaimFact) -> str:
    return (
        f"spec.providerID {node.provider_id} is that of NodeClaim {claim.name}, whose Node is {claim.node_name}; "
        f"Tenure ignores Node {node.name}: delete it, or correct its providerID"
    )


def is_named(claim: NodeOwner) -> bool:
    """Whether registration has stored the name of its Node."""
    return claim.registered and bool(claim.node_name)


def _status_of(claim: NodeOwner, own: NodeFact | None) -> NodeStatus:
    if own is None:
        return NodeStatus.MISSING if claim.registered else NodeStatus.STARTING
    return NodeStatus.PRESENT if own.ready else NodeStatus.NOT_READY
