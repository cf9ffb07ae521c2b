"""Which Nodes are on their way out, and which of their pods wait for the place that they were given."""

from collections.abc import Iterable
from datetime import datetime

from controller.caches import Caches
from scheduling.demand import is_reschedulable


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
