"""The doors that only hooks need, as Protocols beside those of `ports.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from model.hooks import CallAnswer, JobFact, JobWanted


class Jobs(Protocol):
    """Jobs that hooks make."""

    async def get(self, namespace: str, name: str) -> JobFact | None: ...

    async def create(self, wanted: JobWanted) -> JobFact:
        """The Job that has this name now: this one, or the one that was there already."""
        ...


class Calls(Protocol):
    """Services that hooks call."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallAnswer:
        """Whatever the answer is; no redirect is followed. Raises TryLater when there is none within `seconds`."""
        ...


@dataclass(frozen=True)
class HookPorts:
    jobs: Jobs
    calls: Calls
