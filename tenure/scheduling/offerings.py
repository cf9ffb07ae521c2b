"""The catalogue's tables, the templates of NodePools, and the offers of one pass; minValues (reference 2.13).

Tables and templates are kept between passes, since they seldom change and are expensive to build.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import numpy as np

from tenure.apis.labels import INSTANCE_TYPE
from tenure.model.blockers import NODEPOOL_NOT_READY
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.facts import DaemonSetFact, NodeClaimFact, NodePoolFact
from tenure.model.instance_types import Catalogue, DevicesByNodeClass, UnavailableOffering
from tenure.model.invalid_objects import Guard, no_guard
from tenure.model.nodeoverlays import OverlayFact, apply_overlays
from tenure.model.requirements import RequirementError, Requirements
from tenure.scheduling.daemonsets import DaemonDemand
from tenure.scheduling.instance_type_table import Indices, InstanceTypeTable
from tenure.scheduling.nodeoverlays import EvaluatedOverlays, OverlayTarget, OverlayValidation, evaluate_overlays
from tenure.scheduling.nodepool_requirements import nodepool_labels
from tenure.scheduling.nodepool_template import (
    NodePoolTemplate,
    Offer,
    RejectionReason,
    RemainingLimits,
    ReservationTracker,
    column_maximum,
)

_TableKey = tuple[str, tuple[tuple[str, str], ...]]
"""EC2NodeClass, and the pool labels that NodeOverlays select by. Pools with equal keys have the same instance types."""


_UNREADABLE_POOL: Final = RejectionReason("it is invalid: see the event InvalidObject", NODEPOOL_NOT_READY)


class Offerings:
    """`guard` records the error of a NodePool or NodeOverlay instead of raising it."""

    def __init__(self, guard: Guard = no_guard) -> None:
        self._guard = guard
        self._catalogue = Catalogue()
        self.discovered = DiscoveredCapacity()
        self._specs: Mapping[str, str] = {}
        self._devices: DevicesByNodeClass = {}
        self._tables: dict[_TableKey, InstanceTypeTable] = {}
        self._templates: dict[str, NodePoolTemplate | RejectionReason] = {}
        self._evaluated_overlays: EvaluatedOverlays | None = EvaluatedOverlays()
        """None: they must be evaluated again."""
        self._accepted_overlays: tuple[OverlayFact, ...] = ()

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """Replace all instance types. Tables of unchanged NodeClasses are kept."""
        before = self._catalogue.by_node_class
        for name in before.keys() | catalogue.by_node_class.keys():
            if before.get(name) != catalogue.by_node_class.get(name):
                self._tables = {key: table for key, table in self._tables.items() if key[0] != name}
                self._templates.clear()
                self._evaluated_overlays = None
        self._catalogue = catalogue

    def set_devices(self, devices: DevicesByNodeClass) -> None:
        """Replace the DRA devices of all instance types. Tables of unchanged NodeClasses are kept."""
        for name in self._devices.keys() | devices.keys():
            if self._devices.get(name) != devices.get(name):
                self._tables = {key: table for key, table in self._tables.items() if key[0] != name}
                self._templates.clear()
        self._devices = devices

    def evaluate_overlays(
        self, overlays: Collection[OverlayFact], pools: Iterable[NodePoolFact]
    ) -> Mapping[str, OverlayValidation]:
        """Apply NodeOverlays to the offerings of these pools; returns their validation results by name.

        Cached until `invalidate_overlays`, or until the catalogue changes.
        """
        if self._evaluated_overlays is None:
            self._evaluated_overlays = (
                evaluate_overlays(overlays, self._overlay_targets(overlays, pools), self._guard)
                if overlays
                else EvaluatedOverlays()
            )
            if self._evaluated_overlays.accepted != self._accepted_overlays:
                self._accepted_overlays = self._evaluated_overlays.accepted
                self._templates.clear()
                self._tables.clear()
        return self._evaluated_overlays.validations

    def invalidate_overlays(self) -> None:
        """Call it when a NodeOverlay or a pool changed."""
        self._evaluated_overlays = None

    def apply_discovered_capacity(self, discovered: DiscoveredCapacity, specs: Mapping[str, str]) -> None:
        """Replace the discovered capacity; the next plan uses it.

        `specs`: spec hashes of EC2NodeClasses by name.
        """
        self.discovered, self._specs = discovered, specs
        changed = [
            table
            for (name, _), table in self._tables.items()
            if table.apply_discovered_capacity(discovered, specs.get(name, ""))
        ]
        if changed:
            self._templates.clear()

    def invalidate_templates(self, pool: str | None = None) -> None:
        """Call it when a pool changed, or (None) an object that all templates depend on."""
        if pool is None:
            self._templates.clear()
        else:
            self._templates.pop(pool, None)

    def get_template(self, pool: NodePoolFact, daemons: Iterable[DaemonSetFact]) -> NodePoolTemplate | RejectionReason:
        """The pool's template, or why it can launch no nodes. Cached until `invalidate_templates`."""
        known = self._templates.get(pool.name)
        if known is None:
            known = self._templates[pool.name] = self._build_template(pool, daemons)
        return known

    def create_offer(
        self,
        template: NodePoolTemplate,
        used: Mapping[str, int],
        unavailable: Iterable[UnavailableOffering],
        now: datetime,
        reservation_tracker: ReservationTracker,
    ) -> Offer | RejectionReason:
        """The template with available offerings and remaining limits; `used`: capacity of the pool's nodes."""
        budget = RemainingLimits(template.pool.limits, used)
        relevant = (
            unavailable_offering
            for unavailable_offering in unavailable
            if unavailable_offering.node_class in ("", template.pool.node_class)
        )
        unavailable_offerings = [
            unavailable_offering
            for unavailable_offering in relevant
            if not unavailable_offering.subnet_id and not reservation_tracker.is_outdated(unavailable_offering)
        ]
        with self._guard(template.pool, "offer"):
            available = template.table.available_offerings(unavailable_offerings, now)
            return Offer(template, available, budget, reservation_tracker)
        return _UNREADABLE_POOL

    def _build_template(
        self, pool: NodePoolFact, daemons: Iterable[DaemonSetFact]
    ) -> NodePoolTemplate | RejectionReason:
        with self._guard(pool, "template"):
            table = self._get_table(pool)
            if not len(table):
                return RejectionReason(
                    f"{pool.node_class_kind} {pool.node_class} has no instance types yet", NODEPOOL_NOT_READY
                )
            try:
                return NodePoolTemplate(pool, table, daemons)
            except RequirementError as error:
                return RejectionReason(f"its requirements are not valid: {error}", NODEPOOL_NOT_READY)
        return _UNREADABLE_POOL

    def _get_table(self, pool: NodePoolFact) -> InstanceTypeTable:
        table_key = _table_key_of(pool, self._accepted_overlays)
        known = self._tables.get(table_key)
        if known is None:
            name, labels = table_key
            types = self._catalogue.by_node_class.get(name, ())
            known = self._tables[table_key] = InstanceTypeTable(
                apply_overlays(types, self._accepted_overlays, dict(labels)) if self._accepted_overlays else types,
                self._devices.get(name),
            )
            known.apply_discovered_capacity(self.discovered, self._specs.get(name, ""))
        return known

    def _overlay_targets(self, overlays: Collection[OverlayFact], pools: Iterable[NodePoolFact]) -> list[OverlayTarget]:
        table_keys = dict.fromkeys(_table_key_of(pool, overlays) for pool in pools)
        return [OverlayTarget(dict(labels), self._catalogue.by_node_class.get(name, ())) for name, labels in table_keys]


