"""The doors that upkeep needs beside those of `ports.py`: lists of marks, and the ways to put leftovers away.

Lists are live, and no odd object spoils one. Every method raises only `model.faults`; everything may be said twice.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from temporalio.client import Client

from tenure.model.garbage_collection import ClaimMark, LeaseMark, NodeClassMark, NodeMark, ProfileMark, TemplateMark


class Inventory(Protocol):
    """Kubernetes objects as upkeep sees them."""

    async def claims(self) -> Sequence[ClaimMark]: ...

    async def nodes(self) -> Sequence[NodeMark]: ...

    async def node(self, name: str) -> NodeMark | None: ...

    async def node_classes(self) -> Sequence[NodeClassMark]: ...

    async def leases(self) -> Sequence[LeaseMark]: ...

    async def node_lease(self, name: str) -> LeaseMark | None: ...

    async def delete_node(self, node: NodeMark) -> bool:
        """This very one, its termination finalizer included; False when it is gone."""
        ...

    async def delete_lease(self, lease: LeaseMark) -> bool:
        """This very one, as it was read; False when it is gone or was renewed since."""
        ...


class OrphanedResources(Protocol):
    """What is made in AWS for launches, and the tags of instances."""

    async def list_launch_templates(self) -> Sequence[TemplateMark]:
        """Launch templates that carry this cluster's tags."""
        ...

    async def delete_template(self, template: TemplateMark) -> None: ...

    async def list_instance_profiles(self) -> Sequence[ProfileMark]:
        """Instance profiles under this cluster's path; none where IAM cannot be reached."""
        ...

    async def delete_profile(self, profile: ProfileMark) -> None: ...

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
