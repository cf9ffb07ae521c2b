"""From what changed in the caches to signals for NodeClaim, NodePool and NodeClass workflows.

`host.py` calls `tell` after every burst of changes; `signaller.py` sends. Kinds that are not synced yet hold back only
what depends on them.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from tenure.apis.labels import LAUNCH_GROUP, NODECLASS, REPLACES, WHY
from tenure.controller.cache.availability import Away, evacuated_until
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty, Due
from tenure.controller.cache.expected_pods import Awaited
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.nodeclaim_factory import alike
from tenure.controller.signals.digests import Digest, View, claim_digest, fingerprint, node_class_digest, pool_digest
from tenure.controller.signals.lifecycle_observers import NodeLives
from tenure.controller.signals.signaller import Signal, Signaller, Start
from tenure.model.base import Message
from tenure.model.facts import ClaimFact, NodeFact
from tenure.model.nodeclaim_state import ClaimIdentity, ClaimState, Deadlines
from tenure.model.observations import ClaimSeen, NodeClassSeen, PoolSeen
from tenure.model.provisioning import Expected
from tenure.model.workflow_states import NodeClassState, PoolState
from tenure.policy.disruption.drift import Drift
from workflows import ids
from workflows.visibility import claim_start

log = structlog.get_logger(__name__)

POOL_PAUSE: Final = timedelta(seconds=1)
"""Between two signals to one NodePool workflow."""
GONE_AFTER: Final = timedelta(seconds=5)
"""A NodeClaim leaves because its workflow lets it go; only one that is still running by then is told."""
_GONE: Final = "gone"


@dataclass(frozen=True)
class Known:
    """Which kinds are synced, and for how long pods may still be expected on nodes that look empty."""

    claims: bool
    nodes: bool
    pods: bool
    pools: bool
    node_classes: bool
    unplanned: datetime | None
    """Until then: this host is new, pods are pending or buffers there, and no plan has said yet where they go."""
    policies: bool = True
    """LifecyclePolicies, and the NodePools that they select."""
    pauses: bool = True
    """Namespaces, one of which carries the cluster's."""


