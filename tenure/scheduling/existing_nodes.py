"""Nodes and NodeClaims that exist: their room, and which pods may count on it.

`tenure/scheduling/cluster_state.py` makes the homes from its facts; `tenure/scheduling/packing/packer.py` fills them
before it buys.

The homes that stand or are on their way: nodes, launched claims, and claims that wait for their launch.

Turns `tenure/scheduling/snapshot.py` into the `Home`s of `tenure/scheduling/existing_nodes.py`; the rules are the
reference's 2.16.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, TypeVar

import numpy as np

from tenure.apis.labels import HOSTNAME, INITIALIZED, NODEPOOL, REGISTERED
from tenure.apis.resources import subtract, total
from tenure.model.facts import ClaimFact, DaemonSetFact, NodeFact, PodFact, Taint, Toleration
from tenure.model.requirements import Requirement, Requirements
from tenure.scheduling.daemonsets import still_to_come
from tenure.scheduling.instance_type_table import Amounts, Mask
from tenure.scheduling.not_ready_grace import Grace, Standing
from tenure.scheduling.pods import Variant
from tenure.scheduling.snapshot import Facts
from tenure.scheduling.taints import untolerated, without_passing, without_startup, without_unregistered

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Home:
    """Where a pod may go without anything being bought."""

    name: str
    requirements: Requirements
    """Its labels; for a claim that is not launched, everything it may still become."""
    taints: tuple[Taint, ...]
    room: Mapping[str, int]
    initialized: bool = False
    settled: bool = True
    """False: not launched, so that it offers only what any outcome of the launch satisfies."""
    claim: str = ""
    """The NodeClaim behind it, if there is one."""

    def admits(self, variant: Variant) -> bool:
        """Whether the labels satisfy the pod; taints and room are separate questions."""
        if self.settled:
            return self.requirements.compatible_strictly(variant.requirements)
        return self.requirements.implies(variant.requirements)

    def could_be(self, wanted: Requirements) -> bool:
        """Whether the labels satisfy this, or may do so once it is launched."""
        return self.requirements.compatible_strictly(wanted) if self.settled else self.requirements.compatible(wanted)


class Homes:
    """All homes as arrays, initialized ones first, then by name: the order in which they are filled."""

    def __init__(self, homes: Iterable[Home]) -> None:
        self.homes = sorted(homes, key=lambda home: (not home.initialized, home.name))
        self.index = {home.name: number for number, home in enumerate(self.homes)}
        self.resources = sorted({key for home in self.homes for key in home.room})
        self._taint_ids = _numbered(home.taints for home in self.homes)
        self._settled: Mask = np.array([home.settled for home in self.homes], dtype=bool)
        self._by_key: dict[str, tuple[list[str | None], Amounts]] = {}
        self._admitted: dict[Variant, Mask] = {}
        self._domains: dict[str, list[str | None]] = {}
        self._noticed: dict[tuple[object, object], Mask] = {}
        self._shut: Mask | None = None
        self.there: Sequence[int] = range(len(self.homes))
        """Numbers of those that are there; the others are nobody's domain any more."""

    def without(self, gone: Mask, shut: Mask) -> "Homes":
        """The same homes under the same numbers, but that some are gone and some let nobody in. What was found out
        about them is shared."""
        less = copy(self)
        less._shut = gone | shut
        less.there = np.flatnonzero(~gone).tolist()
        return less

    def domains(self, key: str) -> list[str | None]:
        """Of each the value of a label, where it is certain."""
        known = self._domains.get(key)
        if known is None:
            known = self._domains[key] = [_certain(home.requirements.get(key)) for home in self.homes]
        return known

    def noticed(self, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...] | None) -> Mask:
        """Those that satisfy one of the alternatives, or may do so, if there are any; and whose taints are tolerated,
        unless these do not matter (None)."""
        key = tuple(alternatives), tolerations
        known = self._noticed.get(key)
        if known is None:
            fine = (
                (not alternatives or any(home.could_be(one) for one in alternatives))
                and (tolerations is None or untolerated(tolerations, home.taints, tolerate_preferences=True) is None)
                for home in self.homes
            )
            known = self._noticed[key] = np.fromiter(fine, dtype=bool, count=len(self.homes))
        return known

    def admitted(self, variant: Variant) -> Mask:
        """The homes whose taints and labels let the pod in."""
        known = self._admitted.get(variant)
        if known is None:
            known = self._admitted[variant] = self._tolerated(variant) & self._labelled(variant)
        return known if self._shut is None else known & ~self._shut

    def _tolerated(self, variant: Variant) -> Mask:
        distinct, numbers = self._taint_ids
        fine = [
            untolerated(variant.tolerations, taints, tolerate_preferences=variant.tolerate_preferences) is None
            for taints in distinct
        ]
        return np.array(fine, dtype=bool)[numbers]

    def _labelled(self, variant: Variant) -> Mask:
        mask: Mask = self._settled.copy()
        for one in variant.requirements.values():
            mask &= self._satisfying(one)
        for number in np.flatnonzero(~self._settled):
            mask[number] = self.homes[number].admits(variant)
        return mask

    def _satisfying(self, one: Requirement) -> Mask:
        values, numbers = self._values(one.key)
        fine = [not one.present if value is None else one.has(value) for value in values]
        return np.array(fine, dtype=bool)[numbers]

    def _values(self, key: str) -> tuple[list[str | None], Amounts]:
        known = self._by_key.get(key)
        if known is None:
            known = self._by_key[key] = _numbered(_label(home, key) for home in self.homes)
        return known


