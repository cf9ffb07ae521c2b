"""Which Nodes are on their way out, and which of their pods wait for the place that they were given."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from controller.caches import Caches
from controller.nominations import ANSWERED_WITHIN
from model.facts import ClaimFact
from model.labels import REPLACES
from scheduling.demand import is_reschedulable

COMMANDS_LAST: Final = timedelta(hours=2)
"""From what they buy to their end, at most (`policy/commands.py`); marks of one that was terminated stand longer."""


def leaving(caches: Caches) -> Iterable[str]:
    """Our Nodes that are on their way out, or whose instance AWS takes back."""
    return (name for name in caches.nodes if is_leaving(caches, name))


def is_leaving(caches: Caches, name: str) -> bool:
    node, claim = caches.nodes.get(name), caches.claims.get(caches.claim_of(name))
    return node is not None and claim is not None and (node.deleting or claim.deleting or claim.name in caches.going)


def still_runs(caches: Caches, uid: str, now: datetime) -> bool:
    """The pod is on a Node that is on its way out, and its place elsewhere is for later."""
    pod = caches.pods.get(uid)
    return pod is not None and is_reschedulable(pod, now) and is_leaving(caches, pod.node_name)


def is_settled(caches: Caches, uid: str) -> bool:
    """Whatever a plan says of it, the pod is no more, or is on a Node that stays."""
    pod = caches.pods.get(uid)
    if pod is None or not pod.alive:
        return True
    node, claim = caches.nodes.get(pod.node_name), caches.claims.get(caches.claim_of(pod.node_name))
    if claim is not None and (claim.deleting or claim.instance_terminating or claim.name in caches.going):
        return False
    return bool(pod.node_name) and not (node is not None and node.deleting)


def is_replacing(caches: Caches, claim: ClaimFact, now: datetime) -> bool:
    """The command that it was bought for has not let its nodes go, or so lately that no plan has said what becomes of
    their pods. To be read from the cluster: what was expected is known to the process that bought it."""
    command = claim.annotations.get(REPLACES)
    if not command or now >= claim.created + COMMANDS_LAST:
        return False
    return any(
        one.disrupted_by == command and (one.deletion is None or now < one.deletion + ANSWERED_WITHIN)
        for one in caches.claims.values()
    )
