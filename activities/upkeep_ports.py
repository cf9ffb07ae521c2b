"""The doors that upkeep needs beside those of `ports.py`: lists of marks, and the ways to put leftovers away.

Lists are live, and no odd object spoils one. Every method raises only `model.faults`; everything may be said twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model.upkeep import ClaimMark, LeaseMark, NodeClassMark, NodeMark


class Inventory(Protocol):
    """Kubernetes objects as upkeep sees them."""

    async def claims(self) -> Sequence[ClaimMark]: ...

    async def nodes(self) -> Sequence[NodeMark]: ...

    async def node(self, name: str) -> NodeMark | None: ...

    async def node_classes(self) -> Sequence[NodeClassMark]: ...

    async def leases(self) -> Sequence[LeaseMark]: ...

    async def node_lease(self, name: str) -> LeaseMark | None: ...

    async def delete_lease(self, lease: LeaseMark) -> bool:
        """This very one, as it was read; False when it is gone or was renewed since."""
        ...


@dataclass(frozen=True)
class UpkeepPorts:
    inventory: Inventory
