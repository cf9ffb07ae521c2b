"""Objects of one kind: read, list, change, delete, with as few calls as can be.

A change starts from the object as this process last saw it, and is sent with that resourceVersion: where somebody
else wrote meanwhile the server answers 409 and the change is decided again on a fresh read. So memory saves a read and
never decides anything: before concluding that nothing is to be written, the object is read.

One live read for many who ask at once, without ever answering from before they asked.

A hundred nodes that register together need one list of Nodes, not a hundred.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.resources import Resource
from tenure.model.errors import Conflict, NotFound

REMEMBERED: Final = 256
REMEMBERED_FOR: Final = 60.0
"""Seconds, twice that at most: a change follows a read soon or never, and a Node takes 30 KB as Python objects."""
TRIES: Final = 6
_PAGE: Final = 250

Decide = Callable[[Json], Json | None]
"""From the object as it is to a merge patch without resourceVersion; None when nothing is to be written."""


class Objects:
    """The objects of one kind; of a namespaced one those in one namespace."""

    def __init__(self, client: KubeClient, resource: Resource, namespace: str = "") -> None:
        self.client = client
        self.resource = resource
        self._namespace = namespace
        self._seen: OrderedDict[str, tuple[float, Json]] = OrderedDict()
        """Each with when it was seen, on the event loop's clock; the oldest first."""
        self._forgetting: asyncio.TimerHandle | None = None

    async def get(self, name: str) -> Json | None:
        found = await self.client.get(self._path(name))
        return self._remember(name, found)

    async def each(self, labels: Mapping[str, str] | None = None) -> AsyncIterator[Json]:
        """All of them, from a consistent read, of which one page at a time is held."""
        params = {"limit": str(_PAGE)}
        if labels:
            params["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        more = "first"
        while more:
            answer = await self.client.request("GET", self._path(), params=params)
            for item in answer.get("items") or ():
                yield item
            more = params["continue"] = answer["metadata"].get("continue") or ""
            answer, item = {}, None

    async def list(self, labels: Mapping[str, str] | None = None) -> list[Json]:
        """All of them at once, for kinds of which there are few."""
        return [item async for item in self.each(labels)]

    async def create(self, body: Json) -> Json:
        """The object that has this name now: ours, or the one that an earlier try made."""
        whole = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **body}
        name = body["metadata"]["name"]
        try:
            made = await self.client.request("POST", self._path(), body=whole)
        except Conflict:
            there = await self.get(name)
            if there is None:
                raise
            return there
        self._remember(name, made)
        return made

    async def change(self, name: str, decide: Decide, *, uid: str = "", sub: str = "") -> Json | None:
        """The object after the change; None when it, or the one with this UID, is gone. Raises Conflict in the end."""
        _, base = self._seen.get(name, (0.0, None))
        fresh = base is None or (uid != "" and base["metadata"]["uid"] != uid)
        if fresh:
            base = await self.get(name)
        for attempt in range(TRIES):
            if base is None or (uid and base["metadata"]["uid"] != uid):
                return None
            patch = decide(base)
            if patch is None and fresh:
                return base
            try:
                if patch is not None:
                    return self._remember(name, await self._send(name, base, patch, sub))
            except NotFound:
                return self._remember(name, None)
            except Conflict:
                if attempt == TRIES - 1:
                    raise
            base, fresh = await self.get(name), True
        return base

    async def delete(self, name: str, *, uid: str = "") -> bool:
        """Ask for deletion; False when it, or the one with this UID, is gone. Conflict is raised if it is not."""
        body = {"preconditions": {"uid": uid}} if uid else None
        try:
            left = await self.client.request("DELETE", self._path(name), body=body)
        except NotFound:
            self._seen.pop(name, None)
            return False
        except Conflict:
            there = await self.get(name)
            if there is not None and uid in ("", there["metadata"]["uid"]):
                raise
            return False
        self._remember(name, left if left.get("kind") == self.resource.kind else None)
        return True

    async def drop_finalizer(self, name: str, finalizer: str, *, uid: str = "") -> bool:
        """False when the object is gone; True also when the finalizer was off already."""

        def without(item: Json) -> Json | None:
            held = item["metadata"].get("finalizers") or []
            kept = [one for one in held if one != finalizer]
            return None if kept == held else {"metadata": {"finalizers": kept}}

        left = await self.change(name, without, uid=uid)
        if left is not None:
            self._seen.pop(name, None)
        return left is not None

    async def add_finalizer(self, name: str, finalizer: str, *, uid: str = "") -> bool:
        """False when the object is gone, or is going and so takes none any more."""

        def with_it(item: Json) -> Json | None:
            held = item["metadata"].get("finalizers") or []
            going = "deletionTimestamp" in item["metadata"]
            return None if finalizer in held or going else {"metadata": {"finalizers": [*held, finalizer]}}

        left = await self.change(name, with_it, uid=uid)
        return left is not None and finalizer in (left["metadata"].get("finalizers") or ())

    async def _send(self, name: str, base: Json, patch: Json, sub: str) -> Json:
        metadata = {**patch.get("metadata", {}), "resourceVersion": base["metadata"]["resourceVersion"]}
        return await self.client.merge(self._path(name, sub), {**patch, "metadata": metadata})

    def _path(self, name: str = "", sub: str = "") -> str:
        return self.resource.path(name, namespace=self._namespace, sub=sub)

    def _remember(self, name: str, item: Json | None) -> Json | None:
        self._seen.pop(name, None)
        if item is not None:
            loop = asyncio.get_running_loop()
            self._seen[name] = (loop.time(), item)
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
            self._forgetting = self._forgetting or loop.call_later(REMEMBERED_FOR, self._forget, loop)
        return item

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        long_ago = loop.time() - REMEMBERED_FOR
        for name in [name for name, (seen, _) in self._seen.items() if seen <= long_ago]:
            del self._seen[name]
        self._forgetting = loop.call_later(REMEMBERED_FOR, self._forget, loop) if self._seen else None


def merge_patch(old: Json, wanted: Mapping[str, object]) -> Json:
    """What to send so that each key of `wanted` has exactly its value; None removes a key. Empty: nothing to do."""
    patch: Json = {}
    for key, value in wanted.items():
        had = old.get(key)
        if value == had or (value is None and key not in old):
            continue
        if isinstance(value, Mapping) and isinstance(had, Mapping):
            removed = {name: None for name in had if name not in value}
            patch[key] = merge_patch(dict(had), {**value, **removed})
        else:
            patch[key] = value
    return patch


T = TypeVar("T")


class SharedRead(Generic[T]):
    """Callers that come while a read is running share the next one, which starts after they asked."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The answer of a read that began no earlier than this call; raises what the read raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
        # Shielded: one caller that is cancelled must not take the answer from the others.
        return await asyncio.shield(self._next)

    async def _after(self, before: "asyncio.Task[T] | None") -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._read()
