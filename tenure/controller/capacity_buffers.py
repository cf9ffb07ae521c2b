"""CapacityBuffers, if their gate is on: the request of each, the nodes with headroom for it, and missing capacity.

A buffer's request is a fact in the cache, so every plan includes its virtual pods. A node with headroom for them does
not count as empty, and virtual pods without headroom are pending. A watch reports that a workload changed; its
template and replicas are then read, so that no template is kept."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import structlog

from tenure.apis.capacitybuffer import ACTIVE, CapacityBuffer
from tenure.apis.labels import POD_TEMPLATE_NOT_FOUND, RESOLUTION_FAILED, SCALABLE_REF_NOT_FOUND
from tenure.clock import wait_until_set
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.resources import CAPACITY_BUFFERS, KINDS
from tenure.kube.facts.pods import virtual_pod_fact
from tenure.model.errors import Fault
from tenure.model.extra_capacity import BufferFact, build_virtual_pods
from tenure.model.facts import PodFact
from tenure.model.invalid_objects import ObjectKey
from tenure.model.plan import Plan
from tenure.model.provider_results import ConditionPatch
from tenure.policy.capacity_buffer import SCALABLE, Unresolved, decide_conditions, decide_replicas

log = structlog.get_logger(__name__)

Json = Mapping[str, Any]
WORKLOAD_POLL_SECONDS: Final = 30.0
"""Seconds between reads of the workloads that buffers refer to, without a change, as in Karpenter."""
MIN_READ_INTERVAL: Final = 1.0
"""Seconds between reads while workloads change."""
MIN_CHECK_INTERVAL: Final = timedelta(seconds=2)
MAX_CHECK_INTERVAL: Final = timedelta(seconds=30)
"""MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL: between two headroom checks, after changes and without any."""
_SHARE: Final = 10
"""A headroom check takes at most about 1/_SHARE of the planner's time."""


_WorkloadKey = tuple[str, str, str]
"""Kind, namespace and name."""


class BufferPort(Protocol):
    """`kube.buffers` implements it."""

    async def get_workload(self, namespace: str, kind: str, name: str) -> Json | None:
        """A Deployment, StatefulSet or ReplicaSet; None when it does not exist."""
        ...

    async def patch_status(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        status: Mapping[str, object],
        conditions: Sequence[ConditionPatch],
        now: datetime,
    ) -> bool:
        """Set status fields and conditions, if they changed. False when the buffer is gone."""
        ...


