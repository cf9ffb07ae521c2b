"""Eyes on a cluster while its nodes are replaced: pods that are ready, by workload; NodeClaims; marks.

What is seen is what the API server tells of, change by change, so that nothing between two looks is missed.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from tenure.apis import labels
from tenure.kube.client.client import KubeClient
from tenure.kube.client.list_watch import Delta, ListWatch
from tenure.kube.client.resources import NODE_CLAIMS, NODES, PODS

Object = Mapping[str, Any]
PART = "part"
"""The label by which pods of one PodDisruptionBudget are told from others."""


@dataclass
class Claim:
    """Seconds on the monotonic clock, as heard of; `boot` by the API server's stamps, which are whole seconds."""

    pool: str
    came: float
    boot: float | None = None
    """From its creation until it was initialized."""
    going: float | None = None
    gone: float | None = None


@dataclass
class Seen:
    """Of pods with the label `part`, by its value, and of NodePools by name."""

    ready: Counter[str] = field(default_factory=Counter)
    least: dict[str, int] = field(default_factory=dict)
    """The fewest that were ready at one time."""
    claims: dict[str, Claim] = field(default_factory=dict)
    most_marked: Counter[str] = field(default_factory=Counter)
    """The most nodes that carried the mark of disruption at one time."""

    def of(self, pool: str) -> dict[str, Claim]:
        return {name: one for name, one in self.claims.items() if one.pool == pool}


class Eyes:
    """An async context manager: it has seen all that is there once it is entered."""

    def __init__(self, client: KubeClient) -> None:
        self.seen = Seen()
        self._client = client
        self._pods: dict[str, str] = {}
        self._marked: dict[str, set[str]] = defaultdict(set)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for resource, hear, params in (
            (PODS, self._hear_pods, {"labelSelector": PART}),
            (NODES, self._hear_nodes, {"labelSelector": labels.NODEPOOL}),
            (NODE_CLAIMS, self._hear_claims, {}),
        ):
            watch = ListWatch(self._client, resource, hear, time.monotonic, params=params)
            task = asyncio.create_task(watch.run(), name=f"eyes on {resource.plural}")
            self._stack.push_async_callback(_end, task)
            await watch.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def begin(self) -> None:
        """From here on the fewest and the most are counted."""
        self.seen.least = dict(self.seen.ready)
        self.seen.most_marked = Counter({pool: len(nodes) for pool, nodes in self._marked.items()})

    def _hear_pods(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            uid = delta.object["metadata"]["uid"]
            if before := self._pods.pop(uid, ""):
                self.seen.ready[before] -= 1
            if not delta.gone and _is_ready(delta.object):
                part = self._pods[uid] = delta.object["metadata"]["labels"][PART]
                self.seen.ready[part] += 1
        for part, ready in self.seen.ready.items():
            self.seen.least[part] = min(ready, self.seen.least.get(part, ready))

    def _hear_nodes(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            metadata = delta.object["metadata"]
            marked = self._marked[metadata["labels"][labels.NODEPOOL]]
            taints = {one["key"] for one in delta.object["spec"].get("taints") or ()}
            if labels.DISRUPTED_TAINT_KEY in taints and not delta.gone:
                marked.add(metadata["name"])
            else:
                marked.discard(metadata["name"])
        for pool, nodes in self._marked.items():
            self.seen.most_marked[pool] = max(self.seen.most_marked[pool], len(nodes))

    def _hear_claims(self, deltas: list[Delta]) -> None:
        now = time.monotonic()
        for delta in deltas:
            metadata = delta.object["metadata"]
            pool = metadata.get("labels", {}).get(labels.NODEPOOL, "")
            one = self.seen.claims.setdefault(metadata["name"], Claim(pool, now))
            one.boot = _boot(delta.object) if one.boot is None else one.boot
            if "deletionTimestamp" in metadata and one.going is None:
                one.going = now
            if delta.gone:
                one.gone = now


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _is_ready(pod: Object) -> bool:
    """As a PodDisruptionBudget counts: one that is being deleted is not."""
    return "deletionTimestamp" not in pod["metadata"] and _condition(pod, "Ready") is not None


def _boot(claim: Object) -> float | None:
    done = _condition(claim, "Initialized")
    return None if done is None else _time(done) - _time(claim["metadata"]["creationTimestamp"])


def _condition(thing: Object, kind: str) -> str | None:
    """When it became True; None when it is not."""
    for one in thing.get("status", {}).get("conditions") or ():
        if one["type"] == kind and one["status"] == "True":
            return str(one["lastTransitionTime"])
    return None


def _time(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
