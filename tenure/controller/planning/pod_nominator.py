"""Tells kube-scheduler where pods that keep company, or keep apart, are expected: `status.nominatedNodeName`.

kube-scheduler tries that node first and keeps its room from other pods (docs/decisions/nominated-pods.md). It is
written once the Node of a planned NodeClaim is there, and again when a try that came too early has taken it off.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Final, Protocol

import structlog

from activities.runtime import each
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import Nominations
from tenure.model.errors import Fault, Forbidden
from tenure.model.facts import PodFact

log = structlog.get_logger(__name__)

MOST_TIMES: Final = 10
"""That a pod is told of one node: kube-scheduler may have its reasons."""


class Nominator(Protocol):
    """Where a pod is expected, written into its status; `kube.pods` satisfies it."""

    async def nominate(self, pod: PodFact, node: str, *, now: datetime) -> bool:
        """False when it is gone."""
        ...


class Placing:
    def __init__(
        self, caches: Caches, nominations: Nominations, nominator: Nominator, now: Callable[[], datetime]
    ) -> None:
        self._caches, self._nominations, self._nominator, self._now = caches, nominations, nominator, now
        self._open: set[str] = set()
        """NodeClaims that expect such pods and have a Node."""
        self._told: dict[str, tuple[str, int]] = {}
        """By pod: the node, and how often it was told."""
        self._due: dict[str, str] = {}
        self._work = asyncio.Event()

    def look(self, claims: Collection[str]) -> None:
        """At these NodeClaims, whose nodes may have come, and at those whose pods were told before."""
        for name in self._open.union(claims):
            found = dict(self._expected(name))
            self._open.discard(name)
            if found:
                self._open.add(name)
                self._due.update((uid, node) for uid, node in found.items() if self._untold(uid, node))
        self._told = {uid: told for uid, told in self._told.items() if uid in self._caches.pending}
        if self._due:
            self._work.set()

    def _expected(self, claim: str) -> Iterator[tuple[str, str]]:
        """The picky pods that wait for this claim, each with its Node."""
        fact = self._caches.claims.get(claim)
        nodes = self._caches.nodes_of(fact) if fact and not fact.deleting else ()
        for uid in self._nominations.waiting(claim) if nodes else ():
            pod = self._caches.pending.get(uid)
            if pod is not None and pod.picky:
                yield uid, nodes[0].name

    def _untold(self, uid: str, node: str) -> bool:
        pod = self._caches.pending[uid]
        told, times = self._told.get(uid, ("", 0))
        return not pod.nominated_node and pod.expected_on != node and (told != node or times < MOST_TIMES)

    async def run(self) -> None:
        """Until cancelled, or until it turns out that the right is missing."""
        while True:
            await self._work.wait()
            self._work.clear()
            due, self._due = self._due, {}
            if not all(await each(due.items(), self._tell)):
                return

    async def _tell(self, due: tuple[str, str]) -> bool:
        uid, node = due
        pod = self._caches.pending.get(uid)
        if pod is None:
            return True
        told, times = self._told.get(uid, ("", 0))
        self._told[uid] = (node, times + 1 if told == node else 1)
        try:
            await self._nominator.nominate(pod, node, now=self._now())
        except Forbidden as fault:
            log.error("pods are not nominated: apply deploy/rbac, or set NOMINATE_PODS=false", fault=fault.message)
            return False
        except Fault as fault:
            log.warning("pod not nominated", pod=f"{pod.namespace}/{pod.name}", node=node, fault=fault.message)
        return True
