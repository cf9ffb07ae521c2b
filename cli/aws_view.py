"""What the AWS stand-in was asked and what it holds: calls, instances, launch templates.

The demo and the benchmark count by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True)
class Instance:
    id: str
    state: str


class AwsView:
    """Reads the stand-in's control API, which counts nothing of that. `close` ends its session."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        await self._session.close()

    async def calls(self) -> dict[str, int]:
        """By `service:Action`, since the start."""
        answer = await self._get("counters")
        return {action: entry["count"] for action, entry in answer["calls"].items()}

    async def instances(self) -> list[Instance]:
        """Every one that the stand-in still lists, whatever its state."""
        answer = await self._get("instances")
        return [Instance(one["id"], one["state"]) for one in answer["instances"]]

    async def launch_templates(self) -> list[str]:
        answer = await self._get("launch-templates")
        return [one["name"] for one in answer["launch_templates"]]

    async def _get(self, what: str) -> Any:
        async with self._session.get(f"{self._endpoint}/_sim/{what}") as response:
            response.raise_for_status()
            return await response.json()


def since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The calls made between two looks."""
    counts = {action: count - before.get(action, 0) for action, count in after.items()}
    return {action: count for action, count in counts.items() if count}
