"""New nodes for pods without placement rules, shared by many classes.

The nodes of the cheapest mix of patterns are filled first. The next pod is always the one that leaves the least
valuable capacity, so that a node becomes full in every resource at once.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Mask, Prices
from tenure.scheduling.packing.instance_selection import InstanceSelector
from tenure.scheduling.packing.node_requests import InstanceChoice, NodeRequest, OfferSet
from tenure.scheduling.packing.nodes import NodeArrays
from tenure.scheduling.packing.patterns import KnownPatterns, Pattern, Sizes, group_sizes, solve_patterns
from tenure.scheduling.packing.pod_classes import PodClass
from tenure.scheduling.packing.pod_requirements import NO_VOLUME_TERMS
from tenure.scheduling.packing.topology import UNLIMITED
from tenure.scheduling.pods import Variant

_MIN_USED_SHARE: Final = 0.95
"""A node of a pattern is added if the pods fill at least this share of the pattern."""
_ROUNDED_UP_SHARE: Final = 0.5
_ROUNDING_TOLERANCE: Final = 1e-6
_MAX_CANDIDATE_CLASSES: Final = 256
"""The next pod is chosen from at most about this number of classes, spread over all sizes."""

Recipe = dict[int, int]
"""Class index to the number of its pods on one node."""


class PodMixer:
    """Classes that may share nodes, in queue order: `counts` pods each, with the requests in `vectors`."""

    def __init__(self, vectors: Amounts, counts: Sequence[int]) -> None:
        self._vectors = vectors
        self.remaining: Amounts = np.array(counts, dtype=np.int64)
        self._groups: Indices = np.full(len(counts), -1, dtype=np.intp)
        self._group_vectors = vectors[:0]
        self._known_patterns: KnownPatterns | None = None

    def group_pods(self, headroom: Amounts) -> None:
        """Group the pods that fit any row by their size."""
        misfits = np.flatnonzero(self.remaining)
        for row in headroom[np.argsort(-headroom.sum(axis=1), kind="stable")]:
            # The first rows fit most pods.
            misfits = misfits[(self._vectors[misfits] > row).any(axis=1)]
            if not len(misfits):
                break
        pending = np.setdiff1d(np.flatnonzero(self.remaining), misfits, assume_unique=True)
        self._groups[:], self._known_patterns = -1, None
        self._groups[pending], self._group_vectors = group_sizes(self._vectors[pending], self.remaining[pending])

    def find_patterns(self, headroom: Amounts, prices: Prices) -> list[Pattern]:
        """The cheapest mix for the remaining pods of the groups."""
        pending = np.flatnonzero((self._groups >= 0) & (self.remaining > 0))
        if not len(pending):
            return []
        counts = np.bincount(self._groups[pending], self.remaining[pending], len(self._group_vectors)).astype(np.int64)
        sizes = Sizes(self._group_vectors, counts, counts)
        solution = solve_patterns(headroom, prices, sizes, known_patterns=self._known_patterns)
        if solution is None:
            return []
        self._known_patterns, patterns = solution.known_patterns, solution.patterns
        rows = np.flatnonzero((headroom >= self.remaining[pending] @ self._vectors[pending]).all(axis=1))
        if len(patterns) == 1 and len(rows):
            # One node for all pods, if it costs no more than the whole nodes of the mix.
            row = int(rows[np.argmin(prices[rows])])
            if prices[row] <= math.ceil(patterns[0].nodes - _ROUNDING_TOLERANCE) * prices[patterns[0].row]:
                return [Pattern(row, counts, 1.0)]
        return patterns

    def pattern_recipe(self, pattern: Pattern, headroom: Amounts, resource_prices: Prices) -> Recipe:
        """Pods for a node of the pattern; empty if they would fill less than _MIN_USED_SHARE of it."""
        free, taken = headroom.copy(), Recipe()
        self._add_pods(free, resource_prices, taken, pattern.pods.copy())
        planned = pattern.pods @ self._group_vectors
        self._add_pods(free, resource_prices, taken)
        enough = float((headroom - free) @ resource_prices) >= _MIN_USED_SHARE * float(planned @ resource_prices)
        return taken if enough else {}

    def greedy_recipe(self, headroom: Amounts, resource_prices: Prices) -> Recipe:
        """Pods for a node with this capacity, without a pattern."""
        taken = Recipe()
        scale = (
            resource_prices
            if resource_prices.any()
            else np.divide(1.0, headroom, out=np.zeros(len(headroom)), where=headroom > 0)
        )
        self._add_pods(headroom.copy(), scale, taken)
        return taken

    def max_nodes(self, recipe: Recipe) -> int:
        """How many such nodes the remaining pods fill."""
        return min(int(self.remaining[one]) // count for one, count in recipe.items())

    def remove_pods(self, recipe: Recipe, times: int) -> None:
        for one, count in recipe.items():
            self.remaining[one] -= count * times

    def _add_pods(
        self, free: Amounts, resource_prices: Prices, taken: Recipe, group_budgets: Amounts | None = None
    ) -> None:
        """Add pods one by one, always the one with the smallest |free - pod|². The constant part is left out."""
        among = np.flatnonzero(self.remaining)
        if group_budgets is not None:
            among = among[self._groups[among] >= 0]
            among = among[group_budgets[self._groups[among]] > 0]
        among = self._fitting_classes(among, free, taken)
        among = among[:: 1 + len(among) // _MAX_CANDIDATE_CLASSES]
        vectors, groups = self._vectors[among], self._groups[among]
        values = vectors * resource_prices
        squares = (values * values).sum(axis=1)
        while len(among):
            number = int(np.argmin(squares - 2.0 * (values @ (free * resource_prices))))
            best = int(among[number])
            taken[best] = taken.get(best, 0) + 1
            free -= vectors[number]
            fitting: Mask = np.all(vectors <= free, axis=1)
            if group_budgets is not None:
                group = groups[number]
                group_budgets[group] -= 1
                if not group_budgets[group]:
                    fitting &= groups != group
            if taken[best] >= self.remaining[best]:
                fitting[number] = False
            if not fitting.all():
                among, vectors, groups = among[fitting], vectors[fitting], groups[fitting]
                values, squares = values[fitting], squares[fitting]

    def _fitting_classes(self, among: Indices, free: Amounts, taken: Recipe) -> Indices:
        among = among[(self._vectors[among] <= free).all(axis=1)]
        spent = [one for one, count in taken.items() if count >= self.remaining[one]]
        return among[~np.isin(among, spent)] if spent else among


AssignPods = Callable[[PodClass, Variant, Amounts, int, int], None]
"""Places pods: class, variant, requests, node index and number of pods."""


class SharedNodePacker:
    def __init__(
        self,
        node_arrays: NodeArrays,
        instance_selector: InstanceSelector,
        assign_pods: AssignPods,
        classes: Sequence[PodClass],
    ) -> None:
        """The first alternatives of all `classes` have the same variant and no rules."""
        self._node_arrays, self._instance_selector, self._assign_pods, self._classes = (
            node_arrays,
            instance_selector,
            assign_pods,
            classes,
        )
        self._variant = classes[0].alternatives[0].variant
        self._vectors = [node_arrays.to_vector(one.requests) for one in classes]
        self._pod_mixer = PodMixer(np.array(self._vectors), [len(one.pods) for one in classes])

    def add_nodes(self) -> None:
        """Add nodes until all pods are placed or no offer fits. A pool of lower weight is used only for pods that pools
        of higher weight cannot place."""
        for offer_set in self._instance_selector.offer_sets(self._variant):
            self._add_patterns(offer_set)
            self._add_one_by_one({id(offer) for offer, _ in offer_set.offers})
        self._add_one_by_one()

    def _add_one_by_one(self, among: Set[int] | None = None) -> None:
        """Add nodes one by one. Pods whose node would come from an offer outside `among` are skipped."""
        for number, lead in enumerate(self._classes):
            while self._pod_mixer.remaining[number]:
                instance_choice = self._choose_instance(lead, self._vectors[number])
                if instance_choice is None or (among is not None and id(instance_choice.offer) not in among):
                    break
                recipe = self._pod_mixer.greedy_recipe(
                    instance_choice.headroom, self._instance_selector.valuation.resource_prices(instance_choice.offer)
                )
                self._add_equal_nodes(
                    instance_choice, recipe, 1 if instance_choice.offer.has_limits else instance_choice.nodes
                )

    def _choose_instance(self, lead: PodClass, vector: Amounts) -> InstanceChoice | None:
        others = np.maximum(self._instance_selector.demand - vector * len(lead.pods), 0)
        open_headroom = self._node_arrays.open_headroom(self._variant)
        request = NodeRequest(self._variant, vector, len(lead.pods), UNLIMITED, others, open_headroom, size=lead.size)
        instance_choice = self._instance_selector.choose_instance(request)
        return instance_choice if isinstance(instance_choice, InstanceChoice) else None

    def _add_patterns(self, offer_set: OfferSet) -> None:
        """Round the mix to whole nodes, then solve it again for the remaining pods."""
        self._pod_mixer.group_pods(offer_set.headroom)
        added = 1
        while added and self._pod_mixer.remaining.any():
            added = 0
            patterns = self._pod_mixer.find_patterns(offer_set.headroom, offer_set.prices)
            for pattern in patterns:
                nodes = int(pattern.nodes + _ROUNDED_UP_SHARE) or int(pattern is patterns[0])
                added += self._add_pattern_nodes(offer_set, pattern, nodes)

    def _add_pattern_nodes(self, offer_set: OfferSet, pattern: Pattern, nodes: int) -> int:
        """Returns how many nodes are added: fewer if a limit is reached or the pods do not fill one."""
        remaining = nodes
        while remaining:
            choice = offer_set.choose_row(pattern.row)
            if choice is None:
                break
            recipe = self._pod_mixer.pattern_recipe(pattern, choice.headroom, self._resource_prices(choice))
            if not recipe:
                break
            remaining -= self._add_equal_nodes(choice, recipe, 1 if choice.offer.has_limits else remaining)
        return nodes - remaining

    def _resource_prices(self, choice: InstanceChoice) -> Prices:
        return self._instance_selector.valuation.resource_prices(choice.offer)

    def _add_equal_nodes(self, instance_choice: InstanceChoice, recipe: Recipe, most: int) -> int:
        """Add at most `most` equal nodes, as many as the pods fill. Returns their number."""
        times = min(most, self._pod_mixer.max_nodes(recipe))
        self._pod_mixer.remove_pods(recipe, times)
        for _ in range(times):
            node_index = add_new_node(self._node_arrays, self._instance_selector, instance_choice)
            for one, share in recipe.items():
                self._assign_pods(self._classes[one], self._variant, self._vectors[one], node_index, share)
        return times


def add_new_node(node_arrays: NodeArrays, instance_selector: InstanceSelector, instance_choice: InstanceChoice) -> int:
    """Add the chosen node, and count it against limits, mix and reservation. Returns its node index."""
    instance_choice.offer.count_against_limits(instance_choice.rows)
    instance_selector.valuation.record_new_node(instance_choice)
    if instance_choice.option.reservation:
        instance_choice.offer.reservation_tracker.reserve(instance_choice.option.reservation, 1)
    return node_arrays.add_node(
        instance_choice.offer, instance_choice.option, instance_choice.rows, instance_choice.headroom
    )


def is_unconstrained(one: PodClass) -> bool:
    """Whether no topology rule, host port or volume limits its placement."""
    return not one.alternatives[0].rules and not one.ports and one.volumes is NO_VOLUME_TERMS


def group_by_variant(classes: Iterable[PodClass]) -> Iterator[list[PodClass]]:
    """Classes with the same variant together, the variants with most requirements first."""
    found: dict[Variant, list[PodClass]] = {}
    for one in classes:
        found.setdefault(one.alternatives[0].variant, []).append(one)
    yield from sorted(found.values(), key=lambda alike: -len(alike[0].alternatives[0].variant.requirements))
