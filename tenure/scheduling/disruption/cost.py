"""Disruption cost of pods, and the price of a node (reference 4.3)."""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_TYPE, RESERVED, ZONE
from tenure.model.facts import PodFact
from tenure.model.instance_types import InstanceType, Offering

_PER_DELETION_COST: Final = 2.0**27
_PER_PRIORITY: Final = 2.0**25
_MAX_EVICTION_COST: Final = 10.0
MIN_NODE_COST: Final = 1.0
"""Of a node without pods that must move."""


def eviction_cost(pod: PodFact) -> float:
    """Between -10 and 10; 1 for an ordinary pod."""
    cost = 1.0 + pod.deletion_cost / _PER_DELETION_COST + pod.priority / _PER_PRIORITY
    return max(-_MAX_EVICTION_COST, min(_MAX_EVICTION_COST, cost))


def disruption_cost_of(pods: Iterable[PodFact]) -> float:
    """The cost of moving these pods; at least 1."""
    return MIN_NODE_COST + sum(max(0.0, eviction_cost(pod)) for pod in pods)


def offering_price(labels: Mapping[str, str], instance_type: InstanceType | None) -> float:
    """US dollars per hour of a node with these labels, whether or not its offering is available; 0 if unknown."""
    found = [one.price for one in instance_type.offerings if _offering_matches(one, labels)] if instance_type else []
    return found[0] if found and math.isfinite(found[0]) and found[0] > 0 else 0.0


def _offering_matches(one: Offering, labels: Mapping[str, str]) -> bool:
    if one.zone != labels.get(ZONE) or one.capacity_type != labels.get(CAPACITY_TYPE):
        return False
    return one.capacity_type != RESERVED or one.reservation_id == labels.get(CAPACITY_RESERVATION_ID)


def price_per_disruption(price: float, cost: float) -> float:
    """Karpenter's order of candidates: price per unit of disruption, highest first."""
    return price / cost if cost > 0 else price
