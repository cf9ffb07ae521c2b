"""Writes `status.nominatedNodeName` of pods with pod affinity or spread (docs/decisions/nominated-pods.md).

kube-scheduler tries that node first and reserves its capacity. The field is written when the Node of a planned
NodeClaim exists, and again when kube-scheduler removed it because it tried too early."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Final, Protocol

import structlog

from activities.runtime import call_for_each
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nominations
from tenure.model.errors import Fault, Forbidden
from tenure.model.facts import PodFact
from tenure.model.invalid_objects import pod_key

log = structlog.get_logger(__name__)

MAX_NOMINATIONS: Final = 10
"""Per pod and node, since kube-scheduler may have a reason not to bind the pod there."""
DENIED_SECONDS: Final = 60.0
"""Pause after a rejection, for example by a webhook. A missing permission is not tried with all pods at once."""
_STEP: Final = "nomination"


class NominationPort(Protocol):
    """Writes the expected node into a pod's status; `kube.pods` implements it."""

    async def nominate(self, pod: PodFact, node: str, *, now: datetime) -> bool:
        """False when the pod is gone."""
        ...


class PodNominator:
    def __init__(
        self, cache: ClusterCache, nominations: Nominations, port: NominationPort, now: Callable[[], datetime]
    ) -> None:
        self._cache, self._nominations, self._port, self._now = cache, nominations, port, now
        self._expecting: set[str] = set()
        """NodeClaims with a Node that expect pods with pod-dependent constraints."""
        self._nominated: dict[str, tuple[str, int]] = {}
        """By pod: the node and the number of nominations to it."""
        self._due: dict[str, str] = {}
        self._wake = asyncio.Event()

    def update(self, claims: Collection[str]) -> None:
        """Check these NodeClaims, whose Nodes may have joined, and those that already expect pods."""
        for name in self._expecting.union(claims):
            found = dict(self._expected_pods(name))
            self._expecting.discard(name)
            if found:
                self._expecting.add(name)
                self._due.update((uid, node) for uid, node in found.items() if self._needs_nomination(uid, node))
        self._nominated = {uid: nominated for uid, nominated in self._nominated.items() if uid in self._cache.pending}
        self._due = {uid: node for uid, node in self._due.items() if uid in self._cache.pending}
        self._cache.invalid_objects.retain(_STEP, self._cache.pending)
        if self._due:
            self._wake.set()

    def _expected_pods(self, claim: str) -> Iterator[tuple[str, str]]:
        """Pods with pod-dependent constraints that wait for this claim, each with the Node's name."""
        fact = self._cache.nodeclaims.get(claim)
        nodes = self._cache.nodes_of(fact) if fact and not fact.deleting else ()
        for uid in self._nominations.pods_expected_on(claim) if nodes else ():
            pod = self._cache.pending.get(uid)
            if pod is not None and pod.has_pod_dependent_constraints:
                yield uid, nodes[0].name

    def _needs_nomination(self, uid: str, node: str) -> bool:
        pod = self._cache.pending[uid]
        last_node, times = self._nominated.get(uid, ("", 0))
        return not pod.nominated_node and pod.expected_on != node and (last_node != node or times < MAX_NOMINATIONS)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._due = self._due, {}
            if not all(await call_for_each(due.items(), self._nominate)):
                await asyncio.sleep(DENIED_SECONDS)

    async def _nominate(self, due: tuple[str, str]) -> bool:
        uid, node = due
        pod = self._cache.pending.get(uid)
        if pod is None:
            return True
        last_node, times = self._nominated.get(uid, ("", 0))
        self._nominated[uid] = (node, times + 1 if last_node == node else 1)
        is_allowed = True
        with self._cache.invalid_objects.guard(pod_key(pod, _STEP)):
            is_allowed = await self._write(pod, node)
        return is_allowed

    async def _write(self, pod: PodFact, node: str) -> bool:
        """False if Tenure may not write the status of pods."""
        try:
            await self._port.nominate(pod, node, now=self._now())
        except Forbidden as fault:
            log.error(
                "pods are not nominated: apply deploy/rbac/optional/nominate-pods.yaml, or set NOMINATE_PODS=false",
                fault=fault.message,
            )
            return False
        except Fault as fault:
            log.warning("pod not nominated", pod=f"{pod.namespace}/{pod.name}", node=node, fault=fault.message)
        return True
