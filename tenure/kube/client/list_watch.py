"""List-watch loop of one kind: delivers every object, then every change, until it is cancelled.

Lists are paged. A watch resumes at its resourceVersion, which bookmarks advance. If the version has expired, the loop
lists again and delivers the difference.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json, read_json
from tenure.kube.client.resources import Resource
from tenure.model.errors import Fault, Forbidden, NotFound, TryLater

log = structlog.get_logger(__name__)

PAGE: Final = 500
_BATCH: Final = 100
"""Objects of a page that are handled before other tasks run."""
WATCH_SECONDS: Final = 290
"""The server closes a watch after this time, and the client resumes it."""
SILENCE: Final = 75.0
"""A connection without data for this time counts as broken; bookmarks arrive about every minute."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 15.0
_FORBIDDEN_PAUSE: Final = 15.0
_OPTIONAL_PAUSE: Final = 300.0
_MIN_CONNECTION_SECONDS: Final = 1.0
"""A shorter connection counts as a failure, which prevents reconnecting in a hot loop."""
_EXPIRED_REASONS: Final = ("Expired", "Gone", "410")
"""Reasons of a 410 response: for the resourceVersion, or for an expired continue token."""


@dataclass(frozen=True)
class Delta:
    """A change: the current object, or the last known state of a deleted object."""

    object: Json
    is_deleted: bool = False


class VersionLost(Exception):
    """The resourceVersion of the watch has expired."""


@dataclass
class ListWatch:
    """`on_deltas` receives deltas in order, without concurrent calls, and must not block."""

    client: KubeClient
    resource: Resource
    on_deltas: Callable[[list[Delta]], None]
    now: Callable[[], float]
    """A monotonic clock, in seconds."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Query parameters, such as selectors."""
    silence: float = SILENCE
    is_optional: bool = False
    """The cluster may lack the kind, or the permission to read it."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first complete list."""
    attempted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first list, whether it succeeded or failed."""
    cut_since: float | None = None
    """When the last connection ended; None while one is open. Delivered objects are current up to this time."""
    relists: int = 0
    _version: str = ""
    _known: dict[str, Json] = field(default_factory=dict)

    async def run(self) -> None:
        """Runs until cancelled."""
        failures = 0
        while True:
            started = self.now()
            fault = await self._list_and_watch()
            self.attempted.set()
            if self.cut_since is None:
                self.cut_since = self.now()
            if self.is_optional and isinstance(fault, (Forbidden, NotFound)):
                log.info("optional kind skipped", kind=self.resource.kind, fault=str(fault))
                await asyncio.sleep(_OPTIONAL_PAUSE)
                continue
            failures = failures + 1 if self.now() - started < _MIN_CONNECTION_SECONDS else int(fault is not None)
            if failures:
                is_unreachable = fault is not None and fault.is_unreachable  # `Endpoints` logs this.
                log_at_level = log.debug if failures == 1 or is_unreachable else log.warning
                log_at_level("watch interrupted", kind=self.resource.kind, fault=str(fault or ""), failures=failures)
                await asyncio.sleep(_pause(fault, failures))

    def is_fresh(self, within: float) -> bool:
        """Whether the delivered objects are at most `within` seconds old."""
        return self.synced.is_set() and (self.cut_since is None or self.now() - self.cut_since <= within)

    async def _list_and_watch(self) -> Fault | None:
        """List if needed, and watch until the connection ends. None if the server closed it normally."""
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
        """While no object is known, deliver them in batches while the next page is read, so that two pages are in
        memory. Otherwise deliver all changes at once, since a deletion must precede the new object of the same name."""
        is_first, uids, changed = not self._known, set[str](), dict[str, Json]()
        page = asyncio.create_task(self._read_page())
        try:
            while True:
                response = await page
                metadata = response["metadata"]
                if metadata.get("continue"):
                    page = asyncio.create_task(self._read_page(metadata["continue"]))
                items = response.get("items") or []
                if is_first:
                    await self._deliver_in_batches(items)
                else:
                    objects = _by_uid(items)
                    uids |= objects.keys()
                    changed |= self._select_changed(objects)
                if not metadata.get("continue"):
                    break
        finally:
            page.cancel()
            await asyncio.gather(page, return_exceptions=True)
        if not is_first:
            self._deliver(changed, [Delta(old, is_deleted=True) for uid, old in self._known.items() if uid not in uids])
        self._version = metadata["resourceVersion"]
        self.relists += 1
        self.synced.set()
        self.attempted.set()

    async def _read_page(self, token: str = "") -> Json:
        params = {**self.params, "limit": str(PAGE), **({"continue": token} if token else {})}
        return await self.client.request("GET", self.resource.path(), params=params, timeout=60.0)

    async def _deliver_in_batches(self, items: Sequence[Json]) -> None:
        for start in range(0, len(items), _BATCH):
            self._deliver(_by_uid(items[start : start + _BATCH]))
            await asyncio.sleep(0)

    def _select_changed(self, objects: Mapping[str, Json]) -> Mapping[str, Json]:
        known = self._known
        return {uid: new for uid, new in objects.items() if _version_of(new) != _version_of(known.get(uid, {}))}

    def _deliver(self, objects: Mapping[str, Json], deletions: Sequence[Delta] = ()) -> None:
        for one in deletions:
            del self._known[one.object["metadata"]["uid"]]
        self._known |= {uid: identity_stub(item) for uid, item in objects.items()}
        if deletions or objects:
            self.on_deltas([*deletions, *map(Delta, objects.values())])

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
                self._handle_event(read_json(line, what=f"WATCH {self.resource.path()}"))

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
            self._known[uid] = identity_stub(item)
        self.on_deltas([Delta(item, is_deleted=kind == "DELETED")])


def _by_uid(items: Iterable[Json]) -> dict[str, Json]:
    """The objects without managedFields, which are half of a pod's memory."""
    found = {}
    for item in items:
        item["metadata"].pop("managedFields", None)
        found[item["metadata"]["uid"]] = item
    return found


def _pause(fault: Fault | None, failures: int) -> float:
    """Seconds until the next connection: the server's Retry-After, else exponential; with jitter."""
    if fault is not None and fault.retry_after is not None:
        return fault.retry_after + random.uniform(0, 0.5)
    first = _FORBIDDEN_PAUSE if isinstance(fault, Forbidden) else _FIRST_PAUSE
    return random.uniform(0.5, 1.0) * min(_LONGEST_PAUSE, first * 2.0 ** min(failures - 1, 10))


def _version_of(item: Json) -> str:
    version: str = item.get("metadata", {}).get("resourceVersion", "")
    return version


def identity_stub(item: Json) -> Json:
    """The identity and version of an object, for the delta of a deletion that a later list reveals."""
    metadata = item["metadata"]
    retained_keys = ("uid", "name", "namespace", "resourceVersion")
    return {"metadata": {key: metadata[key] for key in retained_keys if key in metadata}}


def _watch_error(status: Json) -> Exception:
    if status.get("code") == 410:
        return VersionLost()
    return TryLater(f"watch: {status.get('message', 'no message')}", code=str(status.get("reason", "")))
