"""One list-watch loop per kind: every object once, then every change, until it is cancelled.

A list is paged; a watch resumes by resourceVersion with bookmarks. A lost version leads to a new list, whose
difference to the last is delivered.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.json_reader import parse_json
from tenure.kube.client.resources import Resource
from tenure.model.errors import Fault, Forbidden, TryLater

log = structlog.get_logger(__name__)

PAGE: Final = 500
WATCH_SECONDS: Final = 290
"""The server ends a watch after this time, and the client resumes it."""
SILENCE: Final = 75.0
"""Seconds without a byte after which a connection counts as dead; bookmarks come about every minute."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 15.0
_FORBIDDEN_PAUSE: Final = 15.0
_MIN_CONNECTION_SECONDS: Final = 1.0
"""Seconds; a shorter connection counts as a failure, which prevents reconnecting in a hot loop."""
_EXPIRED_REASONS: Final = ("Expired", "Gone", "410")
"""The reasons of a 410: on the request itself, or for the token of a page that is too old."""


@dataclass(frozen=True)
class Delta:
    """A change: the current object, or its last state with `is_deleted`."""

    object: Json
    is_deleted: bool = False


class VersionLost(Exception):
    """The server no longer knows our resourceVersion."""


@dataclass
class ListWatch:
    """Run it in a task. `on_deltas` gets deltas in order, never two calls at once, and must not block."""

    client: KubeClient
    resource: Resource
    on_deltas: Callable[[list[Delta]], None]
    now: Callable[[], float]
    """A monotonic clock, in seconds."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Selectors."""
    silence: float = SILENCE
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first whole list."""
    cut_since: float | None = None
    """When the last connection ended; None while one is open. Delivered objects are as old as that."""
    relists: int = 0
    _version: str = ""
    _known: dict[str, Json] = field(default_factory=dict)

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            started = self.now()
            fault = await self._list_and_watch()
            if self.cut_since is None:
                self.cut_since = self.now()
            failures = failures + 1 if self.now() - started < _MIN_CONNECTION_SECONDS else int(fault is not None)
            if failures:
                is_unreachable = fault is not None and fault.is_unreachable  # `Endpoints` logs this.
                log_at_level = log.debug if failures == 1 or is_unreachable else log.warning
                log_at_level("watch interrupted", kind=self.resource.kind, fault=str(fault or ""), failures=failures)
                await asyncio.sleep(_pause(fault, failures))

    def is_fresh(self, within: float) -> bool:
        """Whether every object is known with a state at most `within` seconds old."""
        return self.synced.is_set() and (self.cut_since is None or self.now() - self.cut_since <= within)

    async def _list_and_watch(self) -> Fault | None:
        """List where needed and watch until the connection ends; None when the server ended it in good order."""
        try:
            if not self._version:
                await self._list()
            await self._watch()
        except VersionLost:
            self._version = ""
        except Fault as fault:
            if fault.code in _EXPIRED_REASONS:
                self._version = ""
            return fault
        return None

    async def _list(self) -> None:
        objects: dict[str, Json] = {}
        page: dict[str, str] = {**self.params, "limit": str(PAGE)}
        while True:
            response = await self.client.request("GET", self.resource.path(), params=page, timeout=60.0)
            for item in response.get("items") or ():
                # Half of what a pod takes as Python objects, and all of a kind is held until the last page is there.
                item["metadata"].pop("managedFields", None)
                objects[item["metadata"]["uid"]] = item
            metadata = response["metadata"]
            if not metadata.get("continue"):
                break
            page["continue"] = metadata["continue"]
        self._replace_known(objects)
        self._version = metadata["resourceVersion"]
        self.relists += 1
        self.synced.set()

    def _replace_known(self, objects: dict[str, Json]) -> None:
        deletions = [Delta(old, is_deleted=True) for uid, old in self._known.items() if uid not in objects]
        changed = [
            Delta(new) for uid, new in objects.items() if _version_of(new) != _version_of(self._known.get(uid, {}))
        ]
        self._known = {uid: _identity_stub(item) for uid, item in objects.items()}
        if deletions or changed:
            self.on_deltas(deletions + changed)

    async def _watch(self) -> None:
        params = {
            **self.params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with self.client.stream_lines(self.resource.path(), params=params, silence=self.silence) as lines:
            self.cut_since = None
            async for line in lines:
                self._handle_event(parse_json(line))

    def _handle_event(self, event: dict[str, Any]) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise _watch_error(item)
        self._version = _version_of(item)
        if kind == "BOOKMARK":
            return
        uid = item["metadata"]["uid"]
        if kind == "DELETED":
            self._known.pop(uid, None)
        else:
            self._known[uid] = _identity_stub(item)
        self.on_deltas([Delta(item, is_deleted=kind == "DELETED")])


def _pause(fault: Fault | None, failures: int) -> float:
    """Seconds, with jitter; the server's Retry-After if it sent one."""
    if fault is not None and fault.retry_after is not None:
        return fault.retry_after + random.uniform(0, 0.5)
    first = _FORBIDDEN_PAUSE if isinstance(fault, Forbidden) else _FIRST_PAUSE
    return random.uniform(0.5, 1.0) * min(_LONGEST_PAUSE, first * 2.0 ** min(failures - 1, 10))


def _version_of(item: Json) -> str:
    version: str = item.get("metadata", {}).get("resourceVersion", "")
    return version


def _identity_stub(item: Json) -> Json:
    """Identity of an object whose deletion a later list reveals: names and version."""
    metadata = item["metadata"]
    retained_keys = ("uid", "name", "namespace", "resourceVersion")
    return {"metadata": {key: metadata[key] for key in retained_keys if key in metadata}}


def _watch_error(status: Json) -> Exception:
    if status.get("code") == 410:
        return VersionLost()
    return TryLater(f"watch: {status.get('message', 'no message')}", code=str(status.get("reason", "")))
