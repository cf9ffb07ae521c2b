"""Measurements of a sandbox for the demo and the benchmarks: pods, calls to AWS, failed workflow tasks."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tenure.clock import wait_until_set
from tenure.kube.client.client import KubeClient
from tenure.kube.client.list_watch import Delta, ListWatch
from tenure.kube.client.resources import PODS
from tenure.metrics import NODES_UNUSED
from tenure.sandbox.aws.admin.client import AwsControl


@dataclass(frozen=True)
class PodCount:
    running: int = 0
    pending: int = 0
    terminating: int = 0
    """Being deleted, Succeeded or Failed."""
    by_node: Mapping[str, int] = field(default_factory=dict)
    """Running pods by node."""

    @property
    def total(self) -> int:
        return self.running + self.pending + self.terminating

    def __str__(self) -> str:
        parts = [f"{self.running} Running"]
        parts += [f"{self.pending} Pending"] if self.pending else []
        parts += [f"{self.terminating} terminating"] if self.terminating else []
        return ", ".join(parts)


class PodWatch:
    """Counts pods by a label selector. An async context manager: the watch runs inside it."""

    def __init__(self, client: KubeClient, selector: str) -> None:
        self._watch = ListWatch(client, PODS, self._handle_deltas, time.monotonic, params={"labelSelector": selector})
        self._pods: dict[str, tuple[str, str]] = {}
        self._states: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.most = 0
        """Most Running pods since `reset_peak`."""
        self.most_at = 0.0
        """Time at which `most` was first reached, on the monotonic clock."""

    async def __aenter__(self) -> "PodWatch":
        self._task = asyncio.create_task(self._watch.run(), name="pod-watch")
        await self._watch.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def reset_peak(self) -> None:
        self.most, self.most_at = self._states["Running"], time.monotonic()

    def count_pods(self) -> PodCount:
        states = self._states
        nodes = Counter(node for state, node in self._pods.values() if state == "Running" and node)
        return PodCount(states["Running"], states["Pending"], states["Leaving"], dict(nodes))

    async def wait_for_change(self, seconds: float) -> None:
        if await wait_until_set(self._changed, seconds):
            self._changed.clear()

    def _handle_deltas(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            uid = delta.object["metadata"]["uid"]
            if before := self._pods.pop(uid, None):
                self._states[before[0]] -= 1
            if not delta.is_deleted:
                self._pods[uid] = pod_state(delta.object)
                self._states[self._pods[uid][0]] += 1
            if self._states["Running"] > self.most:
                self.most, self.most_at = self._states["Running"], time.monotonic()
        self._changed.set()


def pod_state(pod: Mapping[str, Any]) -> tuple[str, str]:
    """`Running`, `Pending` or `Leaving`, and the node's name."""
    phase = pod.get("status", {}).get("phase", "Pending")
    terminating = "deletionTimestamp" in pod["metadata"] or phase not in ("Running", "Pending")
    return "Leaving" if terminating else phase, pod.get("spec", {}).get("nodeName", "")


@dataclass(frozen=True)
class Instances:
    launched: int
    terminated: int


class AwsProbe:
    """Reads the admin API of the AWS stand-in, for the calls of one access key."""

    def __init__(self, control: AwsControl, key: str) -> None:
        self._control, self._key = control, key

    async def count_calls(self) -> dict[str, int]:
        """By `service:Action`."""
        return {action: entry["count"] for action, entry in (await self._fetch_counters()).items()}

    async def list_denied_actions(self) -> list[str]:
        """Distinct actions that IAM denied."""
        denials = await asyncio.to_thread(self._control.list_denials)
        return sorted({denial["action"] for denial in denials if denial["access_key"] == self._key})

    async def count_instances(self) -> Instances:
        """Instances of all access keys."""
        response = await asyncio.to_thread(self._control.list_instances)
        return Instances(launched=response["launched"], terminated=response["terminated"])

    async def launch_templates(self) -> int:
        """Number of launch templates that were created and not deleted."""
        calls = await self._fetch_counters()
        created, deleted = (calls.get(f"ec2:{verb}LaunchTemplate", {}) for verb in ("Create", "Delete"))
        return _count_successes(created) - _count_successes(deleted)

    async def _fetch_counters(self) -> dict[str, dict[str, Any]]:
        return await asyncio.to_thread(self._control.get_counters, self._key)


def _count_successes(entry: Mapping[str, int]) -> int:
    return entry.get("count", 0) - entry.get("errors", 0)


def calls_since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    counts = {action: count - before.get(action, 0) for action, count in after.items()}
    return {action: count for action, count in counts.items() if count}


FAILED_TASKS = "temporal_workflow_task_execution_failed"
"""Temporal retries failed tasks, so only this metric shows them. Each is a bug, or an overloaded machine."""


async def read_failed_tasks(port: int) -> dict[str, int]:
    """By workflow type. Raises aiohttp's ClientError."""
    return failed_tasks(await read_metrics(port))


async def read_metrics(port: int) -> str:
    """The worker's metrics as text. Raises aiohttp's ClientError."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        response.raise_for_status()
        return await response.text()


def unused_nodes(exposition: str) -> dict[str, int]:
    """By NodePool, the nodes that were deleted without any pod that a node was launched for."""
    samples = [sample for sample in _samples_of(exposition, NODES_UNUSED.name) if sample.value]
    return {sample.labels["nodepool"]: int(sample.value) for sample in samples}


def failed_tasks(exposition: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for sample in _samples_of(exposition, FAILED_TASKS):
        if sample.value:
            kind = sample.labels.get("workflow_type", "unknown")
            counts[kind] = counts.get(kind, 0) + int(sample.value)
    return counts


def _samples_of(exposition: str, metric: str) -> list[Sample]:
    """The samples of a metric. Only its lines are parsed, because the parser is slow."""
    lines = "\n".join(line for line in exposition.splitlines() if line.startswith(metric))
    samples = [sample for family in text_string_to_metric_families(lines + "\n") for sample in family.samples]
    return [sample for sample in samples if sample.name.removesuffix("_total") == metric.removesuffix("_total")]


def format_failed_tasks(counts: dict[str, int]) -> str:
    """Empty if there are none."""
    if not counts:
        return ""
    return "Failed and retried workflow tasks: " + ", ".join(f"{kind} {n}" for kind, n in counts.items())
