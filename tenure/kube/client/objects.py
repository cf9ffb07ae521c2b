"""Reads, lists, patches and deletes objects of one kind, with few calls.

A patch is built from the cached object and sent with its resourceVersion. After a conflict, it is built again from a
new read. The cache only saves reads: before the result "nothing to change", the object is read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

import structlog

from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.resources import Resource
from tenure.model.errors import Conflict, NotFound
from tenure.model.invalid_objects import InvalidObjects, object_key

log = structlog.get_logger(__name__)
T = TypeVar("T")

CACHE_SIZE: Final = 256
CACHE_TTL_SECONDS: Final = 60.0
"""Minimum lifetime of an entry; at most twice as long. A patch follows a read soon, and a Node takes 30 KB."""
TRIES: Final = 6
_PAGE: Final = 250

BuildPatch = Callable[[Json], Json | None]
"""Builds a merge patch without resourceVersion from an object; None if nothing changes."""


class Objects:
    """The objects of one kind, in one namespace if namespaced."""

    def __init__(self, client: KubeClient, resource: Resource, namespace: str = "") -> None:
        self.client = client
        self.resource = resource
        self._namespace = namespace
        self._cache: OrderedDict[str, tuple[float, Json]] = OrderedDict()
        """(time of the read on the event loop's clock, object) by name, oldest first."""
        self._expiry_timer: asyncio.TimerHandle | None = None

    async def get(self, name: str) -> Json | None:
        found = await self.client.get(self._object_path(name))
        return self._store_in_cache(name, found)

    async def iterate(self, labels: Mapping[str, str] | None = None) -> AsyncIterator[Json]:
        """All objects of a consistent list, with one page in memory at a time."""
        params = {"limit": str(_PAGE)}
        if labels:
            params["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        continue_token = "first"
        while continue_token:
            response = await self.client.request("GET", self._object_path(), params=params)
            for item in response.get("items") or ():
                yield item
            continue_token = params["continue"] = response["metadata"].get("continue") or ""
            response, item = {}, None

    async def check_access(self) -> None:
        """Raises Fault if the objects cannot be listed."""
        await self.client.request("GET", self._object_path(), params={"limit": "1"})

    async def read_each(
        self,
        read: Callable[[Json], T],
        read_identity: Callable[[Json], T] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[T]:
        """Parse all objects with `read`. If it raises, log the error and use `read_identity`; without it, leave the
        object out."""
        found: list[T] = []
        invalid = InvalidObjects()
        async for item in self.iterate(labels):
            try:
                found.append(read(item))
            except Exception as error:
                invalid.record(object_key(item, self.resource.kind), error)
                if read_identity is not None:
                    found.append(read_identity(item))
        for one in invalid.report().objects:
            log.error("object is invalid", **one.model_dump())
        return found

    async def list(self, labels: Mapping[str, str] | None = None) -> list[Json]:
        """All objects in memory, for kinds with few objects."""
        return [item async for item in self.iterate(labels)]

    async def create(self, body: Json) -> Json:
        """Create the object. If it exists, return the existing one, which may be from an earlier attempt."""
        manifest = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **body}
        name = body["metadata"]["name"]
        try:
            created = await self.client.request("POST", self._object_path(), body=manifest)
        except Conflict:
            existing = await self.get(name)
            if existing is None:
                raise
            return existing
        self._store_in_cache(name, created)
        return created

    async def patch_with_retry(
        self, name: str, build_patch: BuildPatch, *, uid: str = "", sub: str = ""
    ) -> Json | None:
        """The object after the patch; None if it, or the one with this UID, is gone.

        Raises Conflict after TRIES conflicts.
        """
        _, base = self._cache.get(name, (0.0, None))
        is_fresh = base is None or (uid != "" and base["metadata"]["uid"] != uid)
        if is_fresh:
            base = await self.get(name)
        for attempt in range(TRIES):
            if base is None or (uid and base["metadata"]["uid"] != uid):
                return None
            patch = build_patch(base)
            if patch is None and is_fresh:
                return base
            try:
                if patch is not None:
                    return self._store_in_cache(name, await self._send_patch(name, base, patch, sub))
            except NotFound:
                return self._store_in_cache(name, None)
            except Conflict:
                if attempt == TRIES - 1:
                    raise
            base, is_fresh = await self.get(name), True
        return base

    async def delete(self, name: str, *, uid: str = "") -> bool:
        """Delete the object; False if it, or the one with this UID, is gone. Raises Conflict if it still exists."""
        body = {"preconditions": {"uid": uid}} if uid else None
        try:
            deleted_object = await self.client.request("DELETE", self._object_path(name), body=body)
        except NotFound:
            self._cache.pop(name, None)
            return False
        except Conflict:
            existing = await self.get(name)
            if existing is not None and uid in ("", existing["metadata"]["uid"]):
                raise
            return False
        self._store_in_cache(name, deleted_object if deleted_object.get("kind") == self.resource.kind else None)
        return True

    async def drop_finalizer(self, name: str, finalizer: str, *, uid: str = "") -> bool:
        """False if the object is gone; True also if it does not have the finalizer."""

        def build_patch(item: Json) -> Json | None:
            finalizers = item["metadata"].get("finalizers") or []
            remaining = [one for one in finalizers if one != finalizer]
            return None if remaining == finalizers else {"metadata": {"finalizers": remaining}}

        updated = await self.patch_with_retry(name, build_patch, uid=uid)
        if updated is not None:
            self._cache.pop(name, None)
        return updated is not None

    async def add_finalizer(self, name: str, finalizer: str, *, uid: str = "") -> bool:
        """Whether the object has the finalizer now. False if it is gone, or deleting without the finalizer."""

        def build_patch(item: Json) -> Json | None:
            finalizers = item["metadata"].get("finalizers") or []
            is_deleting = "deletionTimestamp" in item["metadata"]
            return (
                None
                if finalizer in finalizers or is_deleting
                else {"metadata": {"finalizers": [*finalizers, finalizer]}}
            )

        updated = await self.patch_with_retry(name, build_patch, uid=uid)
        return updated is not None and finalizer in (updated["metadata"].get("finalizers") or ())

    async def patch_metadata(
        self,
        name: str,
        *,
        uid: str = "",
        labels: Mapping[str, str | None] | None = None,
        default_labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Json | None:
        """Set labels (None removes one), `default_labels` that the object lacks, and annotations.

        Returns the object; None if it is gone.
        """

        def build_patch(item: Json) -> Json | None:
            metadata = item["metadata"]
            current = metadata.get("labels") or {}
            absent = {key: value for key, value in (default_labels or {}).items() if key not in current}
            desired = {"labels": {**absent, **(labels or {})}, "annotations": annotations or {}}
            changes = {key: merge_patch(metadata.get(key) or {}, wanted) for key, wanted in desired.items()}
            return {"metadata": written} if (written := {key: one for key, one in changes.items() if one}) else None

        return await self.patch_with_retry(name, build_patch, uid=uid)

    async def _send_patch(self, name: str, base: Json, patch: Json, sub: str) -> Json:
        metadata = {**patch.get("metadata", {}), "resourceVersion": base["metadata"]["resourceVersion"]}
        return await self.client.merge(self._object_path(name, sub), {**patch, "metadata": metadata})

    def _object_path(self, name: str = "", sub: str = "") -> str:
        return self.resource.path(name, namespace=self._namespace, sub=sub)

    def _store_in_cache(self, name: str, item: Json | None) -> Json | None:
        self._cache.pop(name, None)
        if item is not None:
            loop = asyncio.get_running_loop()
            self._cache[name] = (loop.time(), item)
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
            self._expiry_timer = self._expiry_timer or loop.call_later(CACHE_TTL_SECONDS, self._expire_cache, loop)
        return item

    def _expire_cache(self, loop: asyncio.AbstractEventLoop) -> None:
        expired_before = loop.time() - CACHE_TTL_SECONDS
        for name in [name for name, (cached_at, _) in self._cache.items() if cached_at <= expired_before]:
            del self._cache[name]
        self._expiry_timer = loop.call_later(CACHE_TTL_SECONDS, self._expire_cache, loop) if self._cache else None


def merge_patch(old: Json, desired: Mapping[str, object]) -> Json:
    """The patch that sets each key of `desired` to exactly its value; None removes a key. Empty if nothing changes."""
    patch: Json = {}
    for key, value in desired.items():
        current = old.get(key)
        if value == current or (value is None and key not in old):
            continue
        if isinstance(value, Mapping) and isinstance(current, Mapping):
            removed = {name: None for name in current if name not in value}
            patch[key] = merge_patch(dict(current), {**value, **removed})
        else:
            patch[key] = value
    return patch


class SharedRead(Generic[T]):
    """Deduplicates concurrent reads: calls during a read share the next one, which starts after they were made."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The result of a read that starts after this call. Raises the error of the read."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._running))
        # Shielded, so that a cancelled caller does not cancel the read of others.
        return await asyncio.shield(self._next)

    async def _read_after(self, previous: "asyncio.Task[T] | None") -> T:
        if previous is not None:
            await asyncio.wait([previous])
        self._running, self._next = self._next, None
        return await self._read()
