"""The door that keeping a static pool's number needs beside those of `ports.py`."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from model.replicas import NodeLoad


class Loads(Protocol):
    """What nodes carry."""

    async def on_nodes(self, names: Collection[str], *, now: datetime) -> Mapping[str, NodeLoad]:
        """From live lists; a node that is not there carries nothing. Raises only `model.faults`."""
        ...
