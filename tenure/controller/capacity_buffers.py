"""CapacityBuffers, while their gate is on: what each asks for, where there is room for it, and what is still short.

What a buffer asks for becomes a fact among the others (`caches.py`), so that every plan knows of its virtual pods.
Where they have room the planner is asked after changes (`look`): nodes that hold room are not empty, and pods that are
short are demand. Workloads are looked at every few seconds; they are few, and nothing else tells of their size.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import structlog
from pydantic import ValidationError

from tenure.apis.capacitybuffer import ACTIVE, CapacityBuffer
from tenure.apis.labels import POD_TEMPLATE_NOT_FOUND, RESOLUTION_FAILED, SCALABLE_REF_NOT_FOUND
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.signals.pending_pods import place_of
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts.pods import virtual_pod_fact
from tenure.model.errors import Fault
from tenure.model.extra_capacity import BufferFact, virtual_pods
from tenure.model.facts import PodFact
from tenure.model.provider_results import ConditionPatch
from tenure.model.provisioning import Plan
from tenure.policy.capacity_buffer import SCALABLE, Unresolved, decide_conditions, decide_replicas

log = structlog.get_logger(__name__)

Json = Mapping[str, Any]
WORKLOADS_EVERY: Final = 10.0
"""Seconds between looks at the workloads that buffers refer to (Karpenter: 30)."""
LOOK_PAUSE: Final = timedelta(seconds=2)
LOOK_SLOWEST: Final = timedelta(seconds=30)
"""Between two looks at where there is room: after changes, and without any."""
_SHARE: Final = 10
"""A look takes at most one part in so many of the planner's time."""


class BufferPort(Protocol):
    """`kube.buffers` satisfies it."""

    async def workload(self, namespace: str, kind: str, name: str) -> Json | None:
        """A Deployment, StatefulSet or ReplicaSet as it is now; None when it is not there."""
        ...

    async def say(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        status: Mapping[str, object],
        conditions: Sequence[ConditionPatch],
        now: datetime,
    ) -> bool:
        """Set status fields and conditions; no write where nothing changes. False when the buffer is gone."""
        ...


