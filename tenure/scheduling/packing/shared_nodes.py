"""Which pods go together on a new node, so that it is full in every resource at once.

`packing.py` asks for pods that may go anywhere. Class by class the first pods would take all the CPU of a node and
leave memory that nobody can use; here each next pod is the one after which least of what is worth money is left.

New nodes that pods of many classes share: those that may go anywhere, so that no rule decides who goes with whom.

`packing.py` hands such pods over when they found no room on what stands or is bought already. First the nodes of the
cheapest mix are bought (`mixture.py`), each filled as the mix means it (`blending.py`); then for the rest, which is
less than a node of anything in the mix, one node after the other as `buying.py` chooses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final

import numpy as np

from tenure.scheduling.instance_type_table import Amounts, Indices, Prices
from tenure.scheduling.packing.instance_selection import InstanceSelector
from tenure.scheduling.packing.node_requests import InstanceChoice, NodeRequest, OfferSet
from tenure.scheduling.packing.nodes import NodeArrays
from tenure.scheduling.packing.pod_classes import PodClass
from tenure.scheduling.packing.pod_requirements import NO_VOLUME_TERMS, Variant
from tenure.scheduling.packing.topology import UNLIMITED
from tenure.scheduling.packing.type_allocation import PodKinds, TypeAllocation, allocate_types

_MIN_USED_SHARE: Final = 0.95
"""A planned node is bought when so much of its price is used."""
_MAX_CANDIDATE_CLASSES: Final = 256
"""So many classes, of all sizes, are enough to choose the next pod from."""

Recipe = dict[int, int]
"""Classes by number, with how many of their pods go on one node."""


class PodMixer:
    """Classes that may share nodes: `counts` pods each, of the sizes in `vectors`, in the order of their queue."""

    def __init__(self, vectors: Amounts, counts: Sequence[int]) -> None:
        self._vectors = vectors
        self.remaining: Amounts = np.array(counts, dtype=np.int64)

    def allocate_types(self, headroom: Amounts, prices: Prices) -> tuple[PodKinds, list[TypeAllocation]]:
        """The cheapest mix for what is left, of rows with so much room."""
        return allocate_types(headroom, prices, self._vectors, self.remaining)

    def allocated_recipe(self, kinds: PodKinds, allocation: TypeAllocation, headroom: Amounts, owed: Prices) -> Recipe:
        """What goes on a node of the mix; empty when too much of it would stay unused. `owed` of each kind to earlier
        nodes, since pods are whole."""
        free, taken = headroom.copy(), Recipe()
        self._add_pods(free, allocation.resource_prices, taken, kinds, owed + allocation.budgets)
        self._add_pods(free, allocation.resource_prices, taken)
        used = float((headroom - free) @ allocation.resource_prices)
        return taken if used >= _MIN_USED_SHARE * float(headroom @ allocation.resource_prices) else {}

    def greedy_recipe(self, headroom: Amounts, resource_prices: Prices) -> Recipe:
        """What goes on any node with so much room."""
        taken = Recipe()
        scale = (
            resource_prices
            if resource_prices.any()
            else np.divide(1.0, headroom, out=np.zeros(len(headroom)), where=headroom > 0)
        )
        self._add_pods(headroom.copy(), scale, taken)
        return taken

    def max_nodes(self, recipe: Recipe) -> int:
        """How many such nodes the pods suffice for."""
        return min(int(self.remaining[one]) // count for one, count in recipe.items())

    def remove_pods(self, recipe: Recipe, times: int) -> None:
        for one, count in recipe.items():
            self.remaining[one] -= count * times

    def _add_pods(
        self,
        free: Amounts,
        resource_prices: Prices,
        taken: Recipe,
        kinds: PodKinds | None = None,
        budgets: Prices | None = None,
    ) -> None:
        """Pod by pod, the one after which least is left: of |free - pod|², what differs between pods."""
        among = np.flatnonzero(self.remaining)
        if kinds is not None and budgets is not None:
            among = among[budgets[kinds.kind_by_class[among]] >= kinds.sizes[among] / 2]
        among = self._fitting_classes(among, free, taken)
        among = among[:: 1 + len(among) // _MAX_CANDIDATE_CLASSES]
        values = self._vectors[among] * resource_prices
        squares = (values * values).sum(axis=1)
        while len(among):
            best = int(among[np.argmin(squares - 2.0 * (values @ (free * resource_prices)))])
            taken[best] = taken.get(best, 0) + 1
            free -= self._vectors[best]
            fine = (self._vectors[among] <= free).all(axis=1)
            if kinds is not None and budgets is not None:
                budgets[kinds.kind_by_class[best]] -= kinds.sizes[best]
                fine &= budgets[kinds.kind_by_class[among]] >= kinds.sizes[among] / 2
            if taken[best] >= self.remaining[best]:
                fine &= among != best
            among, values, squares = among[fine], values[fine], squares[fine]

    def _fitting_classes(self, among: Indices, free: Amounts, taken: Recipe) -> Indices:
        among = among[(self._vectors[among] <= free).all(axis=1)]
        spent = [one for one, count in taken.items() if count >= self.remaining[one]]
        return among[~np.isin(among, spent)] if spent else among


_MAX_ROUNDS: Final = 4
"""Whole pods do not always fill a node as parts do: then a new mix is made for what is left."""

AssignPods = Callable[[PodClass, Variant, Amounts, int, int], None]
"""So many pods of a class, with their reading and size, on a place."""


class SharedNodePacker:
    def __init__(
        self,
        node_arrays: NodeArrays,
        instance_selector: InstanceSelector,
        assign_pods: AssignPods,
        classes: Sequence[PodClass],
    ) -> None:
        """The first readings of the `classes` have one variant and no rules."""
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
        """Until all have a place or nothing more can be bought for them. A pool of less weight sells only what those
        before it do not."""
        for offer_set in self._instance_selector.offer_sets(self._variant):
            self._add_allocated(offer_set)
            self._add_one_by_one({id(offer) for offer, _ in offer_set.offers})
        self._add_one_by_one()

    def _add_one_by_one(self, among: Set[int] | None = None) -> None:
        """Node after node as `buying.py` chooses. Pods for which it chooses a pool that is not `among` these wait."""
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

    def _add_allocated(self, offer_set: OfferSet) -> None:
        for _ in range(_MAX_ROUNDS):
            if not self._pod_mixer.remaining.any():
                return
            kinds, allocations = self._pod_mixer.allocate_types(offer_set.useful, offer_set.prices)
            if not sum(self._add_allocation(offer_set, kinds, allocation) for allocation in allocations):
                return

    def _add_allocation(self, offer_set: OfferSet, kinds: PodKinds, allocation: TypeAllocation) -> int:
        """How many of its nodes are bought: fewer than it has when a limit ends it, or pods no longer fill one."""
        remaining, owed = allocation.nodes, np.zeros_like(allocation.budgets)
        while remaining:
            instance_choice = offer_set.choose_row(allocation.row)
            recipe = (
                self._pod_mixer.allocated_recipe(kinds, allocation, instance_choice.headroom, owed)
                if instance_choice
                else {}
            )
            if not instance_choice or not recipe:
                break
            times = self._add_equal_nodes(instance_choice, recipe, 1 if instance_choice.offer.has_limits else remaining)
            remaining -= times
            owed += times * (allocation.budgets - kinds.amounts_by_kind(recipe))
        return allocation.nodes - remaining

    def _add_equal_nodes(self, instance_choice: InstanceChoice, recipe: Recipe, most: int) -> int:
        """Equal nodes, as many as the pods suffice for; how many."""
        times = min(most, self._pod_mixer.max_nodes(recipe))
        self._pod_mixer.remove_pods(recipe, times)
        for _ in range(times):
            node_index = add_new_node(self._node_arrays, self._instance_selector, instance_choice)
            for one, share in recipe.items():
                self._assign_pods(self._classes[one], self._variant, self._vectors[one], node_index, share)
        return times


def add_new_node(node_arrays: NodeArrays, instance_selector: InstanceSelector, instance_choice: InstanceChoice) -> int:
    """One such node, as a new place."""
    instance_choice.offer.count_against_limits(instance_choice.rows)
    instance_selector.valuation.record_new_node(instance_choice)
    if instance_choice.option.reservation:
        instance_choice.offer.reservation_tracker.reserve(instance_choice.option.reservation, 1)
    return node_arrays.add_node(
        instance_choice.offer, instance_choice.option, instance_choice.rows, instance_choice.headroom
    )


def is_unconstrained(one: PodClass) -> bool:
    """No rule says where they go but what they ask of a node."""
    return not one.alternatives[0].rules and not one.ports and one.volumes is NO_VOLUME_TERMS


def group_by_variant(classes: Iterable[PodClass]) -> Iterator[list[PodClass]]:
    """Those that read alike together, those that ask for most first."""
    found: dict[Variant, list[PodClass]] = {}
    for one in classes:
        found.setdefault(one.alternatives[0].variant, []).append(one)
    yield from sorted(found.values(), key=lambda alike: -len(alike[0].alternatives[0].variant.requirements))
