"""The homes that stand or are on their way: nodes, launched claims, and claims that wait for their launch.

Turns `scheduling/facts.py` into the `Home`s of `scheduling/homes.py`; the rules are the reference's 2.16.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from model.facts import ClaimFact, DaemonSetFact, NodeFact, PodFact, Taint
from model.labels import INITIALIZED, NODEPOOL, REGISTERED
from model.requirements import Requirements
from model.resources import subtract, total
from scheduling.daemons import still_to_come
from scheduling.facts import Facts
from scheduling.grace import Grace, Standing
from scheduling.homes import Home, home_labels
from scheduling.tolerance import without_passing, without_startup, without_unregistered


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
