"""What the AWS stand-in was asked by the worker, and what it holds of it: calls, refusals, instances, launch templates.

The demo and the benchmark count by it. It reads the stand-in's control API, which counts nothing of that.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.aws.control import AwsControl


@dataclass(frozen=True)
class Instances:
    """Since the start."""

    launched: int
    terminated: int


class AwsView:
    """`key` is the access key that the worker calls with."""

    def __init__(self, control: AwsControl, key: str) -> None:
        self._control, self._key = control, key

    async def calls(self) -> dict[str, int]:
        """By `service:Action`, since the start."""
        return {action: entry["count"] for action, entry in (await self._counters()).items()}

    async def denied(self) -> list[str]:
        """What its IAM policy did not allow, each action once."""
        denials = await asyncio.to_thread(self._control.denials)
        return sorted({denial["action"] for denial in denials if denial["access_key"] == self._key})

    async def instances(self) -> Instances:
        """Whoever launched them."""
        answer = await asyncio.to_thread(self._control.instances)
        return Instances(launched=answer["launched"], terminated=answer["terminated"])

    async def launch_templates(self) -> int:
        """Those that were created and not deleted."""
        calls = await self._counters()
        created, deleted = (calls.get(f"ec2:{verb}LaunchTemplate", {}) for verb in ("Create", "Delete"))
        return _successes(created) - _successes(deleted)

    async def _counters(self) -> dict[str, dict[str, Any]]:
        return await asyncio.to_thread(self._control.counters, self._key)


def _successes(entry: Mapping[str, int]) -> int:
    return entry.get("count", 0) - entry.get("errors", 0)


def since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The calls made between two looks."""
    counts = {action: count - before.get(action, 0) for action, count in after.items()}
    return {action: count for action, count in counts.items() if count}
