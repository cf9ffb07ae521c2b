"""Drift detection: every launched NodeClaim is evaluated when its inputs changed, and every five minutes.

A NodeClaim whose drift changed is requeued. All instances are read from EC2 in one list."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Events, Instances, publish_event_on
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.clock import wait_until_set
from tenure.controller.cache.changes import ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.tables import set_or_remove
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.base import instance_id_of
from tenure.model.errors import Fault
from tenure.model.facts import NodeClaimFact
from tenure.model.instance_types import InstanceType
from tenure.model.invalid_objects import ObjectKey
from tenure.model.provider_results import InstanceFacts
from tenure.policy.disruption.drift import Drift, DriftFacts, decide_drift

log = structlog.get_logger(__name__)

FULL_PASS_INTERVAL: Final = timedelta(minutes=5)
"""Between two full passes (reference 6.1)."""
RELIST_AFTER: Final = timedelta(seconds=30)
"""Before an extra list of instances: the last list failed, or lacked a launched instance."""
GATHER_SECONDS: Final = 1.0
"""Seconds during which changes are collected."""
BATCH_SIZE: Final = 100
"""NodeClaims evaluated before other tasks of the event loop run."""

Types = Callable[[EC2NodeClass], Mapping[str, InstanceType] | None]
"""Instance types by name, for the current form of a NodeClass; None while they are unknown."""


class DriftDetector:
    """Drift by NodeClaim. Run `run` in a task once every kind is synced; call the rest from the same event loop."""

    def __init__(
        self, *, cache: ClusterCache, types: Types, instances: Instances, events: Events, now: Callable[[], datetime]
    ) -> None:
        self._cache, self._types = cache, types
        self._instances, self._events, self._now = instances, events, now
        self._drifts: dict[str, Drift | None] = {}
        """By UID, of every NodeClaim that this process evaluated."""
        self._evaluated: dict[str, NodeClaimFact] = {}
        """By name, the fact that was evaluated."""
        self._bases: dict[str, object] = {}
        """Last observed values of NodePools and NodeClasses that NodeClaims are compared with."""
        self._changed: set[str] = set()
        self._next: datetime = now()
        """Time of the next full pass."""
        self._listed: Mapping[str, InstanceFacts] = {}
        self._listed_at: datetime | None = None
        self._awake = asyncio.Event()

    def drift_of(self, claim: NodeClaimFact) -> Drift | None:
        """The last detected drift; before the first evaluation, the condition Drifted of the NodeClaim."""
        if claim.uid in self._drifts:
            return self._drifts[claim.uid]
        return Drift(reason=claim.drifted, message=claim.drifted_message) if claim.drifted else None

    def observe(self, changes: ChangeSet) -> None:
        """Queue changed NodeClaims, or a full pass after a change of a NodePool or NodeClass that can cause drift."""
        for claim in changes.deleted_nodeclaims.values():
            self._drifts.pop(claim.uid, None)
            self._evaluated.pop(claim.name, None)
        changed = {
            name for name in changes.nodeclaims if self._evaluated.get(name) is not self._cache.nodeclaims.get(name)
        }
        self._changed |= changed
        bases = [f"pool/{name}" for name in (*changes.nodepools, *changes.deleted_nodepools)]
        bases += [f"class/{name}" for name in (*changes.nodeclasses, *changes.deleted_nodeclasses)]
        everything = [self._is_new(base) for base in bases]
        if any(everything):
            self.schedule_full_pass()
        elif changed:
            self._awake.set()

    def schedule_full_pass(self) -> None:
        self._next = self._now()
        self._awake.set()

    async def run(self) -> None:
        while True:
            await self._until_due()
            try:
                await self.run_pass()
            except Exception:
                log.exception("drift detection failed")

    async def run_pass(self) -> None:
        """One pass: over all NodeClaims when a full pass is due, else over the queued ones."""
        now = self._now()
        changed, self._changed = self._changed, set()
        if now < self._next:
            await self._evaluate(changed, now)
            return
        self._next = now + FULL_PASS_INTERVAL
        await self._list(now)
        await self._evaluate(tuple(self._cache.nodeclaims), now)
        await self._publish_unresolved()

    async def _until_due(self) -> None:
        remaining = (self._next - self._now()).total_seconds()
        if await wait_until_set(self._awake, remaining):
            await asyncio.sleep(GATHER_SECONDS)
        self._awake.clear()

    def _is_new(self, base: str) -> bool:
        """Whether the fields of a NodePool or NodeClass that NodeClaims are compared with changed."""
        kind, _, name = base.partition("/")
        known = self._pool_base(name) if kind == "pool" else self._class_base(name)
        new = self._bases.get(base) != known
        set_or_remove(self._bases, base, known)
        return new

    def _pool_base(self, name: str) -> object:
        view = self._cache.nodepools.get(name)
        return view and (view.fact.hash, view.fact.requirements)

    def _class_base(self, name: str) -> object:
        """The order of subnets is ignored, since it follows their free addresses. The order of images matters."""
        found = self._cache.nodeclasses.get(name)
        if found is None:
            return None
        status, stamps = found.status, found.metadata.annotations
        reservations_ready, ready = found.condition(labels.CAPACITY_RESERVATIONS_READY), found.condition(labels.READY)
        return (
            found.metadata.generation,
            ready and ready.observed_generation,
            found.metadata.is_deleting,
            stamps.get(labels.NODECLASS_HASH),
            stamps.get(labels.NODECLASS_HASH_VERSION),
            found.spec.placement_group_selector,
            tuple(status.amis),
            frozenset(one.id for one in status.subnets),
            frozenset(one.id for one in status.security_groups),
            frozenset(one.id for one in status.capacity_reservations),
            reservations_ready and reservations_ready.status,
        )

    async def _evaluate(self, names: Iterable[str], now: datetime) -> None:
        types, remaining = _memoized(self._types), list(names)
        while remaining:
            batch, remaining = remaining[:BATCH_SIZE], remaining[BATCH_SIZE:]
            claims = (claim for name in batch if (claim := self._cache.nodeclaims.get(name)))
            await asyncio.gather(*(self._evaluate_one(claim, types, now) for claim in claims))
            await asyncio.sleep(0)

    async def _evaluate_one(self, claim: NodeClaimFact, types: Types, now: datetime) -> None:
        """A NodeClaim whose evaluation fails keeps its drift, and others are evaluated."""
        with self._cache.invalid_objects.guard(ObjectKey(NODE_CLAIMS.kind, claim.name, claim.uid, "drift")):
            before = self.drift_of(claim)
            facts = self._drift_facts(claim, types, before)
            drift = decide_drift(facts, now)
            if drift is not None and drift.recheck:
                drift = decide_drift(await self._read_instance(facts), now)
            self._record_drift(claim, drift, before)

    def _record_drift(self, claim: NodeClaimFact, drift: Drift | None, before: Drift | None) -> None:
        known = self._cache.nodeclaims.get(claim.name)
        if known is None or known.uid != claim.uid:
            return
        self._evaluated[claim.name] = claim
        self._drifts[claim.uid] = drift
        if drift != before:
            reason, previous_reason = (one.reason if one else "none" for one in (drift, before))
            log.info("drift", claim=claim.name, reason=reason, before=previous_reason)
            self._cache.requeue_nodeclaim(claim.name)

    def _drift_facts(self, claim: NodeClaimFact, types: Types, previous: Drift | None) -> DriftFacts:
        pool, node_class = self._cache.nodepools.get(claim.pool), self._cache.nodeclasses.get(claim.node_class)
        return DriftFacts(
            claim=claim,
            pool=pool.fact if pool else None,
            node_class=node_class,
            types=types(node_class) if node_class else None,
            instance=self._listed.get(instance_id_of(claim.provider_id)),
            previous=previous,
        )

    async def _read_instance(self, facts: DriftFacts) -> DriftFacts:
        """Read the instance again. An instance that cannot be read counts as unknown."""
        try:
            found = await self._instances.get(instance_id_of(facts.claim.provider_id))
        except Fault as fault:
            log.warning("instance not read", claim=facts.claim.name, fault=str(fault))
            found = None
        return replace(facts, instance=found, fresh=True)

    async def _list(self, now: datetime) -> None:
        """List all instances if due. After a failure, drift that depends on instances stays unchanged."""
        launched = {
            instance_id_of(one.provider_id)
            for one in self._cache.nodeclaims.values()
            if one.launched and not one.deleting
        }
        if not launched:
            return
        due = (
            self._listed_at + (FULL_PASS_INTERVAL if launched <= self._listed.keys() else RELIST_AFTER)
            if self._listed_at
            else now
        )
        if now < due:
            self._next = min(self._next, due)
            return
        self._listed_at = now
        try:
            self._listed = {one.instance_id: one for one in await self._instances.list_managed()}
        except Fault as fault:
            log.warning("instances not listed: drift that depends on them stays unchanged", fault=str(fault))
            self._listed = {}
            self._next = now + RELIST_AFTER

    async def _publish_unresolved(self) -> None:
        """Publish an event on each NodePool with nodes whose NodeClass is missing or deleting: they cannot drift."""
        for name, view in tuple(self._cache.nodepools.items()):
            node_class = self._cache.nodeclasses.get(view.fact.node_class)
            if (
                node_class is not None and not node_class.metadata.is_deleting
            ) or not self._cache.nodeclaims_of_nodepool(name):
                continue
            reason = labels.NODECLASS_TERMINATING if node_class else labels.NODECLASS_NOT_FOUND
            message = f"Failed resolving NodeClass {view.fact.node_class}: its nodes are not checked for drift"
            await publish_event_on(self._events, "NodePool", view.fact, reason, message)


def _memoized(types: Types) -> Types:
    known: dict[str, Mapping[str, InstanceType] | None] = {}

    def lookup(node_class: EC2NodeClass) -> Mapping[str, InstanceType] | None:
        if node_class.name not in known:
            known[node_class.name] = types(node_class)
        return known[node_class.name]

    return lookup
