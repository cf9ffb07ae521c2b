"""The doors that upkeep needs beside those of `ports.py`: lists of marks, and the ways to put leftovers away.

Lists are live, and no odd object spoils one. Every method raises only `model.faults`; everything may be said twice.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from temporalio.client import Client

from tenure.model.garbage_collection import (
    InventoryInstanceProfile,
    InventoryLaunchTemplate,
    InventoryLease,
    InventoryNode,
    InventoryNodeClaim,
    InventoryNodeClass,
)


class Inventory(Protocol):
    """Kubernetes objects as upkeep sees them."""

    async def list_nodeclaims(self) -> Sequence[InventoryNodeClaim]: ...

    async def list_nodes(self) -> Sequence[InventoryNode]: ...

    async def get_node(self, name: str) -> InventoryNode | None: ...

    async def node_classes(self) -> Sequence[InventoryNodeClass]: ...

    async def list_leases(self) -> Sequence[InventoryLease]: ...

    async def node_lease(self, name: str) -> InventoryLease | None: ...

    async def delete_node(self, node: InventoryNode) -> bool:
        """This very one, its termination finalizer included; False when it is gone."""
        ...

    async def delete_lease(self, lease: InventoryLease) -> bool:
        """This very one, as it was read; False when it is gone or was renewed since."""
        ...


class OrphanedResources(Protocol):
    """What is made in AWS for launches, and the tags of instances."""

    async def list_launch_templates(self) -> Sequence[InventoryLaunchTemplate]:
        """Launch templates that carry this cluster's tags."""
        ...

    async def delete_template(self, template: InventoryLaunchTemplate) -> None: ...

    async def list_instance_profiles(self) -> Sequence[InventoryInstanceProfile]:
        """Instance profiles under this cluster's path; none where IAM cannot be reached."""
        ...

    async def delete_profile(self, profile: InventoryInstanceProfile) -> None: ...

    async def tag_instance(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Slowly: about one call a second."""
        ...


class LaunchGroups(Protocol):
    """Launches under way, as the workflows know them."""

    async def find_open(self, group_ids: Set[str]) -> Set[str]:
        """Those of them that still hand out what they bought. Raises TryLater when nobody can tell."""
        ...


@dataclass(frozen=True)
class GarbageCollectionPorts:
    inventory: Inventory
    orphaned_resources: OrphanedResources
    groups: LaunchGroups
    temporal: Client