class Buffers:
    """`resolve` is called by one task, `look` by the planner's."""

    def __init__(self, caches: Caches, port: BufferPort, now: Callable[[], datetime]) -> None:
        self._caches, self._port, self._now = caches, port, now
        self._buffers: dict[str, CapacityBuffer] = {}
        self._raw: dict[str, Json] = {}
        self._templates: dict[tuple[str, str], Json] = {}
        self._unresolved: dict[str, Unresolved] = {}
        self._said: dict[str, tuple[object, ...]] = {}
        self._pods: dict[str, tuple[PodFact, ...]] = {}
        """By buffer, those for which it wants room."""
        self._placed: dict[str, str] = {}
        self._needing: dict[str, str] = {}
        """By place the buffer that needs room there."""
        self._looked: datetime | None = None
        self._pause = LOOK_PAUSE
        self._changed = True
        self.heard = asyncio.Event()
        """A buffer or a PodTemplate changed."""

    # --- what the list-watches deliver ---

    def hear(self, kind: str, deltas: Iterable[Delta]) -> None:
        """Of `capacitybuffers` and `podtemplates`. What cannot be read is left out and logged, not the others."""
        for delta in deltas:
            metadata = delta.object["metadata"]
            try:
                if kind == "capacitybuffers":
                    self._hear_buffer(metadata["uid"], delta)
                elif delta.gone:
                    self._templates.pop((metadata["namespace"], metadata["name"]), None)
                else:
                    self._templates[metadata["namespace"], metadata["name"]] = delta.object
            except ValidationError as error:
                said = str(error)[:300]
                log.error("object cannot be read and is left out", kind=kind, name=metadata["name"], error=said)
        self.heard.set()

    def _hear_buffer(self, uid: str, delta: Delta) -> None:
        if delta.gone:
            self._buffers.pop(uid, None)
            self._raw.pop(uid, None)
        else:
            self._buffers[uid] = CapacityBuffer.from_object(delta.object)
            self._raw[uid] = delta.object

    # --- what buffers ask for ---

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.heard.clear()
            await self.resolve()
            try:
                await asyncio.wait_for(self.heard.wait(), WORKLOADS_EVERY)
            except TimeoutError:
                continue

    async def resolve(self) -> None:
        """Each buffer's fact as it is now; one that cannot be resolved keeps no room, and says why."""
        known = {uid: one for uid, one in self._buffers.items() if one.spec.provisioning_strategy == ACTIVE}
        for gone in {*self._caches.buffers, *self._unresolved} - known.keys():
            self._take(gone, None)
            self._unresolved.pop(gone, None)
            self._said.pop(gone, None)
        whole = True
        for uid, buffer in known.items():
            try:
                self._take(uid, await self._resolved(uid, buffer))
                self._unresolved.pop(uid, None)
            except Unresolved as why:
                self._take(uid, None)
                self._unresolved[uid] = why
            except Fault as fault:
                log.warning("CapacityBuffer not looked at", name=buffer.name, fault=str(fault))
                whole = False
                continue
            if uid in self._unresolved or self._looked is not None:
                await self._say(uid)
        if whole:
            self._settle()

    def _take(self, uid: str, fact: BufferFact | None) -> None:
        if self._caches.take_buffer(uid, fact):
            self._pods.pop(uid, None)
            if fact:
                self._pods[uid] = virtual_pods(fact)
            self._changed = True
            self._caches.touch_pods()

    async def _resolved(self, uid: str, buffer: CapacityBuffer) -> BufferFact:
        """Raises Unresolved, and faults where the API server does not answer."""
        template, workload = await self._template(buffer)
        try:
            pod = virtual_pod_fact(self._raw[uid], template)
            replicas = decide_replicas(buffer.spec, pod.requests, workload)
        except (ValueError, KeyError) as error:
            raise Unresolved(RESOLUTION_FAILED, f"its pods cannot be read: {str(error)[:300]}") from error
        return BufferFact(uid=uid, namespace=buffer.metadata.namespace, name=buffer.name, replicas=replicas, pod=pod)

    async def _template(self, buffer: CapacityBuffer) -> tuple[Json, int]:
        """Metadata and spec of its pods, and how many replicas the workload has, where it names one."""
        spec, namespace = buffer.spec, buffer.metadata.namespace
        if spec.pod_template_ref is not None:
            found = self._templates.get((namespace, spec.pod_template_ref.name))
            if found is None:
                name = f"{namespace}/{spec.pod_template_ref.name}"
                raise Unresolved(POD_TEMPLATE_NOT_FOUND, f"PodTemplate {name} is not there: make it")
            return found.get("template") or {}, 0
        ref = spec.scalable_ref
        if ref is None:
            raise Unresolved(RESOLUTION_FAILED, "the spec names no pods: write podTemplateRef or scalableRef")
        if ref.kind not in SCALABLE or ref.api_group not in ("", "apps"):
            said = f"spec.scalableRef: {ref.api_group or 'core'} {ref.kind} is not known"
            raise Unresolved(RESOLUTION_FAILED, f"{said}; write a {', '.join(SCALABLE[:-1])} or {SCALABLE[-1]} of apps")
        workload = await self._port.workload(namespace, ref.kind, ref.name)
        if workload is None:
            raise Unresolved(SCALABLE_REF_NOT_FOUND, f"{ref.kind} {namespace}/{ref.name} is not there: make it")
        replicas = workload["spec"].get("replicas")
        return workload["spec"].get("template") or {}, 1 if replicas is None else replicas

    # --- where there is room ---

    unsure = True
    """It is not known yet what buffers there are, or nobody has looked yet where they have room."""

    def _settle(self) -> None:
        """Nodes that were taken for occupied meanwhile are looked at anew."""
        if self.unsure and (self._looked is not None or not self._caches.buffers):
            self.unsure = False
            for claim in tuple(self._caches.claims):
                self._caches.touch_claim(claim)

    def needs(self, claim: str) -> str:
        """The buffer, with its namespace, that needs room on this NodeClaim's node; the first of several."""
        return self._needing.get(claim, "")

    def short(self) -> list[PodFact]:
        """Virtual pods for which there is room nowhere, as far as the last look says."""
        if self._looked is None:
            return []
        return [pod for pods in self._pods.values() for pod in pods if pod.uid not in self._placed]

    def due(self, changed: bool) -> bool:
        """`changed`: the planner was told of a change."""
        self._changed |= changed
        if self._looked is None:
            return bool(self._caches.buffers)
        since = self._now() - self._looked
        return since >= max(LOOK_SLOWEST, self._pause) or (self._changed and since >= self._pause)

    async def look(self, ask: Callable[[], Awaitable[Plan]]) -> None:
        """Ask the planner for a plan that nobody carries out, and take from it where there is room."""
        self._changed = False
        before, short = self._needing, {pod.uid for pod in self.short()}
        plan = await ask() if self._caches.buffers else Plan()
        self._looked = self._now()
        self._pause = max(LOOK_PAUSE, timedelta(seconds=_SHARE * plan.seconds))
        self._placed = {uid: place_of(home, self._caches) for uid, home in plan.reserved.items()}
        self._needing = self._needs_by_place()
        for claim in {one for one, _ in before.items() ^ self._needing.items()}:
            self._caches.touch_claim(claim)
        self._settle()
        if short != {pod.uid for pod in self.short()}:
            self._caches.touch_pods()
        for uid in tuple(self._caches.buffers):
            await self._say(uid)

    def _needs_by_place(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for uid, pods in self._pods.items():
            buffer = self._caches.buffers[uid]
            name = f"{buffer.namespace}/{buffer.name}"
            for place in {self._placed[pod.uid] for pod in pods if pod.uid in self._placed}:
                found[place] = min(found.get(place, name), name)
        return found

    # --- what their status says ---

    async def _say(self, uid: str) -> None:
        """Once for each change. Faults are logged, and the next look says it again."""
        buffer, pods = self._buffers.get(uid), self._pods.get(uid, ())
        if buffer is None:
            return
        roomy = sum(self._is_there(self._placed.get(pod.uid, "")) for pod in pods)
        conditions = decide_conditions(self._unresolved.get(uid), len(pods), roomy)
        status = self._status(buffer, len(pods))
        said = (buffer.metadata.generation, tuple(status.items()), conditions)
        if self._said.get(uid) == said:
            return
        meta = buffer.metadata
        try:
            await self._port.say(meta.namespace, meta.name, uid, status=status, conditions=conditions, now=self._now())
        except Fault as fault:
            log.warning("status of a CapacityBuffer not written", name=meta.name, fault=str(fault))
            return
        self._said[uid] = said

    def _status(self, buffer: CapacityBuffer, replicas: int) -> dict[str, object]:
        ref = buffer.spec.pod_template_ref
        template = self._templates.get((buffer.metadata.namespace, ref.name)) if ref else None
        return {
            "replicas": replicas,
            "provisioningStrategy": buffer.spec.provisioning_strategy,
            "podTemplateRef": {"name": ref.name} if ref and template else None,
            "podTemplateGeneration": template["metadata"].get("generation") if template else None,
        }

    def _is_there(self, place: str) -> bool:
        """A node that is up, and not one that is still coming."""
        claim = self._caches.claims.get(place)
        return claim.initialized if claim is not None else place in self._caches.nodes
