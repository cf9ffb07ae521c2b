"""The cluster as this process sees it: caches, decisions based on them alone, and the list-watches that fill them.

Each kind takes effect as it syncs; nothing here waits for all kinds.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Final

from tenure.apis.feature_gates import FeatureGate
from tenure.controller import settings as gates
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.devices import DeviceIndex, Devices
from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cache.pod_verdicts import PodVerdicts
from tenure.controller.capacity_buffers import CapacityBuffers
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.settings import ControllerSettings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.kube.client.list_watch import Delta, ListWatch
from tenure.kube.facts.default_spread import DefaultSpread

WATCHED: Final = (
    resources.NODE_CLAIMS,
    resources.NODES,
    resources.PODS,
    resources.NODE_POOLS,
    resources.EC2_NODE_CLASSES,
    resources.LIFECYCLE_POLICIES,
    resources.DAEMON_SETS,
    resources.NAMESPACES,
    resources.STORAGE_CLASSES,
    resources.PERSISTENT_VOLUMES,
    resources.PERSISTENT_VOLUME_CLAIMS,
    resources.CSI_NODES,
    resources.POD_DISRUPTION_BUDGETS,
    resources.VOLUME_ATTACHMENTS,
)
OPTIONAL_KINDS: Final = (resources.LIMIT_RANGES, resources.RUNTIME_CLASSES, resources.DEVICE_CLASSES)
"""Kinds that refine plans. The cluster may lack a kind or its permission; everything else works without it."""
_BUFFER_KINDS: Final = frozenset(one.plural for one in gates.gated_kinds((FeatureGate.CAPACITY_BUFFER,)))

_WORKLOAD_KINDS: Final = frozenset(one.plural for one in resources.WORKLOADS.values())
_DEPLOYMENTS: Final = resources.WORKLOADS["Deployment"].plural
"""Only CapacityBuffers refer to them."""


class WatchedCluster:
    def __init__(self, settings: ControllerSettings, kube: KubeAdapters, now: Callable[[], datetime]) -> None:
        devices = DeviceIndex() if settings.plans_devices else Devices()
        self.cache = ClusterCache(now, DefaultSpread(settings.default_constraints), devices)
        self.nominations = Nominations(self.cache.owner_of)
        self.nominations.subscribe_to(self.cache, now)
        self.policies = LifecyclePolicies(
            self.cache,
            kube.lifecycle_policies,
            default_deadlines=settings.deadlines,
            features=settings.policy_features,
            now=now,
        )
        self.pause = ClusterPause(settings.namespace, self.cache)
        self.not_ready = NotReadyTracker(self.cache, self.policies.not_ready_grace_of)
        self.expected_pods = ExpectedPods(self.cache, self.nominations, self.not_ready)
        self.pod_verdicts = PodVerdicts(
            self.cache, self.nominations, self.not_ready, self.expected_pods, self.policies.deadlines_of
        )
        self.buffers = (
            CapacityBuffers(self.cache, kube.buffers, now) if FeatureGate.CAPACITY_BUFFER in settings.gates else None
        )
        self._watches = {
            one.plural: ListWatch(kube.client, one, functools.partial(self.on_deltas, one.plural), time.monotonic)
            for one in (*WATCHED, *gates.additional_kinds(settings))
        }
        workloads = resources.WORKLOADS.values() if self.buffers else ()
        self._optional_watches = {
            one.plural: ListWatch(
                kube.client, one, functools.partial(self.on_deltas, one.plural), time.monotonic, is_optional=True
            )
            for one in (*OPTIONAL_KINDS, *workloads)
            if one.plural not in self._watches
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, watch in {**self._watches, **self._optional_watches}.items():
                group.create_task(watch.run(), name=f"watch-{name}")
                group.create_task(self._requeue_pods_after(watch.synced.wait), name=f"watch-{name}-synced")
            group.create_task(self._requeue_pods_after(self.wait_until_synced), name="watch-all-synced")
            group.create_task(self.policies.run(), name="watch-policies")
            if self.buffers:
                group.create_task(self._run_buffers(self.buffers), name="watch-buffers")

    async def wait_until_synced(self) -> None:
        """Wait for every kind, since a plan needs all of them. Optional kinds may be missing."""
        for event in self._sync_events():
            await event.wait()

    @property
    def are_all_kinds_synced(self) -> bool:
        """Whether `wait_until_synced` would return."""
        return all(event.is_set() for event in self._sync_events())

    def _sync_events(self) -> Iterator[asyncio.Event]:
        yield from (watch.synced for watch in self._watches.values())
        yield from (watch.attempted for watch in self._optional_watches.values())

    def is_synced(self, *kinds: resources.Resource) -> bool:
        return all(self._watches[one.plural].synced.is_set() for one in kinds)

    def stale_kinds(self, within: float) -> list[str]:
        """The kinds that are not synced, or whose state is more than `within` seconds old."""
        return [name for name, watch in self._watches.items() if not watch.is_fresh(within)]

    def is_disconnected(self) -> bool:
        return all(watch.cut_since is not None for watch in self._watches.values())

    def on_deltas(self, kind: str, deltas: list[Delta]) -> None:
        """`kind`: the plural. `rebuild` and `adopt` call it too; they list once and watch nothing."""
        if self.buffers and kind in _WORKLOAD_KINDS:
            self.buffers.on_workload_deltas(kind, deltas)
        if self.buffers and kind in _BUFFER_KINDS:
            self.buffers.on_deltas(kind, deltas)
        elif kind == _DEPLOYMENTS:
            return
        elif kind == resources.LIFECYCLE_POLICIES.plural:
            self.policies.on_deltas(deltas)
        else:
            self.cache.on_deltas(kind, deltas)
        if kind == resources.NAMESPACES.plural:
            self.pause.on_deltas(deltas)

    async def _requeue_pods_after(self, wait: Callable[[], Awaitable[object]]) -> None:
        await wait()
        self.cache.requeue_pods()

    async def _run_buffers(self, buffers: CapacityBuffers) -> None:
        """Wait until buffers and PodTemplates are synced, since an unknown PodTemplate must not count as missing."""
        for kind in _BUFFER_KINDS:
            await self._watches[kind].synced.wait()
        await buffers.run()
