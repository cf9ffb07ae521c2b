"""The Deployment's pods as they are now, by one watch: how many run, where, and when the last of them changed.

`stage.py` holds one for the demo and the benchmark; a list per look would cost more than what is measured.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kube.client import KubeClient
from kube.listwatch import Delta, ListWatch
from kube.resources import PODS


@dataclass(frozen=True)
class PodCount:
    running: int = 0
    pending: int = 0
    leaving: int = 0
    """Being deleted, or done."""
    by_node: Mapping[str, int] = field(default_factory=dict)
    """Running ones."""

    @property
    def total(self) -> int:
        return self.running + self.pending + self.leaving

    def __str__(self) -> str:
        parts = [f"{self.running} Running"]
        parts += [f"{self.pending} Pending"] if self.pending else []
        parts += [f"{self.leaving} leaving"] if self.leaving else []
        return ", ".join(parts)


class PodWatch:
    """`selector` is a label selector. An async context manager: the watch runs inside it."""

    def __init__(self, client: KubeClient, selector: str) -> None:
        self._watch = ListWatch(client, PODS, self._hear, time.monotonic, params={"labelSelector": selector})
        self._pods: dict[str, tuple[str, str]] = {}
        self._states: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.most = 0
        """Pods that ran at one time since `forget`."""
        self.most_at = 0.0
        """When that was reached first, on the monotonic clock."""

    async def __aenter__(self) -> "PodWatch":
        self._task = asyncio.create_task(self._watch.run(), name="pod-watch")
        await self._watch.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def forget(self) -> None:
        self.most, self.most_at = self._states["Running"], time.monotonic()

    def count(self) -> PodCount:
        states = self._states
        nodes = Counter(node for state, node in self._pods.values() if state == "Running" and node)
        return PodCount(states["Running"], states["Pending"], states["Leaving"], dict(nodes))

    async def change(self, seconds: float) -> None:
        """Until a pod changes, or so long."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return
        self._changed.clear()

    def _hear(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            uid = delta.object["metadata"]["uid"]
            if before := self._pods.pop(uid, None):
                self._states[before[0]] -= 1
            if not delta.gone:
                self._pods[uid] = state_of(delta.object)
                self._states[self._pods[uid][0]] += 1
            if self._states["Running"] > self.most:
                self.most, self.most_at = self._states["Running"], time.monotonic()
        self._changed.set()


def state_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Running, Pending or Leaving, and the node's name."""
    phase = pod.get("status", {}).get("phase", "Pending")
    leaving = "deletionTimestamp" in pod["metadata"] or phase not in ("Running", "Pending")
    return "Leaving" if leaving else phase, pod.get("spec", {}).get("nodeName", "")