def _table_key_of(pool: NodePoolFact, overlays: Iterable[OverlayFact]) -> _TableKey:
    selected_keys = {requirement.key for one in overlays for requirement in one.requirements}
    return pool.node_class, tuple(
        sorted((key, value) for key, value in nodepool_labels(pool).items() if key in selected_keys)
    )


def sort_by_weight(pools: Iterable[NodePoolFact]) -> list[NodePoolFact]:
    """The pools that can launch nodes for pods when they are ready, by weight, then name, both descending (reference
    2.3)."""
    usable = [pool for pool in pools if not pool.deleting and not pool.static]
    return sorted(usable, key=lambda pool: (pool.weight, pool.name), reverse=True)


def prefer_linux(offers: Iterable[Offer]) -> list[Offer]:
    """Offers sorted by weight, with NodePools that run Linux first among equal weights. Of equal prices, the first is
    chosen, and images of pods that name no operating system are for Linux as a rule."""
    return sorted(offers, key=lambda one: (-one.template.pool.weight, not one.template.runs_linux))


def largest_capacity(template: NodePoolTemplate, nodeclaim: NodeClaimFact) -> dict[str, int]:
    """The largest capacity that an unlaunched NodeClaim may get."""
    rows = _possible_rows(template, nodeclaim)
    return template.table.to_amounts(column_maximum(template.table.capacity, rows)) if len(rows) else {}


def unlaunched_daemon_demand(template: NodePoolTemplate, nodeclaim: NodeClaimFact) -> DaemonDemand:
    """The DaemonSet share of an unlaunched NodeClaim's requests, and the host ports on any instance type."""
    rows = _possible_rows(template, nodeclaim)
    if not len(rows):
        return DaemonDemand()
    requests, remaining = (
        template.table.to_amounts(one[rows].min(axis=0)) for one in (template.overhead, template.headroom)
    )
    return DaemonDemand(requests, template.daemon_ports_of(rows), template.daemons_of(rows), remaining)


def _possible_rows(template: NodePoolTemplate, nodeclaim: NodeClaimFact) -> Indices:
    named = next(
        (one.values for one in nodeclaim.requirements if one.key == INSTANCE_TYPE and one.operator == "In"), None
    )
    if named is not None:
        rows = [template.table.rows[name] for name in named if name in template.table.rows]
        return np.array(rows, dtype=np.intp)
    return np.flatnonzero(template.table.types_with(Requirements.from_expressions(nodeclaim.requirements)))


STRICT: Final = "Strict"


def find_missing_variety(table: InstanceTypeTable, requirements: Requirements, rows: Indices) -> str:
    """The first minValues that these types do not reach, as text; empty if all are reached."""
    for key, one in requirements.items():
        if one.min_values is not None and (found := table.count_distinct_values(one, rows)) < one.min_values:
            return f"{key} needs {one.min_values} different values and {found} fit"
    return ""