class CapacityBuffers:
    """`resolve` runs in its own task, `check_headroom` in that of the planner."""

    def __init__(self, cache: ClusterCache, port: BufferPort, now: Callable[[], datetime]) -> None:
        self._cache, self._port, self._now = cache, port, now
        self._buffers: dict[str, CapacityBuffer] = {}
        self._raw: dict[str, Json] = {}
        self._templates: dict[tuple[str, str], Json] = {}
        self._unresolved: dict[str, Unresolved] = {}
        self._written_status: dict[str, tuple[object, ...]] = {}
        self._pods: dict[str, tuple[PodFact, ...]] = {}
        """By buffer, its virtual pods."""
        self._targets: dict[str, str] = {}
        self._buffer_by_target: dict[str, str] = {}
        """By NodeClaim or Node, the buffer that needs headroom there."""
        self._checked_at: datetime | None = None
        self._check_interval = MIN_CHECK_INTERVAL
        self._changed = True
        self._generations: dict[_WorkloadKey, int | None] = {}
        """Of workloads that buffers refer to, as the watch reported them last; None for a deleted one."""
        self.objects_changed = asyncio.Event()
        """A buffer, a PodTemplate or a workload changed."""

    # --- list-watch deltas ---

    def on_deltas(self, kind: str, deltas: Iterable[Delta]) -> None:
        """For `capacitybuffers` and `podtemplates`. A buffer that cannot be read keeps its last known spec."""
        for delta in deltas:
            with self._cache.invalid_objects.guard_change(delta.object, KINDS[kind], is_deleted=delta.is_deleted):
                metadata = delta.object["metadata"]
                if kind == CAPACITY_BUFFERS.plural:
                    self._on_buffer(metadata["uid"], delta)
                elif delta.is_deleted:
                    self._templates.pop((metadata["namespace"], metadata["name"]), None)
                else:
                    self._templates[metadata["namespace"], metadata["name"]] = delta.object
        self.objects_changed.set()

    def on_workload_deltas(self, kind: str, deltas: Iterable[Delta]) -> None:
        """For Deployments, StatefulSets and ReplicaSets. Their status changes often, and their generation does not."""
        referenced = {key for one in self._buffers.values() if (key := _workload_key(one))}
        for delta in deltas:
            metadata = delta.object["metadata"]
            key = (KINDS[kind], metadata["namespace"], metadata["name"])
            generation = None if delta.is_deleted else metadata.get("generation", 0)
            if key in referenced and self._generations.get(key, -1) != generation:
                self._generations[key] = generation
                self.objects_changed.set()
        self._generations = {key: one for key, one in self._generations.items() if key in referenced}

    def _on_buffer(self, uid: str, delta: Delta) -> None:
        if delta.is_deleted:
            self._buffers.pop(uid, None)
            self._raw.pop(uid, None)
        else:
            self._buffers[uid] = CapacityBuffer.from_object(delta.object)
            self._raw[uid] = delta.object

    # --- requests ---

    async def run(self) -> None:
        while True:
            self.objects_changed.clear()
            await self.resolve()
            await asyncio.sleep(MIN_READ_INTERVAL)
            await wait_until_set(self.objects_changed, WORKLOAD_POLL_SECONDS - MIN_READ_INTERVAL)

    async def resolve(self) -> None:
        """Update each buffer's fact. A buffer that cannot be resolved gets no headroom; its status has the reason."""
        known = {uid: one for uid, one in self._buffers.items() if one.spec.provisioning_strategy == ACTIVE}
        for deleted in {*self._cache.buffers, *self._unresolved} - known.keys():
            self._set_fact(deleted, None)
            self._unresolved.pop(deleted, None)
            self._written_status.pop(deleted, None)
        complete = True
        for uid, buffer in known.items():
            with self._guard(buffer, "resolve"):
                complete = await self._update_buffer(uid, buffer) and complete
        if complete:
            self._end_uncertainty()

    def _guard(self, buffer: CapacityBuffer, step: str) -> AbstractContextManager[None]:
        name = f"{buffer.metadata.namespace}/{buffer.name}"
        return self._cache.invalid_objects.guard(ObjectKey(CAPACITY_BUFFERS.kind, name, buffer.metadata.uid, step))

    async def _update_buffer(self, uid: str, buffer: CapacityBuffer) -> bool:
        """False when the API server does not respond."""
        try:
            self._set_fact(uid, await self._resolve_buffer(uid, buffer))
            self._unresolved.pop(uid, None)
        except Unresolved as why:
            self._set_fact(uid, None)
            self._unresolved[uid] = why
        except Fault as fault:
            log.warning("CapacityBuffer check failed", name=buffer.name, fault=str(fault))
            return False
        if uid in self._unresolved or self._checked_at is not None:
            await self._write_status(uid)
        return True

    def _set_fact(self, uid: str, fact: BufferFact | None) -> None:
        if self._cache.set_buffer(uid, fact):
            self._pods.pop(uid, None)
            if fact:
                self._pods[uid] = build_virtual_pods(fact)
            self._changed = True
            self._cache.requeue_pods()

    async def _resolve_buffer(self, uid: str, buffer: CapacityBuffer) -> BufferFact:
        """Raises Unresolved, and Fault when the API server does not respond."""
        template, workload = await self._resolve_template(buffer)
        try:
            spec = self._cache.pod_admission.apply_defaults(template.get("spec") or {}, buffer.metadata.namespace)
            pod = virtual_pod_fact(self._raw[uid], {**template, "spec": spec})
            replicas = decide_replicas(buffer.spec, pod.requests, workload)
        except (ValueError, KeyError) as error:
            raise Unresolved(RESOLUTION_FAILED, f"its pods cannot be read: {str(error)[:300]}") from error
        return BufferFact(uid=uid, namespace=buffer.metadata.namespace, name=buffer.name, replicas=replicas, pod=pod)

    async def _resolve_template(self, buffer: CapacityBuffer) -> tuple[Json, int]:
        """Metadata and spec of its pods, and the replicas of its workload; 0 for a PodTemplate."""
        spec, namespace = buffer.spec, buffer.metadata.namespace
        if spec.pod_template_ref is not None:
            found = self._templates.get((namespace, spec.pod_template_ref.name))
            if found is None:
                name = f"{namespace}/{spec.pod_template_ref.name}"
                raise Unresolved(POD_TEMPLATE_NOT_FOUND, f"PodTemplate {name} does not exist: create it")
            return found.get("template") or {}, 0
        ref = spec.scalable_ref
        if ref is None:
            raise Unresolved(RESOLUTION_FAILED, "spec: podTemplateRef or scalableRef is required")
        if ref.kind not in SCALABLE or ref.api_group not in ("", "apps"):
            problem = f"spec.scalableRef: {ref.api_group or 'core'} {ref.kind} is not known"
            raise Unresolved(
                RESOLUTION_FAILED, f"{problem}, expected a {', '.join(SCALABLE[:-1])} or {SCALABLE[-1]} of apps"
            )
        workload = await self._port.get_workload(namespace, ref.kind, ref.name)
        if workload is None:
            raise Unresolved(SCALABLE_REF_NOT_FOUND, f"{ref.kind} {namespace}/{ref.name} does not exist: create it")
        replicas = workload["spec"].get("replicas")
        return workload["spec"].get("template") or {}, 1 if replicas is None else replicas

    # --- headroom ---

    is_uncertain = True
    """The buffers are not known yet, or no headroom check has run yet."""

    def _end_uncertainty(self) -> None:
        """Requeue the nodes that counted as occupied during the uncertainty."""
        if self.is_uncertain and (self._checked_at is not None or not self._cache.buffers):
            self.is_uncertain = False
            for claim in tuple(self._cache.nodeclaims):
                self._cache.requeue_nodeclaim(claim)

    def buffer_needing(self, claim: str) -> str:
        """The buffer (`namespace/name`) that needs headroom on this NodeClaim's node; the first by name of several."""
        return self._buffer_by_target.get(claim, "")

    def unschedulable_pods(self) -> list[PodFact]:
        """Virtual pods without headroom, according to the last check."""
        if self._checked_at is None:
            return []
        return [pod for pods in self._pods.values() for pod in pods if pod.uid not in self._targets]

    def is_check_due(self, changed: bool) -> bool:
        """`changed`: the planner received a change."""
        self._changed |= changed
        if self._checked_at is None:
            return bool(self._cache.buffers)
        since = self._now() - self._checked_at
        return since >= max(MAX_CHECK_INTERVAL, self._check_interval) or (
            self._changed and since >= self._check_interval
        )

    async def check_headroom(self, request_plan: Callable[[], Awaitable[Plan]]) -> None:
        """Request a plan without executing it, and read from it the nodes with headroom."""
        self._changed = False
        unschedulable = {pod.uid for pod in self.unschedulable_pods()}
        plan = await request_plan() if self._cache.buffers else Plan()
        self._checked_at = self._now()
        self._check_interval = max(MIN_CHECK_INTERVAL, timedelta(seconds=_SHARE * plan.seconds))
        self._set_targets({uid: self._cache.nomination_target(target) for uid, target in plan.reserved.items()})
        self._end_uncertainty()
        if unschedulable != {pod.uid for pod in self.unschedulable_pods()}:
            self._cache.requeue_pods()
        for uid in self._buffers.keys() & self._cache.buffers.keys():
            with self._guard(self._buffers[uid], "status"):
                await self._write_status(uid)

    def assign(self, targets: Mapping[str, str]) -> None:
        """NodeClaims that a plan has just created, by virtual pod. The next headroom check may be later than their
        initialization, and they are not empty until then."""
        self._set_targets({**self._targets, **targets})

    def _set_targets(self, targets: dict[str, str]) -> None:
        before, self._targets = self._buffer_by_target, targets
        self._buffer_by_target = self._map_buffers_by_target()
        for claim in {one for one, _ in before.items() ^ self._buffer_by_target.items()}:
            self._cache.requeue_nodeclaim(claim)

    def _map_buffers_by_target(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for uid, pods in self._pods.items():
            buffer = self._cache.buffers[uid]
            name = f"{buffer.namespace}/{buffer.name}"
            for target in {self._targets[pod.uid] for pod in pods if pod.uid in self._targets}:
                found[target] = min(found.get(target, name), name)
        return found

    # --- status ---

    async def _write_status(self, uid: str) -> None:
        """Write each change once. Faults are logged, and the next check writes again."""
        buffer, pods = self._buffers.get(uid), self._pods.get(uid, ())
        if buffer is None:
            return
        ready = sum(self._is_up(self._targets.get(pod.uid, "")) for pod in pods)
        conditions = decide_conditions(self._unresolved.get(uid), len(pods), ready)
        status = self._build_status(buffer, len(pods))
        written = (buffer.metadata.generation, tuple(status.items()), conditions)
        if self._written_status.get(uid) == written:
            return
        meta = buffer.metadata
        try:
            await self._port.patch_status(
                meta.namespace, meta.name, uid, status=status, conditions=conditions, now=self._now()
            )
        except Fault as fault:
            log.warning("status of a CapacityBuffer not written", name=meta.name, fault=str(fault))
            return
        self._written_status[uid] = written

    def _build_status(self, buffer: CapacityBuffer, replicas: int) -> dict[str, object]:
        ref = buffer.spec.pod_template_ref
        template = self._templates.get((buffer.metadata.namespace, ref.name)) if ref else None
        return {
            "replicas": replicas,
            "provisioningStrategy": buffer.spec.provisioning_strategy,
            "podTemplateRef": {"name": ref.name} if ref and template else None,
            "podTemplateGeneration": template["metadata"].get("generation") if template else None,
        }

    def _is_up(self, target: str) -> bool:
        claim = self._cache.nodeclaims.get(target)
        return claim.initialized if claim is not None else target in self._cache.nodes


def _workload_key(buffer: CapacityBuffer) -> _WorkloadKey | None:
    ref = buffer.spec.scalable_ref
    return (ref.kind, buffer.metadata.namespace, ref.name) if ref else None