def home_labels(name: str, labels: Mapping[str, str]) -> Requirements:
    """A node's labels; one without a hostname label is called by its name."""
    return Requirements.of_labels({HOSTNAME: name, **labels})


def _certain(one: Requirement | None) -> str | None:
    return next(iter(one.values)) if one is not None and not one.complement and len(one.values) == 1 else None


def _label(home: Home, key: str) -> str | None:
    one = home.requirements.get(key)
    return next(iter(one.values), None) if one is not None and home.settled else None


def _numbered(items: Iterable[T]) -> tuple[list[T], Amounts]:
    ids: dict[T, int] = {}
    numbers = [ids.setdefault(item, len(ids)) for item in items]
    return list(ids), np.array(numbers, dtype=np.int64)


def homes(
    facts: Facts,
    claims: Iterable[ClaimFact],
    unlaunched_overhead: Mapping[str, Mapping[str, int]],
    *,
    now: datetime,
    not_ready_grace: timedelta,
    pool_graces: Mapping[str, timedelta] | None = None,
) -> Iterator[Home]:
    """Every node and claim that is not on its way out; `claims` are those of `facts` and those not seen there yet.

    `unlaunched_overhead` says by claim what of its requests is meant for DaemonSets; `pool_graces` by NodePool where
    its nodes have another grace than `not_ready_grace`.
    """
    graces = pool_graces or {}
    daemons = tuple(facts.daemons.values())
    owned: set[str] = set()
    for claim in claims:
        node = facts.node_of(claim)
        owned |= {node.name} if node else set()
        if claim.deleting or claim.instance_terminating:
            continue
        if node is None:
            yield _launched(claim, daemons) if claim.launched else _unlaunched(claim, unlaunched_overhead)
        elif not node.deleting:
            grace = graces.get(claim.pool, not_ready_grace)
            standing = Grace(node, grace, claim).standing(now) if claim.initialized else "starting"
            if standing != "lost" or node.ready:
                yield _running(claim, node, facts, daemons, standing)
    for node in facts.nodes.values():
        if node.name not in owned and not node.deleting and not _is_nameless(node):
            standing = Grace(node, graces.get(node.labels.get(NODEPOOL, ""), not_ready_grace)).standing(now)
            if standing != "lost" or node.ready:
                taints = without_passing(node.taints) if standing == "expected" else node.taints
                yield _standing(node, node.labels, taints, node.allocatable, facts, daemons, initialized=True)


def _is_nameless(node: NodeFact) -> bool:
    """A pool's Node that has no provider id yet: its NodeClaim counts until it is known whose it is."""
    return NODEPOOL in node.labels and not node.provider_id


def _running(
    claim: ClaimFact,
    node: NodeFact,
    facts: Facts,
    daemons: Sequence[DaemonSetFact],
    standing: Standing | Literal["starting"],
) -> Home:
    """A claim with its node. What is not there yet, or is away and expected back, counts as it will be."""
    labels = node.labels if claim.registered else {**node.labels, **claim.labels}
    taints, allocatable = node.taints, node.allocatable
    match standing:
        case "starting":
            labels, taints = _to_be(labels), _starting_taints(claim, node)
        case "expected":
            taints = without_passing(taints, claim.startup_taints)
    if standing in ("starting", "expected"):
        known = {key: amount for key, amount in node.allocatable.items() if amount}
        allocatable = {**claim.allocatable, **known}
    home = _standing(node, labels, taints, allocatable, facts, daemons, initialized=claim.initialized)
    return replace(home, claim=claim.name)


def _starting_taints(claim: ClaimFact, node: NodeFact) -> tuple[Taint, ...]:
    """Until registration the claim says what the taints will be. Until initialization those that pass are looked
    through however long they last: for that the phase has its deadline."""
    taints = without_passing(node.taints if claim.registered else claim.taints)
    return without_startup(without_unregistered(taints), claim.startup_taints)


def _standing(
    node: NodeFact,
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    allocatable: Mapping[str, int],
    facts: Facts,
    daemons: Sequence[DaemonSetFact],
    *,
    initialized: bool,
) -> Home:
    pods = tuple(facts.bound_to(node.name))
    present = frozenset(pod.owner_uid for pod in pods if pod.daemonset)
    requirements = home_labels(node.name, labels)
    coming = still_to_come(daemons, present, requirements, taints)
    room = subtract(allocatable, total((_bound(pods), coming)))
    return Home(node.name, requirements, taints, room, initialized)


def _launched(claim: ClaimFact, daemons: Sequence[DaemonSetFact]) -> Home:
    """The instance runs and its Node is not there yet; before its amounts are known it offers what was asked for."""
    requirements = Requirements.of_labels(_to_be(claim.labels))
    coming = still_to_come(daemons, frozenset(), requirements, claim.taints)
    room = subtract(claim.allocatable or claim.requests, coming)
    return Home(claim.name, requirements, claim.taints, room, claim=claim.name)


def _unlaunched(claim: ClaimFact, overhead: Mapping[str, Mapping[str, int]]) -> Home:
    """Nothing is known of it but what it asks for, so that is what it offers: to pods that any outcome satisfies."""
    requirements = Requirements.of(claim.requirements).intersection(Requirements.of_labels(_to_be(claim.labels)))
    room = subtract(claim.requests, overhead.get(claim.name, {}))
    return Home(claim.name, requirements, claim.taints, room, settled=False, claim=claim.name)


def _to_be(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels as they will be once the node is there for good: DaemonSets may select these."""
    return {**labels, REGISTERED: "true", INITIALIZED: "true"}


def _bound(pods: Iterable[PodFact]) -> dict[str, int]:
    return total(pod.requests for pod in pods)
