"""The choice of the instance type of a new node: the highest value for its price.

NodePools are tried by weight; among pools of equal weight, the cheapest type wins.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np

from tenure.apis.quantity import format_amount
from tenure.apis.resources import NODES
from tenure.model.blockers import LIMITS_EXCEEDED, MIN_VALUES, NO_INSTANCE_TYPE_FITS, TOPOLOGY
from tenure.model.facts import HostPort
from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.nodepool_template import NodePoolTemplate, Offer, Option, RejectionReason
from tenure.scheduling.offerings import STRICT, find_missing_variety
from tenure.scheduling.packing.node_requests import InstanceChoice, NodeRequest, OfferSet, TypeOptions
from tenure.scheduling.packing.patterns import PatternSolution, pods_in_headroom, pods_per_row
from tenure.scheduling.packing.shadow_prices import ShadowPrices
from tenure.scheduling.packing.topology import Rule, types_with_allowed_daemons
from tenure.scheduling.packing.valuation import CapacityValuation
from tenure.scheduling.pods import Variant


def headroom_rejection(
    template: NodePoolTemplate, resources: Sequence[str], headroom: Amounts, vector: Amounts
) -> RejectionReason:
    """Name the first resource that no type has enough of; else the requests that no type has together."""
    most = headroom.max(axis=0)
    for number in map(int, np.flatnonzero(vector > most)):
        key = resources[number]
        requested, available = format_amount(key, int(vector[number])), format_amount(key, max(0, int(most[number])))
        if most[number] < 0:
            return RejectionReason(template.explain_overhead(key), NO_INSTANCE_TYPE_FITS)
        if not most[number]:
            return RejectionReason(f"no instance type has {key}", NO_INSTANCE_TYPE_FITS)
        return RejectionReason(
            f"needs {requested} {key}; the largest allowed instance type has {available} after DaemonSet overhead",
            NO_INSTANCE_TYPE_FITS,
        )
    requested = ", ".join(f"{format_amount(key, int(n))} {key}" for key, n in zip(resources, vector, strict=True) if n)
    return RejectionReason(
        f"no allowed instance type has {requested} together after DaemonSet overhead", NO_INSTANCE_TYPE_FITS
    )


def limit_rejection(offer: Offer, fitting: Indices) -> RejectionReason:
    for key, limit in offer.remaining_limits.limits.items():
        remaining = offer.remaining_limits.remaining(key) or 0
        column = offer.table.columns.get(key)
        least = 1 if column is None else int(offer.table.capacity[fitting, column].min())
        if least > remaining:
            if key == NODES:
                return RejectionReason(f"limit nodes {limit} is reached", LIMITS_EXCEEDED)
            formatted = [format_amount(key, amount) for amount in (limit, max(remaining, 0), least)]
            return RejectionReason(
                f"limit {key} {formatted[0]}: {formatted[1]} left, the smallest instance type that fits has "
                f"{formatted[2]}",
                LIMITS_EXCEEDED,
            )
    return RejectionReason("the limits together leave no instance type that fits", LIMITS_EXCEEDED)


_NEAR_BEST_RATIO: Final = 1.02
"""Types this close to the best ratio count as equal; among them the planned mix, then the size decide."""
_PLANNED_TYPE_RATIO: Final = 1.03
"""A type of the planned mix is preferred if it is this close to the best ratio for these pods."""
_MAX_PATTERN_EVALUATED: Final = 48
"""Types evaluated by packing whole pods; the others are excluded by the value of their capacity."""
_VALUE_EPSILON: Final = 1e-12


@dataclass(slots=True)
class InstanceSelector:
    """Of one pass. `demand`: remaining requests, updated during packing."""

    offers: Sequence[Offer]
    valuation: CapacityValuation
    min_values_policy: str = STRICT
    demand: Amounts = field(init=False)

    def __post_init__(self) -> None:
        self.demand = self.valuation.demand.copy()

    def choose_instance(self, request: NodeRequest) -> InstanceChoice | dict[str, RejectionReason]:
        """The next node to launch, or the reasons by pool why there is none."""
        rejections: dict[str, RejectionReason] = {}
        for _, tier in groupby(self.offers, key=lambda offer: offer.template.pool.weight):
            found: list[tuple[float, InstanceChoice]] = []
            for offer in tier:
                one = self._choose_from_offer(offer, request)
                if isinstance(one, RejectionReason):
                    rejections[offer.pool_name] = one
                else:
                    found.append(one)
            if found:
                return min(found, key=lambda one: one[0])[1]
        return rejections

    def can_launch(
        self, variant: Variant, vector: Amounts, ports: Sequence[HostPort] = (), rules: Sequence[Rule] = ()
    ) -> bool:
        """Whether any pool has a type that fits such a pod, without regard to limits."""
        for offer in self.offers:
            for option in offer.launchable_options(variant):
                type_options = self.valuation.type_options(offer, option)
                if (
                    (type_options.headroom >= vector).all(axis=1)
                    & (offer.template.types_with_free_ports(ports) & types_with_allowed_daemons(offer.template, rules))[
                        type_options.rows
                    ]
                ).any():
                    return True
        return False

    def find_larger(
        self, offer: Offer, option: Option, used: Amounts, rows: Indices, request: NodeRequest
    ) -> tuple[Indices, Amounts] | None:
        """Rows and headroom of larger types for a new node of `rows`, with `used` and as many of the pods as possible.

        The limits count the new type instead of the old one.
        """
        type_options = self.valuation.type_options(offer, option)
        offer.count_against_limits(rows, nodes=-1)
        free = offer.template.types_with_free_ports(request.ports) & offer.types_within_limits(option.types)
        free &= types_with_allowed_daemons(offer.template, request.rules)
        remaining = type_options.headroom - used
        fits = np.minimum(
            np.where((remaining >= 0).all(axis=1), pods_per_row(np.maximum(remaining, 0), request.vector), 0),
            request.count,
        )
        fits = np.where(free[type_options.rows], fits, 0)
        for most in np.unique(fits[fits > 0])[::-1]:
            enough = np.flatnonzero(fits >= most)
            selected = self._satisfy_min_values(
                offer, option, type_options, enough[np.lexsort((enough, type_options.prices[enough]))]
            )
            if not isinstance(selected, RejectionReason):
                offer.count_against_limits(type_options.rows[selected])
                return type_options.rows[selected], type_options.headroom[selected].min(axis=0)
        offer.count_against_limits(rows)
        return None

    def offer_sets(self, variant: Variant) -> Iterator[OfferSet]:
        """Offers for such pods, by pool weight. Ends at a weight where price alone does not decide, because of reserved
        capacity or minValues."""
        for _, tier in groupby(self.offers, key=lambda offer: offer.template.pool.weight):
            found = [
                (offer, option, self.valuation.type_options(offer, option))
                for offer, option in _restricted_options(tier, variant)
            ]
            if any(offer.available_reservations() or _has_min_values(option) for offer, option, _ in found):
                return
            if found:
                yield self._build_offer_set(found)

    def _build_offer_set(self, found: Sequence[tuple[Offer, Option, TypeOptions]]) -> OfferSet:
        headroom = np.concatenate([type_options.headroom for _, _, type_options in found])
        prices = np.concatenate([type_options.prices for _, _, type_options in found])
        return OfferSet(
            [(offer, option) for offer, option, _ in found],
            np.repeat(np.arange(len(found)), [len(type_options.rows) for _, _, type_options in found]),
            np.concatenate([type_options.rows for _, _, type_options in found]),
            headroom,
            np.concatenate([type_options.useful for _, _, type_options in found]),
            self.valuation.adjusted_prices(headroom, prices),
        )

    def _choose_from_offer(self, offer: Offer, request: NodeRequest) -> tuple[float, InstanceChoice] | RejectionReason:
        reserved = self._choose_reserved(offer, request)
        if reserved is not None:
            return 0.0, reserved
        option = offer.restrict(None, request.variant)
        if isinstance(option, RejectionReason):
            return option
        type_options = self.valuation.type_options(offer, option)
        fitting = (type_options.headroom >= request.vector).all(axis=1)
        if not fitting.any():
            return headroom_rejection(offer.template, self.valuation.resources, type_options.headroom, request.vector)
        fitting &= offer.template.types_with_free_ports(request.ports)[type_options.rows]
        if not fitting.any():
            ports = ", ".join(str(one.port) for one in request.ports)
            return RejectionReason(
                f"host port {ports} is taken by a DaemonSet on each instance type that fits", NO_INSTANCE_TYPE_FITS
            )
        fitting &= types_with_allowed_daemons(offer.template, request.rules)[type_options.rows]
        if not fitting.any():
            return RejectionReason(
                "pod affinity or anti-affinity excludes each instance type that fits, because of its DaemonSet pods",
                TOPOLOGY,
            )
        allowed = fitting & offer.types_within_limits(option.types)[type_options.rows] if offer.has_limits else fitting
        if not allowed.any():
            return limit_rejection(offer, type_options.rows[fitting])
        return self._choose_best(offer, option, type_options, np.flatnonzero(allowed), request)

    def _choose_reserved(self, offer: Offer, request: NodeRequest) -> InstanceChoice | None:
        """The reservation whose type fits the most pods, then the cheapest, with no more nodes than it has left.
        Reserved capacity comes first, since it is prepaid."""
        found: list[tuple[int, float, InstanceChoice]] = []
        for one in offer.available_reservations():
            option = offer.restrict(None, request.variant, one)
            if isinstance(option, RejectionReason):
                continue
            type_options = self.valuation.type_options(offer, option)
            possible = offer.types_within_limits(option.types) & offer.template.types_with_free_ports(request.ports)
            possible &= types_with_allowed_daemons(offer.template, request.rules)
            allowed = (type_options.headroom >= request.vector).all(axis=1) & possible[type_options.rows]
            for row in np.flatnonzero(allowed):
                pods = min(request.count, request.cap, pods_in_headroom(type_options.headroom[row], request.vector))
                instance_choice = InstanceChoice(
                    offer,
                    option,
                    type_options.rows[[row]],
                    type_options.headroom[row],
                    pods,
                    offer.reservation_tracker.remaining(one),
                )
                found.append((-pods, float(type_options.prices[row]), instance_choice))
        return min(found, key=lambda one: one[:2])[2] if found else None

    def _choose_best(
        self, offer: Offer, option: Option, type_options: TypeOptions, among: Indices, request: NodeRequest
    ) -> tuple[float, InstanceChoice] | RejectionReason:
        """The choice, with its price per usable capacity."""
        if request.must_share_node:
            fits = np.minimum(pods_per_row(type_options.headroom[among], request.vector), request.count)
            among = among[fits == fits.max()]
        shadow_prices = self.valuation.shadow_prices(offer)
        own = request.requests_per_node
        planned_capacity = shadow_prices.counts[type_options.rows].astype(np.int64) @ type_options.useful
        requested = np.maximum(request.others - request.open_headroom - planned_capacity, 0) + own
        value = np.maximum(
            shadow_prices.value_headroom(type_options.useful[among], requested, forced=request.needs_more_nodes),
            _VALUE_EPSILON,
        )
        ratio = (type_options.prices[among] + self.valuation.node_cost) / value
        pattern_solution = self.valuation.pattern_solution(offer)
        if pattern_solution is not None and request.size >= 0 and not _has_min_values(option):
            near = np.argsort(ratio, kind="stable")[:_MAX_PATTERN_EVALUATED]
            among = among[np.union1d(near, np.flatnonzero(pattern_solution.counts[type_options.rows[among]]))]
            ratio = (type_options.prices[among] + self.valuation.node_cost) / self._value_by_patterns(
                pattern_solution, type_options.headroom[among], request
            )
        order = self._order_rows(shadow_prices, pattern_solution, type_options, among, ratio, request)
        selected = self._satisfy_min_values(offer, option, type_options, among[order])
        if isinstance(selected, RejectionReason):
            return selected
        headroom = type_options.headroom[selected].min(axis=0)
        pods = int(min(request.count, request.cap, pods_in_headroom(headroom, request.vector)))
        planned = int((pattern_solution or shadow_prices).counts[type_options.rows[selected[0]]])
        return float(ratio[order[0]]), InstanceChoice(
            offer, option, type_options.rows[selected], headroom, pods, max(1, planned)
        )

    def _value_by_patterns(self, pattern_solution: PatternSolution, headroom: Amounts, request: NodeRequest) -> Prices:
        """The value of each row's capacity when filled with these pods and other remaining ones."""
        most = min(request.count, request.cap)
        counts = self.valuation.sizes.counts.copy()
        counts[request.size] = max(0, counts[request.size] - request.count)
        if not request.has_use_for_others:
            counts[:] = 0
        requested_by_others = np.maximum(request.others, 1)
        counts = (
            counts * np.clip(1 - (request.open_headroom / requested_by_others)[request.vector > 1], 0, 1).max(initial=0)
        ).astype(np.int64)
        value = pattern_solution.value_headroom(
            headroom, counts, request.size, most + int(counts[request.size]), forced=request.needs_more_nodes
        )
        return np.maximum(value, _VALUE_EPSILON)

    def _order_rows(
        self,
        shadow_prices: ShadowPrices,
        pattern_solution: PatternSolution | None,
        type_options: TypeOptions,
        among: Indices,
        ratio: Prices,
        request: NodeRequest,
    ) -> Indices:
        """Best first: types of the planned mix, then types near the lowest price per usable capacity, of moderate size,
        large.

        Of the mix, the largest; if a rule limits the pods per node, the smallest that holds as many.
        """
        headroom = type_options.headroom[among]
        planned = (pattern_solution or shadow_prices).counts[type_options.rows[among]] > 0
        if pattern_solution is not None:
            planned &= ratio <= ratio.min() * _PLANNED_TYPE_RATIO
        near = ratio <= ratio.min() * _NEAR_BEST_RATIO
        size = headroom.astype(np.float64) @ shadow_prices.resource_prices
        fewer = (
            -np.minimum(pods_per_row(headroom, request.vector), request.cap)
            if request.needs_more_nodes
            else np.zeros(len(among))
        )
        large = np.where(planned & request.needs_more_nodes, size, -size)
        over = self.valuation.exceeds_demand_share(headroom, request.vector)
        price = np.where(near | planned, 0.0, ratio)
        return np.lexsort((type_options.rows[among], large, fewer * planned, over, price, ~near, ~planned))

    def _satisfy_min_values(
        self, offer: Offer, option: Option, type_options: TypeOptions, ordered: Indices
    ) -> Indices | RejectionReason:
        """The first row, and as many further rows as minValues requires."""
        min_values = [one for one in option.requirements.values() if one.min_values is not None]
        if self.min_values_policy != STRICT or not min_values:
            return ordered[:1]
        selected = [ordered[0]]
        for row in ordered[1:]:
            if not self._missing_variety(offer, option, type_options, selected):
                break
            if any(
                offer.table.count_distinct_values(one, type_options.rows[[*selected, row]])
                > offer.table.count_distinct_values(one, type_options.rows[selected])
                for one in min_values
            ):
                selected.append(row)
        missing = self._missing_variety(offer, option, type_options, selected)
        if missing:
            return RejectionReason(f"minValues cannot be kept: {missing}", MIN_VALUES)
        return np.array(selected, dtype=np.intp)

    def _missing_variety(self, offer: Offer, option: Option, type_options: TypeOptions, selected: list[np.intp]) -> str:
        return find_missing_variety(offer.table, option.requirements, type_options.rows[selected])


def _restricted_options(offers: Iterable[Offer], variant: Variant) -> Iterator[tuple[Offer, Option]]:
    for offer in offers:
        option = offer.restrict(None, variant)
        if not isinstance(option, RejectionReason):
            yield offer, option


def _has_min_values(option: Option) -> bool:
    return any(one.min_values is not None for one in option.requirements.values())
