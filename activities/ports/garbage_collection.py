"""The ports of garbage collection: live lists, and deletion of orphaned objects. They follow the rules of `core.py`.

An object that cannot be read does not spoil its list.
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

    async def list_nodes(self) -> Sequence[InventoryNode]: ...

    async def get_node(self, name: str) -> InventoryNode | None: ...

    async def node_classes(self) -> Sequence[InventoryNodeClass]: ...

    async def list_leases(self) -> Sequence[InventoryLease]: ...

    async def node_lease(self, name: str) -> InventoryLease | None: ...

    async def delete_node(self, node: InventoryNode) -> bool:
        """This very one, its termination finalizer included; False when it is gone."""

    async def delete_lease(self, lease: InventoryLease) -> bool:
        """This very one, as it was read; False when it is gone or was renewed since."""


class OrphanedResources(Protocol):
    """AWS resources created for launches, and the tags of instances."""

    async def list_launch_templates(self) -> Sequence[InventoryLaunchTemplate]:
        """Launch templates that carry this cluster's tags."""

    async def delete_template(self, template: InventoryLaunchTemplate) -> None: ...

    async def list_instance_profiles(self) -> Sequence[InventoryInstanceProfile]:
        """Instance profiles under this cluster's path; none where IAM cannot be reached."""

    async def delete_profile(self, profile: InventoryInstanceProfile) -> None: ...

    async def tag_instance(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Slowly: about one call a second."""
