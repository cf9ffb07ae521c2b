"""Nodes with less capacity than their NodeClaim promised: a condition and an event, every ten minutes (reference 3.7).

The check reads the cache, so that it adds nothing to workflow histories, and writes only what it found or cleared. No
decision depends on it."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Claims, ConditionPatch, Events
from tenure.apis import labels
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.errors import Fault
from tenure.model.facts import NodeClaimFact
from tenure.model.invalid_objects import ObjectKey
from tenure.policy.lifecycle.initialization import describe_missing_resources

log = structlog.get_logger(__name__)

CHECK_INTERVAL: Final = timedelta(minutes=10)
EVENT: Final = "FailedConsistencyCheck"


class ConsistencyChecker:
    def __init__(self, *, cache: ClusterCache, claims: Claims, events: Events, now: Callable[[], datetime]) -> None:
        self._cache, self._claims, self._events, self._now = cache, claims, events, now

    async def run(self) -> None:
        """Runs until cancelled. Start it once NodeClaims and Nodes are synced."""
        while True:
            await self.check_all()
            await asyncio.sleep(CHECK_INTERVAL.total_seconds())

    async def check_all(self) -> None:
        """Check every initialized node in turn. A node whose condition cannot be written blocks no other."""
        for name in tuple(self._cache.nodeclaims):
            claim = self._cache.nodeclaims.get(name)
            if claim is None or not claim.initialized or claim.deleting:
                continue
            with self._cache.invalid_objects.guard(ObjectKey(NODE_CLAIMS.kind, name, claim.uid, "consistency")):
                try:
                    await self._check(claim)
                except Fault as fault:
                    log.warning("consistency not written", claim=name, fault=str(fault))

    async def _check(self, claim: NodeClaimFact) -> None:
        nodes = self._cache.nodes_of(claim)
        if len(nodes) != 1:
            return
        requests = {key: amount for key, amount in claim.requests.items() if key not in claim.dra_resources}
        lacking = describe_missing_resources(requests, claim.capacity, nodes[0].capacity)
        if not lacking and claim.consistent == "True":
            return
        condition = ConditionPatch(
            type=labels.CONSISTENT_STATE_FOUND,
            status="False" if lacking else "True",
            reason=labels.CONSISTENCY_CHECK_FAILED if lacking else "",
            message=lacking,
        )
        await self._claims.patch(claim.name, claim.uid, conditions=(condition,), now=self._now())
        if lacking:
            await self._events.publish(kind="NodeClaim", name=claim.name, uid=claim.uid, reason=EVENT, message=lacking)