class Telling:
    def __init__(
        self,
        *,
        cluster: str,
        deadlines: Deadlines,
        caches: Caches,
        nominations: Nominations,
        away: Away,
        signaller: Signaller,
        began: datetime,
        number: Callable[[], int] = time.time_ns,
        drift: Callable[[ClaimFact], Drift | None] = lambda claim: None,
        kept_for: Callable[[str], str] = lambda claim: "",
        lives: NodeLives | None = None,
        static_capacity: bool = False,
        node_repair: bool = False,
    ) -> None:
        """`kept_for`: the CapacityBuffer that needs the room on a NodeClaim's node, by its name; empty for none."""
        self._cluster, self._deadlines = cluster, deadlines
        self._caches, self._nominations, self._signaller = caches, nominations, signaller
        self._began, self._number, self._drift, self._kept_for = began, number, drift, kept_for
        self._away, self._awaited, self._lives = away, Awaited(caches, nominations, away), lives
        self._static_capacity, self._node_repair = static_capacity, node_repair
        self._due = Due()
        self._held: dict[str, set[str]] = {}
        self._pools_told: dict[str, datetime] = {}

    def next(self) -> datetime | None:
        """When there is something to look at again without any change."""
        return self._due.next()

    def tell(self, dirty: Dirty, known: Known, now: datetime) -> None:
        """Offer a signal for everything that changed, or whose time has come, as far as it is known."""
        self._bury(dirty, now)
        self._wake(dirty, now)
        _each(
            self._ready(dirty.claims, "claim", known.claims and known.nodes and known.policies),
            self._claim_teller(known, now),
        )
        pools_known = known.pools and known.claims and known.node_classes and known.policies and known.pauses
        _each(self._ready(dirty.pools, "pool", pools_known), lambda name: self._tell_pool(name, now))
        classes_known = known.node_classes and known.claims
        _each(self._ready(dirty.node_classes, "class", classes_known), self._tell_node_class)

    def _wake(self, dirty: Dirty, now: datetime) -> None:
        for key in self._due.take(now):
            kind, _, name = key.partition("/")
            if kind == "claim":
                dirty.claims.add(name)
            elif kind == "pool":
                dirty.pools.add(name)
            else:
                self.say_gone(name)

    def _ready(self, names: set[str], kind: str, known: bool) -> set[str]:
        """What can be told now; the rest is held until enough is known."""
        held = self._held.pop(kind, set()) | names
        if known:
            return held
        self._held[kind] = held
        return set()

    def _claim_teller(self, known: Known, now: datetime) -> Callable[[str], None]:
        return lambda name: self._tell_claim(name, known, now)

    def identity(self, claim: ClaimFact) -> ClaimIdentity:
        return ClaimIdentity(
            cluster=self._cluster,
            name=claim.name,
            uid=claim.uid,
            pool=claim.pool,
            node_class=claim.labels.get(NODECLASS, claim.node_class),
            group_id=claim.annotations.get(LAUNCH_GROUP, ""),
            alike=alike(claim),
            created=claim.created,
            why=claim.annotations.get(WHY, ""),
            replaces=claim.annotations.get(REPLACES, ""),
        )

    def workflow_id(self, claim: ClaimFact) -> str:
        return ids.nodeclaim(self._cluster, claim.name, claim.uid)

    def revive(self, claim: ClaimFact, known: Known, now: datetime) -> None:
        """Its workflow is not running though the NodeClaim is there: start it, whatever was told before."""
        self._signaller.withdraw(self.workflow_id(claim))
        self._tell_claim(claim.name, known, now, again=True)

    def say_gone(self, workflow_id: str) -> None:
        """A workflow runs whose NodeClaim is not there."""
        seen = ClaimSeen(number=self._number(), exists=False)
        self._signaller.offer(Signal(workflow_id, "seen", seen, _GONE))

    # --- claims ---

    def _tell_claim(self, name: str, known: Known, now: datetime, *, again: bool = False) -> None:
        claim = self._caches.claims.get(name)
        if claim is None:
            return
        if claim.deleting:
            self._nominations.forget(name)
        if claim.initialized and not claim.deleting and not (known.pods and known.pools):
            self._held.setdefault("claim", set()).add(name)
            return
        workflow_id = self.workflow_id(claim)
        digest = claim_digest(self._view(claim, workflow_id, known, now), now)
        self._due.set(f"claim/{name}", self._again(digest, claim, known, now))
        identity = self.identity(claim)
        start = Start(
            "NodeClaimWorkflow",
            ClaimState(identity=identity, deadlines=self._deadlines, keeps_records=True),
            claim_start(identity, identity.created + self._limits(claim.pool).launch),
            f"{name} of {claim.pool}" if claim.pool else name,
            again=again,
        )
        seen = digest.seen.model_copy(update={"number": self._number(), "expected": self._expected(claim)})
        self._signaller.offer(Signal(workflow_id, "seen", seen, _written(digest.seen), start))

    def _expected(self, claim: ClaimFact) -> Expected | None:
        """Of a node that starts; it is worth no signal of its own."""
        starts = claim.pool and not (claim.initialized or claim.deleting)
        return self._lives.startup.expected(claim.pool) if self._lives and starts else None

    def _limits(self, pool: str) -> Deadlines:
        return self._lives.policies.deadlines_of(pool) if self._lives else self._deadlines

    def _view(self, claim: ClaimFact, workflow_id: str, known: Known, now: datetime) -> View:
        nodes = self._caches.nodes_of(claim)
        told_since = _since(self._signaller.told(workflow_id))
        vacated = [moment for node in nodes if (moment := self._caches.occupancy.vacated(node.name))]
        pool = self._caches.pools.get(claim.pool)
        vacant_since = max(vacated) if vacated else told_since
        occupied = (known.unplanned and told_since is None) or self._occupied(claim, nodes, now)
        expected = self._awaited.of(claim, now, occupied=occupied)
        return View(
            claim=claim,
            nodes=nodes,
            policy=pool.policy if pool else "",
            occupied=occupied,
            expected=expected.any,
            expected_until=expected.until,
            awaits=expected.words,
            awaits_since=expected.since,
            vacant_since=vacant_since or self._unseen(claim),
            drift=self._drift(claim),
            unseen=vacant_since is None,
            kept_for=self._kept_for(claim.name),
            away=self._away.of(claim),
            rules=self._lives.policies.rules_of(claim.pool) if self._lives else None,
            event_policies=self._lives.policies.event_policies_of(claim.pool) if self._lives else {},
            events_unread=self._lives.policies.unread_of(claim.pool).interruption if self._lives else "",
            repaired=self._node_repair,
        )

    def _occupied(self, claim: ClaimFact, nodes: Sequence[NodeFact], now: datetime) -> bool:
        """So is one that is emptied because AWS takes it back: its workflow is told of that, and needs nothing else."""
        if claim.name in self._caches.evacuated or evacuated_until(nodes, now) is not None:
            return True
        return any(self._caches.occupancy.occupied(node.name) for node in nodes)

    def _unseen(self, claim: ClaimFact) -> datetime | None:
        """A node that was up before this process watched may have lost its last pod up to that moment."""
        before = claim.initialized_at is not None and claim.initialized_at < self._began
        return self._began if before else None

    def _again(self, digest: Digest, claim: ClaimFact, known: Known, now: datetime) -> datetime | None:
        unplanned = known.unplanned if claim.initialized else None
        moments = (unplanned, digest.again, evacuated_until(self._caches.nodes_of(claim), now))
        return min((one for one in moments if one), default=None)

    def _bury(self, dirty: Dirty, now: datetime) -> None:
        for claim in dirty.gone_claims.values():
            workflow_id = self.workflow_id(claim)
            self._signaller.withdraw(workflow_id)
            self._nominations.forget(claim.name)
            self._due.set(f"claim/{claim.name}", None)
            self._due.set(f"gone/{workflow_id}", now + GONE_AFTER)
        for name in dirty.gone_pools:
            self.say_pool_gone(ids.nodepool(self._cluster, name))
        for name in dirty.gone_node_classes:
            self.say_node_class_gone(ids.nodeclass(self._cluster, name))

    def say_pool_gone(self, workflow_id: str) -> None:
        self._say_over(workflow_id, PoolSeen(number=self._number(), exists=False))

    def say_node_class_gone(self, workflow_id: str) -> None:
        self._say_over(workflow_id, NodeClassSeen(number=self._number(), exists=False))

    def _say_over(self, workflow_id: str, seen: Message) -> None:
        self._signaller.withdraw(workflow_id)
        self._signaller.offer(Signal(workflow_id, "seen", seen, _GONE))

    # --- coordinators ---

    def _tell_pool(self, name: str, now: datetime) -> None:
        view = self._caches.pools.get(name)
        if view is None:
            return
        last = self._pools_told.get(name)
        if last is not None and now < last + POOL_PAUSE:
            self._due.set(f"pool/{name}", last + POOL_PAUSE)
            return
        node_class = self._caches.node_classes.get(view.fact.node_class)
        claims = self._caches.claims_of_pool(name)
        said = self._lives.of_pool(name, view.pause) if self._lives else {}
        gate = self._static_capacity
        seen = pool_digest(view.fact, claims, node_class, static_capacity=gate, healthy_at=view.healthy_at, **said)
        start = Start("NodePoolWorkflow", PoolState(cluster=self._cluster, name=name), summary=f"NodePool {name}")
        numbered = seen.model_copy(update={"number": self._number()})
        signal = Signal(ids.nodepool(self._cluster, name), "seen", numbered, fingerprint(seen), start)
        if self._signaller.offer(signal):
            self._pools_told[name] = now

    def _tell_node_class(self, name: str) -> None:
        node_class = self._caches.node_classes.get(name)
        if node_class is None:
            return
        holders = [claim for claim in self._caches.claims.values() if claim.node_class == name]
        seen = node_class_digest(node_class, holders)
        start = Start(
            "NodeClassWorkflow", NodeClassState(cluster=self._cluster, name=name), summary=f"EC2NodeClass {name}"
        )
        numbered = seen.model_copy(update={"number": self._number()})
        self._signaller.offer(Signal(ids.nodeclass(self._cluster, name), "seen", numbered, fingerprint(seen), start))


def _each(names: Iterable[str], tell: Callable[[str], None]) -> None:
    """One object that cannot be digested must not keep the others from being told."""
    for name in names:
        try:
            tell(name)
        except Exception:
            log.exception("digest failed", name=name)


def _written(seen: ClaimSeen) -> str:
    """What is remembered as told. Since when a node is empty rides along: no object in the cluster says it."""
    known = seen.empty_since is not None and not seen.empty_since_unseen
    since = f"@{seen.empty_since.isoformat()}" if seen.empty_since and known else ""
    return fingerprint(seen) + since


def _since(told: str) -> datetime | None:
    _, _, since = told.partition("@")
    return datetime.fromisoformat(since) if since else None
