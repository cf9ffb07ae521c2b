"""The ports of garbage collection: live lists, and deletion of orphaned objects. The rules of `core.py` apply.

An object with invalid fields must not make its list fail.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tenure.model.garbage_collection import (
    InventoryInstanceProfile,
    InventoryLaunchTemplate,
    InventoryLease,
    InventoryNode,
    InventoryNodeClaim,
    InventoryNodeClass,
)


class Inventory(Protocol):
    """Kubernetes objects for garbage collection."""

    async def list_nodeclaims(self) -> Sequence[InventoryNodeClaim]: ...

    async def list_nodepool_uids(self) -> Mapping[str, str]:
        """By name, without those that are being deleted."""

    async def set_nodepool_owner(self, claim: InventoryNodeClaim, pool_uid: str) -> bool:
        """Add the NodePool to the ownerReferences; False if the NodeClaim is gone or terminating, or has an owner."""

    async def list_nodes(self) -> Sequence[InventoryNode]: ...

    async def get_node(self, name: str) -> InventoryNode | None: ...

    async def node_classes(self) -> Sequence[InventoryNodeClass]: ...

    async def list_leases(self) -> Sequence[InventoryLease]: ...

    async def node_lease(self, name: str) -> InventoryLease | None: ...

    async def delete_node(self, node: InventoryNode) -> bool:
        """Delete the Node with this UID and its termination finalizer; False if it is gone."""

    async def delete_lease(self, lease: InventoryLease) -> bool:
        """Delete the Lease in the version that was read; False if it is gone or was renewed since."""


class OrphanedResources(Protocol):
    """AWS resources created for launches, and the tags of instances."""

    async def list_launch_templates(self) -> Sequence[InventoryLaunchTemplate]:
        """Launch templates with this cluster's tags."""

    async def delete_template(self, template: InventoryLaunchTemplate) -> None: ...

    async def list_instance_profiles(self) -> Sequence[InventoryInstanceProfile]:
        """Instance profiles with this cluster's path; empty if IAM is unreachable."""

    async def delete_profile(self, profile: InventoryInstanceProfile) -> None: ...

    async def tag_instance(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Limited to about one call per second."""
