"""The cluster as this process sees it: facts by name, kept up to date by list-watches, pruned to what is decided on.

`host.py` feeds it and reads what has become dirty; `digests.py` and `demand.py` decide on what stands here; the same
changes, in the same order, go to the planner process.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog
from pydantic import ValidationError

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import NODECLASS_HASH_VERSION
from tenure.controller.cache import decoders
from tenure.controller.cache.dirty import (
    Changes,
    Dirty,
    PoolView,
    alters,
    change,
    discard,
    everything,
    matters,
    pool_view,
    put,
    timed,
)
from tenure.controller.cache.occupancy import Occupancy, concerns_pods
from tenure.controller.cache.occupancy import timed as with_times
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts.objects import claim_fact, is_ours, node_fact
from tenure.kube.facts.pods import pod_fact
from tenure.model.extra_capacity import BufferFact
from tenure.model.facts import ClaimFact, DaemonSetFact, NamespaceFact, NodeFact, PodBudgetFact, PodFact
from tenure.model.nodeoverlays import OverlayFact
from tenure.scheduling.snapshot import Change, Fact, Kind, Storage

log = structlog.get_logger(__name__)

F = TypeVar("F", bound=Fact)

_REMEMBERED_DELETIONS: Final = 2000


class Caches:
    """Facts by kind. `now` is the wall clock; `woken` is called after every change."""

    def __init__(self, now: Callable[[], datetime], woken: Callable[[], None] = lambda: None) -> None:
        self._now = now
        self._woken = woken
        self.pods: dict[str, PodFact] = {}
        self.nodes: dict[str, NodeFact] = {}
        self.claims: dict[str, ClaimFact] = {}
        self.pools: dict[str, PoolView] = {}
        self.node_classes: dict[str, EC2NodeClass] = {}
        self.daemonsets: dict[str, DaemonSetFact] = {}
        self.namespaces: dict[str, NamespaceFact] = {}
        self.storage = Storage()
        self.overlays: dict[str, OverlayFact] = {}
        self.buffers: dict[str, BufferFact] = {}
        self.pod_budgets: dict[str, PodBudgetFact] = {}
        """By `namespace/name`."""
        self._plain: Mapping[Kind, dict[str, Any]] = {
            "daemonset": self.daemonsets,
            "namespace": self.namespaces,
            "overlay": self.overlays,
            "pod_budget": self.pod_budgets,
            "buffer": self.buffers,
            "node": self.nodes,
        }
        self.pending: dict[str, PodFact] = {}
        """Pods that are bound nowhere and not finished."""
        self.occupancy = Occupancy()
        self.on_pod_bound: Callable[[str], None] = lambda uid: None
        """Called with the UID of a pod that was pending and has a node now."""
        self.on_pod_gone: Callable[[PodFact], object] = lambda pod: None
        """Called with a pod that is not alive any more."""
        self._nodes_by_provider: dict[str, set[str]] = {}
        self._claim_by_instance: dict[str, str] = {}
        self._claims_by_pool: dict[str, set[str]] = {}
        self._deleted: deque[str] = deque(maxlen=_REMEMBERED_DELETIONS)
        self.going: set[str] = set()
        """NodeClaims whose instance AWS takes back: to plans they are being deleted already (`taken_back.py`)."""
        self.evacuated: set[str] = set()
        """NodeClaims whose pods are told to go for that before their workflows are told of it."""
        self._dirty = Dirty()
        self.changes = Changes()

    # --- what list-watches deliver ---

    def hear(self, kind: str, deltas: Iterable[Delta]) -> None:
        """Take changes of one kind in. An object that cannot be read is left out and logged, not the others."""
        take = self._takers.get(kind)
        for delta in deltas:
            try:
                take(self, delta) if take else self._hear_other(kind, delta)
            except (ValueError, KeyError, ValidationError) as error:
                name = delta.object.get("metadata", {}).get("name")
                log.error("object cannot be read and is left out", kind=kind, name=name, error=str(error)[:300])
        self._woken()

    def _hear_pod(self, delta: Delta) -> None:
        uid = delta.object["metadata"]["uid"]
        new = None if delta.gone else pod_fact(delta.object)
        old = self.pods.get(uid)
        if new == old:
            return
        put(self.pods, uid, new)
        waiting = new if new is not None and not new.node_name and not new.finished else None
        if waiting != self.pending.get(uid):
            put(self.pending, uid, waiting)
            self._dirty.pods = True
            if new is not None and new.node_name:
                self.on_pod_bound(uid)
        last = new or old
        if last is not None and (new is None or not new.alive):
            self.on_pod_gone(last)
        for node in self.occupancy.change(old, new, self._now()):
            self._touch_node(node)
        for one in (old, new):
            self._time_claim(one.node_name if one else "")
        self.changes.note("pod", uid, new, stirs=matters(old, new))

    def _hear_node(self, delta: Delta) -> None:
        name = delta.object["metadata"]["name"]
        old = self.nodes.get(name)
        new = None if delta.gone else with_times(node_fact(delta.object), old, self._now())
        if old is not None and new is None and old.uid != delta.object["metadata"]["uid"]:
            return
        if new == old:
            return
        if old is not None:
            self._touch_node(name)
            discard(self._nodes_by_provider, old.provider_id, name)
        put(self.nodes, name, new)
        if new is not None and new.provider_id:
            self._nodes_by_provider.setdefault(new.provider_id, set()).add(name)
        if new is None:
            self.occupancy.forget([name])
        elif old is None:
            self._time_claim(name)
        self._touch_node(name)
        self._dirty.pods = self._dirty.pods or concerns_pods(old, new)
        self.changes.note("node", name, new)

    def _hear_claim(self, delta: Delta) -> None:
        metadata = delta.object["metadata"]
        if delta.gone:
            self._lose_claim(metadata["name"], metadata["uid"])
        elif is_ours(delta.object["spec"]["nodeClassRef"]):
            self._take_claim(claim_fact(delta.object))

    def _take_claim(self, new: ClaimFact) -> None:
        old = self.claims.get(new.name)
        if new == old:
            return
        if old is not None and old.uid != new.uid:
            self._lose_claim(old.name, old.uid)
            old = None
        self.claims[new.name] = new
        if new.provider_id:
            self._claim_by_instance[_instance(new.provider_id)] = new.name
        self._claims_by_pool.setdefault(new.pool, set()).add(new.name)
        self._dirty.claims.add(new.name)
        self._dirty.pools.add(new.pool)
        if old is None or new.deleting != old.deleting or new.initialized_at != old.initialized_at:
            self._dirty.node_classes.add(new.node_class)
            self._dirty.pods = True
        elif new.annotations.get(NODECLASS_HASH_VERSION) != old.annotations.get(NODECLASS_HASH_VERSION):
            self._dirty.node_classes.add(new.node_class)
        self.changes.note("claim", new.name, new, stirs=alters(old, new))

    def _lose_claim(self, name: str, uid: str) -> None:
        self._deleted.append(uid)
        old = self.claims.get(name)
        if old is None or old.uid != uid:
            return
        del self.claims[name]
        self.going.discard(name)
        self.evacuated.discard(name)
        if self._claim_by_instance.get(_instance(old.provider_id)) == name:
            del self._claim_by_instance[_instance(old.provider_id)]
        discard(self._claims_by_pool, old.pool, name)
        self._dirty.gone_claims[uid] = old
        self._dirty.claims.discard(name)
        self._dirty.pools.add(old.pool)
        self._dirty.node_classes.add(old.node_class)
        self._dirty.pods = True
        self.changes.note("claim", name, None)

    def _hear_pool(self, delta: Delta) -> None:
        name = delta.object["metadata"]["name"]
        if delta.gone or not is_ours(delta.object["spec"]["template"]["spec"]["nodeClassRef"]):
            if self.pools.pop(name, None) is not None:
                self._dirty.gone_pools.add(name)
                self.changes.note("pool", name, None)
            return
        view = pool_view(delta.object)
        old = self.pools.get(name)
        if view == old:
            return
        self.pools[name] = view
        self._dirty.pools.add(name)
        if old is None or old.policy != view.policy:
            self._dirty.claims |= self._claims_by_pool.get(name, set())
        if old is None or old.fact != view.fact:
            self._dirty.pods = True
            self.changes.note("pool", name, view.fact)

    def _hear_node_class(self, delta: Delta) -> None:
        name = delta.object["metadata"]["name"]
        if delta.gone:
            if self.node_classes.pop(name, None) is not None:
                self._dirty.gone_node_classes.add(name)
        else:
            self.node_classes[name] = EC2NodeClass.from_object(delta.object)
            self._dirty.node_classes.add(name)
        self._dirty.pools |= {pool for pool, view in self.pools.items() if view.fact.node_class == name}

    def _hear_other(self, plural: str, delta: Delta) -> None:
        if plural in decoders.KINDS:
            kind, key, fact = decoders.heard(plural, delta)
            self._dirty.pods |= self._replace(self._plain[kind], kind, key, fact) and kind == "overlay"
            return
        stored, key, held = decoders.decode_storage(plural, delta)
        if self.storage.put(stored, key, held):
            self._dirty.pods = True
            if stored == "volume_claim":
                self._dirty.volume_claims.add(key)
            self.changes.note(stored, key, held)

    _takers: Final[Mapping[str, Callable[["Caches", Delta], None]]] = {
        "pods": _hear_pod,
        "nodes": _hear_node,
        "nodeclaims": _hear_claim,
        "nodepools": _hear_pool,
        "ec2nodeclasses": _hear_node_class,
    }

    # --- what this process does itself ---

    def expect(self, claim: ClaimFact) -> None:
        """A NodeClaim that was just created counts before the watch shows it; unless it is gone again already."""
        if claim.uid not in self._deleted and claim.name not in self.claims:
            self._take_claim(claim)

    def take_buffer(self, uid: str, fact: BufferFact | None) -> bool:
        """What a CapacityBuffer asks for; None: nothing. False when it is as it was."""
        return self._replace(self.buffers, "buffer", uid, fact)

    def touch_claim(self, name: str) -> None:
        """Something outside these caches changed for it: its digest is due."""
        if name in self.claims:
            self._dirty.claims.add(name)
            self._woken()

    def take_back(self, name: str, *, taken: bool) -> None:
        """AWS takes its instance back, or, with False, did not."""
        claim = self.claims.get(name)
        if claim is None or taken == (name in self.going):
            return
        self.going ^= {name}
        self.changes.note("claim", name, claim)
        self.touch_pods()

    def evacuate(self, name: str, *, evacuated: bool) -> None:
        """Its pods are told to go, or, with False, that was so long ago that AWS has left it standing."""
        self.evacuated = self.evacuated | {name} if evacuated else self.evacuated - {name}
        self._dirty.claims.add(name)
        self._woken()

    def touch_pods(self) -> None:
        """Something outside these caches changed which pods want a node."""
        self._dirty.pods = True
        self._woken()

    # --- what is asked ---

    def nodes_of(self, claim: ClaimFact) -> tuple[NodeFact, ...]:
        """By provider id, in order of name."""
        if not claim.provider_id:
            return ()
        return tuple(self.nodes[name] for name in sorted(self._nodes_by_provider.get(claim.provider_id, ())))

    def claim_of(self, node: str) -> str:
        """The name of the NodeClaim that this Node belongs to; empty when it is not ours."""
        fact = self.nodes.get(node)
        return self._claim_by_instance.get(_instance(fact.provider_id), "") if fact else ""

    def owner_of(self, uid: str) -> str:
        """The UID of what made this pod; empty where that is unknown."""
        pod = self.pods.get(uid)
        return pod.owner_uid if pod else ""

    def claim_on(self, instance_id: str) -> ClaimFact | None:
        """The NodeClaim whose instance this is."""
        return self.claims.get(self._claim_by_instance.get(instance_id, ""))

    def claims_of_pool(self, pool: str) -> tuple[ClaimFact, ...]:
        return tuple(self.claims[name] for name in sorted(self._claims_by_pool.get(pool, ())))

    def take_dirty(self) -> Dirty:
        """What changed since the last call."""
        dirty, self._dirty = self._dirty, Dirty()
        return dirty

    def take_changes(self) -> tuple[Change, ...]:
        """The latest form of every object that changed since the last call, for the planner."""
        return self.changes.take(self.timed)

    def snapshot(self) -> tuple[Change, ...]:
        """Everything, for a planner that starts empty; pending changes are part of it."""
        self.changes.take(self.timed)
        pools = {name: view.fact for name, view in self.pools.items()}
        claims = {name: self.timed(name) for name in self.claims}
        tables: Mapping[Kind, Mapping[str, Fact]] = {**self._plain, "pool": pools, "claim": claims, "pod": self.pods}
        return (*(change(*one) for one in self.storage.everything()), *everything(tables))

    def _touch_node(self, node: str) -> None:
        self._dirty.claims |= {self.claim_of(node)} - {""}

    def _time_claim(self, node: str) -> None:
        """The planner wants to know when pods came to a node and left it."""
        for name in {self.claim_of(node)} - {""}:
            self.changes.move(self.claims[name])

    def timed(self, name: str) -> ClaimFact:
        """As plans see it."""
        claim = self.claims[name]
        found = timed(claim, self.occupancy.moved_last(node.name for node in self.nodes_of(claim)))
        return found.model_copy(update={"deleting": True}) if name in self.going else found

    def _replace(self, table: dict[str, F], kind: Kind, key: str, new: F | None) -> bool:
        """False when it is as it was."""
        if new == table.get(key):
            return False
        put(table, key, new)
        self.changes.note(kind, key, new)
        return True


def _instance(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]
