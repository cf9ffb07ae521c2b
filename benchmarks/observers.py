"""Observers of a cluster while its nodes are replaced: ready pods by workload, NodeClaims, and disruption taints.

They watch the API server, so they do not miss a change between two reads.
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
"""Label whose value identifies the pods of one PodDisruptionBudget."""


@dataclass
class Claim:
    """Times of watch events on the monotonic clock. `boot` is from timestamps of the API server, in whole seconds."""

    pool: str
    created_at: float
    boot: float | None = None
    """Seconds from creation to Initialized."""
    deleting_at: float | None = None
    deleted_at: float | None = None


@dataclass
class Observations:
    """Pods by value of the label `part`, NodePools by name."""

    ready: Counter[str] = field(default_factory=Counter)
    least: dict[str, int] = field(default_factory=dict)
    """Minimum number of ready pods."""
    claims: dict[str, Claim] = field(default_factory=dict)
    max_disrupted: Counter[str] = field(default_factory=Counter)
    """Maximum number of nodes with the disruption taint."""

    def claims_of(self, pool: str) -> dict[str, Claim]:
        return {name: one for name, one in self.claims.items() if one.pool == pool}


class ClusterObserver:
    """An async context manager: all existing objects are known inside it."""

    def __init__(self, client: KubeClient) -> None:
        self.observations = Observations()
        self._client = client
        self._pods: dict[str, str] = {}
        self._disrupted_nodes: dict[str, set[str]] = defaultdict(set)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for resource, on_deltas, params in (
            (PODS, self._on_pods, {"labelSelector": PART}),
            (NODES, self._on_nodes, {"labelSelector": labels.NODEPOOL}),
            (NODE_CLAIMS, self._on_nodeclaims, {}),
        ):
            watch = ListWatch(self._client, resource, on_deltas, time.monotonic, params=params)
            task = asyncio.create_task(watch.run(), name=f"watch {resource.plural}")
            self._stack.push_async_callback(_cancel_task, task)
            await watch.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def start_counting(self) -> None:
        """Restart the minima and maxima from the current state."""
        self.observations.least = dict(self.observations.ready)
        self.observations.max_disrupted = Counter({pool: len(nodes) for pool, nodes in self._disrupted_nodes.items()})

    def _on_pods(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            uid = delta.object["metadata"]["uid"]
            if before := self._pods.pop(uid, ""):
                self.observations.ready[before] -= 1
            if not delta.is_deleted and _is_ready(delta.object):
                part = self._pods[uid] = delta.object["metadata"]["labels"][PART]
                self.observations.ready[part] += 1
        for part, ready in self.observations.ready.items():
            self.observations.least[part] = min(ready, self.observations.least.get(part, ready))

    def _on_nodes(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            metadata = delta.object["metadata"]
            disrupted = self._disrupted_nodes[metadata["labels"][labels.NODEPOOL]]
            taints = {one["key"] for one in delta.object["spec"].get("taints") or ()}
            if labels.DISRUPTED_TAINT_KEY in taints and not delta.is_deleted:
                disrupted.add(metadata["name"])
            else:
                disrupted.discard(metadata["name"])
        for pool, nodes in self._disrupted_nodes.items():
            self.observations.max_disrupted[pool] = max(self.observations.max_disrupted[pool], len(nodes))

    def _on_nodeclaims(self, deltas: list[Delta]) -> None:
        now = time.monotonic()
        for delta in deltas:
            metadata = delta.object["metadata"]
            pool = metadata.get("labels", {}).get(labels.NODEPOOL, "")
            one = self.observations.claims.setdefault(metadata["name"], Claim(pool, now))
            one.boot = _boot_seconds(delta.object) if one.boot is None else one.boot
            if "deletionTimestamp" in metadata and one.deleting_at is None:
                one.deleting_at = now
            if delta.is_deleted:
                one.deleted_at = now


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _is_ready(pod: Object) -> bool:
    """As a PodDisruptionBudget counts it: a pod that is being deleted is not ready."""
    return "deletionTimestamp" not in pod["metadata"] and _condition_time(pod, "Ready") is not None


def _boot_seconds(claim: Object) -> float | None:
    done = _condition_time(claim, "Initialized")
    return None if done is None else _parse_timestamp(done) - _parse_timestamp(claim["metadata"]["creationTimestamp"])


def _condition_time(thing: Object, kind: str) -> str | None:
    """Time at which the condition became True; None if it is not True."""
    for one in thing.get("status", {}).get("conditions") or ():
        if one["type"] == kind and one["status"] == "True":
            return str(one["lastTransitionTime"])
    return None


def _parse_timestamp(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
