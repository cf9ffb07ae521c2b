"""A last look at the NodePools' limits before NodeClaims are created, against a live list (reference 2.11).

The planner has kept to the limits as the caches had them; a NodeClaim that a person made since then counts here.
"""

from collections.abc import Sequence

from activities.ports import Claims
from controller.caches import Caches
from model import labels, resources
from model.kinds import NodeClaim
from model.plans import PlannedClaim, Unplaced
from model.quantity import parse_resources


async def within_limits(
    planned: Sequence[PlannedClaim], caches: Caches, claims: Claims
) -> tuple[list[PlannedClaim], list[Unplaced]]:
    """The claims that may be made, and the pods of those that may not. Pools without limits cost no call."""
    allowed: list[PlannedClaim] = []
    refused: list[Unplaced] = []
    used: dict[str, dict[str, int]] = {}
    for claim in planned:
        view = caches.pools.get(claim.pool)
        limits = view.fact.limits if view else {}
        if not limits:
            allowed.append(claim)
            continue
        if claim.pool not in used:
            found = await claims.list(labels={labels.NODEPOOL: claim.pool})
            used[claim.pool] = usage([one for one in found if one.metadata.name not in caches.going])
        after = resources.add(used[claim.pool], claim.capacity_bound or claim.requests, {resources.NODES: 1})
        over = resources.exceeding(after, limits)
        if over:
            refused += _unplaced(claim, over, caches)
        else:
            used[claim.pool] = after
            allowed.append(claim)
    return allowed, refused


def usage(claims: Sequence[NodeClaim]) -> dict[str, int]:
    """What a pool has or will have: capacity where it is known, else what was asked for."""
    live = [claim for claim in claims if not claim.metadata.deleting]
    amounts = (parse_resources(claim.status.capacity or claim.spec.resources.requests) for claim in live)
    return resources.add(resources.total(amounts), {resources.NODES: len(live)})


def _unplaced(claim: PlannedClaim, over: Sequence[str], caches: Caches) -> list[Unplaced]:
    why = f"limits of NodePool {claim.pool} would be exceeded: {', '.join(over)}"
    pods = (caches.pods.get(uid) for uid in claim.pods)
    return [
        Unplaced(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, reason=why) for pod in pods if pod is not None
    ]
