"""Inventory and orphaned resources of garbage collection, in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tenure.kube.adapters.garbage_collection import to_inventory_node_class, to_inventory_nodeclaim
from tenure.model.garbage_collection import (
    InventoryInstanceProfile,
    InventoryLaunchTemplate,
    InventoryLease,
    InventoryNode,
    InventoryNodeClaim,
    InventoryNodeClass,
)
from tenure.model.nodeclaim.names import nodepool_owner_reference
from tests.support.fakes.faulty import FaultInjectable
from tests.support.fakes.kubernetes import FakeNodeClaims, FakeNodeClasses, FakeNodes

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class FakeInventory(FaultInjectable):
    known_claims: FakeNodeClaims
    known_nodes: FakeNodes
    known_classes: FakeNodeClasses
    known_leases: dict[str, InventoryLease] = field(default_factory=dict)
    nodepool_uids: dict[str, str] = field(default_factory=dict)

    def lease(self, name: str, *, renewed_ago: float = 3600, owner: str = "") -> None:
        """`renewed_ago`: seconds."""
        until = datetime.now(UTC) - timedelta(seconds=renewed_ago - 60)
        self.known_leases[name] = InventoryLease(
            name=name, uid=f"lease-{name}", version="1", owners=(owner,) if owner else (), alive_until=until
        )

    async def list_nodeclaims(self) -> Sequence[InventoryNodeClaim]:
        return [to_inventory_nodeclaim(one) for one in self.known_claims.found.values()]

    async def list_nodepool_uids(self) -> dict[str, str]:
        return dict(self.nodepool_uids)

    async def set_nodepool_owner(self, claim: InventoryNodeClaim, pool_uid: str) -> bool:
        owner = nodepool_owner_reference(claim.pool, pool_uid)
        self.known_claims.found[claim.name]["metadata"]["ownerReferences"] = [owner]
        return True

    async def list_nodes(self) -> Sequence[InventoryNode]:
        return [self._mark(name) for name in self.known_nodes.found]

    async def get_node(self, name: str) -> InventoryNode | None:
        return self._mark(name) if name in self.known_nodes.found else None

    async def node_classes(self) -> Sequence[InventoryNodeClass]:
        return [to_inventory_node_class(one.to_object()) for one in self.known_classes.found.values()]

    async def list_leases(self) -> Sequence[InventoryLease]:
        return list(self.known_leases.values())

    async def node_lease(self, name: str) -> InventoryLease | None:
        return self.known_leases.get(name)

    async def delete_lease(self, lease: InventoryLease) -> bool:
        if self.known_leases.get(lease.name) != lease:
            return False
        del self.known_leases[lease.name]
        return True

    def _mark(self, name: str) -> InventoryNode:
        node = self.known_nodes.found[name]
        return InventoryNode(
            name=node.name,
            uid=node.uid,
            provider_id=node.provider_id,
            ready=node.ready,
            finalizers=node.finalizers,
            created=LONG_AGO,
        )

    async def delete_node(self, node: InventoryNode) -> bool:
        return self.known_nodes.found.pop(node.name, None) is not None


@dataclass
class FakeOrphanedResources(FaultInjectable):
    existing_templates: dict[str, InventoryLaunchTemplate] = field(default_factory=dict)
    existing_profiles: dict[str, InventoryInstanceProfile] = field(default_factory=dict)
    tags_by_instance: dict[str, dict[str, str]] = field(default_factory=dict)

    async def list_launch_templates(self) -> Sequence[InventoryLaunchTemplate]:
        return list(self.existing_templates.values())

    async def delete_template(self, template: InventoryLaunchTemplate) -> None:
        self.existing_templates.pop(template.id, None)

    async def list_instance_profiles(self) -> Sequence[InventoryInstanceProfile]:
        return list(self.existing_profiles.values())

    async def delete_profile(self, profile: InventoryInstanceProfile) -> None:
        self.existing_profiles.pop(profile.name, None)

    async def tag_instance(self, instance_id: str, tags: Mapping[str, str]) -> None:
        self.tags_by_instance.setdefault(instance_id, {}).update(tags)
