"""What can be bought: the catalogue's tables, the pools' templates over them, and offers for one pass.

Tables and templates are kept between passes, since they change seldom and are dear to build.

minValues: how many different values of a label the instance types of a NodeClaim have to have (reference 2.13).
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import numpy as np

from tenure.apis.labels import INSTANCE_TYPE
from tenure.model.discovered_capacity import Learnt
from tenure.model.facts import ClaimFact, DaemonSetFact, PoolFact
from tenure.model.instance_types import Catalogue, UnavailableOffering
from tenure.model.nodeoverlays import OverlayFact, lay
from tenure.model.requirements import RequirementError, Requirements
from tenure.scheduling.instance_type_table import Indices, TypeTable
from tenure.scheduling.nodeoverlays import Ground, Judged, Verdict, judge, labels_of
from tenure.scheduling.nodepool_template import Budget, Offer, Refusal, Rooms, Template, largest_of

_Ground = tuple[str, tuple[tuple[str, str], ...]]
"""Pools of one EC2NodeClass that are labelled alike, as far as NodeOverlays ask: they have the same instance types."""


class Market:
    def __init__(self) -> None:
        self._catalogue = Catalogue()
        self.learnt = Learnt()
        self._specs: Mapping[str, str] = {}
        self._tables: dict[_Ground, TypeTable] = {}
        self._templates: dict[str, Template | Refusal] = {}
        self._judged: Judged | None = Judged()
        """None: to be judged anew."""
        self._heeded: tuple[OverlayFact, ...] = ()

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """Replace all instance types; the tables of NodeClasses that stay the same are kept."""
        before = self._catalogue.by_node_class
        for name in before.keys() | catalogue.by_node_class.keys():
            if before.get(name) != catalogue.by_node_class.get(name):
                self._tables = {key: table for key, table in self._tables.items() if key[0] != name}
                self._templates.clear()
                self._judged = None
        self._catalogue = catalogue

    def overlay(self, overlays: Collection[OverlayFact], pools: Iterable[PoolFact]) -> Mapping[str, Verdict]:
        """Lay NodeOverlays over what can be bought for these pools; the verdicts on all of them by name.

        Kept until `rejudge`, or until the catalogue is another."""
        if self._judged is None:
            self._judged = judge(overlays, self._grounds(overlays, pools)) if overlays else Judged()
            if self._judged.heeded != self._heeded:
                self._heeded = self._judged.heeded
                self._templates.clear()
                self._tables.clear()
        return self._judged.verdicts

    def rejudge(self) -> None:
        """A NodeOverlay or a pool changed."""
        self._judged = None

    def heed(self, learnt: Learnt, specs: Mapping[str, str]) -> None:
        """What nodes have shown of their machines, replacing what was known; the next plan goes by it.

        `specs` are the hashes of EC2NodeClasses' specs by name."""
        self.learnt, self._specs = learnt, specs
        changed = [table for (name, _), table in self._tables.items() if table.heed(learnt, specs.get(name, ""))]
        if changed:
            self._templates.clear()

    def forget(self, pool: str | None = None) -> None:
        """A pool changed, or (None) something that all templates depend on."""
        if pool is None:
            self._templates.clear()
        else:
            self._templates.pop(pool, None)

    def template(self, pool: PoolFact, daemons: Iterable[DaemonSetFact]) -> Template | Refusal:
        """The pool's template, or why nothing can be bought from this pool; kept until `forget`."""
        known = self._templates.get(pool.name)
        if known is None:
            known = self._templates[pool.name] = self._build(pool, daemons)
        return known

    def offer(
        self,
        template: Template,
        used: Mapping[str, int],
        unavailable: Iterable[UnavailableOffering],
        now: datetime,
        rooms: Rooms,
    ) -> Offer:
        """The template with what is available and what its limits leave; `used` is what the pool's nodes have."""
        budget = Budget(template.pool.limits, used)
        concerning = (mark for mark in unavailable if mark.node_class in ("", template.pool.node_class))
        marks = [mark for mark in concerning if not mark.subnet_id and not rooms.refute(mark)]
        return Offer(template, template.table.available(marks, now), budget, rooms)

    def _build(self, pool: PoolFact, daemons: Iterable[DaemonSetFact]) -> Template | Refusal:
        table = self._table(pool)
        if not len(table):
            return Refusal(f"{pool.node_class_kind} {pool.node_class} has no instance types yet")
        try:
            return Template(pool, table, daemons)
        except RequirementError as error:
            return Refusal(f"its requirements are not valid: {error}")

    def _table(self, pool: PoolFact) -> TypeTable:
        ground = _ground(pool, self._heeded)
        known = self._tables.get(ground)
        if known is None:
            name, labels = ground
            types = self._catalogue.by_node_class.get(name, ())
            known = self._tables[ground] = TypeTable(lay(types, self._heeded, dict(labels)) if self._heeded else types)
            known.heed(self.learnt, self._specs.get(name, ""))
        return known

    def _grounds(self, overlays: Collection[OverlayFact], pools: Iterable[PoolFact]) -> list[Ground]:
        grounds = dict.fromkeys(_ground(pool, overlays) for pool in pools)
        return [Ground(dict(labels), self._catalogue.by_node_class.get(name, ())) for name, labels in grounds]


def _ground(pool: PoolFact, overlays: Iterable[OverlayFact]) -> _Ground:
    asked = {wanted.key for one in overlays for wanted in one.requirements}
    return pool.node_class, tuple(sorted((key, value) for key, value in labels_of(pool).items() if key in asked))


def largest_capacity(template: Template, claim: ClaimFact) -> dict[str, int]:
    """What a claim that is not launched may turn out to have at most."""
    rows = _possible(template, claim)
    return template.table.amounts(largest_of(template.table.capacity, rows)) if len(rows) else {}


def least_overhead(template: Template, claim: ClaimFact) -> dict[str, int]:
    """What of the requests of a claim that is not launched is meant for DaemonSets."""
    rows = _possible(template, claim)
    return template.table.amounts(template.overhead[rows].min(axis=0)) if len(rows) else {}


def _possible(template: Template, claim: ClaimFact) -> Indices:
    named = next((one.values for one in claim.requirements if one.key == INSTANCE_TYPE and one.operator == "In"), None)
    if named is not None:
        rows = [template.table.rows[name] for name in named if name in template.table.rows]
        return np.array(rows, dtype=np.intp)
    return np.flatnonzero(template.table.types_with(Requirements.of(claim.requirements)))


STRICT: Final = "Strict"
BEST_EFFORT: Final = "BestEffort"


def missing_variety(table: TypeTable, requirements: Requirements, rows: Indices) -> str:
    """The first minValues that these types do not reach, in words; empty when all are reached."""
    for key, one in requirements.items():
        if one.min_values is not None and (found := table.distinct(key, rows)) < one.min_values:
            return f"{key} needs {one.min_values} different values and {found} fit"
    return ""
