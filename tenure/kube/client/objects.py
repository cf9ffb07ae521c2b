"""Objects of one kind: read, list, change, delete, with as few calls as can be.

A change starts from the object as this process last saw it, and is sent with that resourceVersion: on a conflict it is
decided again on a fresh read. The cache saves a read and never decides anything: before concluding that nothing is to
be written, the object is read.
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
"""Seconds, twice that at most: a change follows a read soon or never, and a Node takes 30 KB as Python objects."""
TRIES: Final = 6
_PAGE: Final = 250

BuildPatch = Callable[[Json], Json | None]
"""A function from the live object to a merge patch without resourceVersion; None if nothing changes."""


class Objects:
    """The objects of one kind; of a namespaced one those in one namespace."""

    def __init__(self, client: KubeClient, resource: Resource, namespace: str = "") -> None:
        self.client = client
        self.resource = resource
        self._namespace = namespace
        self._cache: OrderedDict[str, tuple[float, Json]] = OrderedDict()
        """Each with when it was seen, on the event loop's clock; the oldest first."""
        self._expiry_timer: asyncio.TimerHandle | None = None

    async def get(self, name: str) -> Json | None:
        found = await self.client.get(self._object_path(name))
        return self._store_in_cache(name, found)

    async def iterate(self, labels: Mapping[str, str] | None = None) -> AsyncIterator[Json]:
        """All of them, from a consistent read, of which one page at a time is held."""
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

    async def read_each(
        self, read: Callable[[Json], T], read_identity: Callable[[Json], T], labels: Mapping[str, str] | None = None
    ) -> list[T]:
        """All of them. `read_identity` is the reading of one for which `read` raises an error, which is logged."""
        found: list[T] = []
        invalid = InvalidObjects()
        async for item in self.iterate(labels):
            try:
                found.append(read(item))
            except Exception as error:
                invalid.record(object_key(item, self.resource.kind), error)
                found.append(read_identity(item))
        for one in invalid.report().objects:
            log.error("object is invalid", **one.model_dump())
        return found

    async def list(self, labels: Mapping[str, str] | None = None) -> list[Json]:
        """All of them at once, for kinds of which there are few."""
        return [item async for item in self.iterate(labels)]

    async def create(self, body: Json) -> Json:
        """The object that has this name now: ours, or the one that an earlier try made."""
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
        """The object after the change; None when it, or the one with this UID, is gone. Raises Conflict in the end."""
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
        """Ask for deletion; False when it, or the one with this UID, is gone. Conflict is raised if it is not."""
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
        """False when the object is gone; True also when the finalizer was off already."""

        def build_patch(item: Json) -> Json | None:
            finalizers = item["metadata"].get("finalizers") or []
            remaining = [one for one in finalizers if one != finalizer]
            return None if remaining == finalizers else {"metadata": {"finalizers": remaining}}

        updated = await self.patch_with_retry(name, build_patch, uid=uid)
        if updated is not None:
            self._cache.pop(name, None)
        return updated is not None

    async def add_finalizer(self, name: str, finalizer: str, *, uid: str = "") -> bool:
        """False when the object is gone, or is going and so takes none any more."""

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
        """The object with these labels (None takes one off), those of `default_labels` that it has not, and these
        annotations; None when it is gone."""

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
    """The patch that gives each key of `desired` exactly its value; None removes a key. Empty: no change."""
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
    """Callers that come while a read is running share the next one, which starts after they asked."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The result of a read that started no earlier than this call; raises the read's error."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._running))
        # Shielded: one caller that is cancelled must not take the answer from the others.
        return await asyncio.shield(self._next)

    async def _read_after(self, previous: "asyncio.Task[T] | None") -> T:
        if previous is not None:
            await asyncio.wait([previous])
        self._running, self._next = self._next, None
        return await self._read()
