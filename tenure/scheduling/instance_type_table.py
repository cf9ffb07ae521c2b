"""The instance types of one NodeClass as arrays, so that one operation evaluates all of them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt

from tenure.apis.labels import (
    EBS_CSI_DRIVER,
    INSTANCE_TYPE,
    NODEPOOL,
    PLACEMENT_GROUP_PARTITION,
    RESERVATION_LABELS,
    RESERVED,
    WELL_KNOWN,
)
from tenure.apis.resources import CPU, MEMORY
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.instance_types import OFFERING_KEYS, InstanceType, Offering, TypeDevices, UnavailableOffering
from tenure.model.requirements import Requirement, Requirements
from tenure.scheduling.burstable_types import baseline_millicores

Mask = npt.NDArray[np.bool_]
Amounts = npt.NDArray[np.int64]
Prices = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

# A type may have offerings with and without these labels, so a requirement of absence excludes no type.
_OPTIONAL_KEYS: Final = frozenset({*RESERVATION_LABELS, PLACEMENT_GROUP_PARTITION})
# In an UnavailableOffering: every type, zone or capacity type.
ANY: Final = "*"
_MAX_CACHED: Final = 10_000
_MAX_CACHED_VALUES: Final = 1_000
EBS_ATTACHMENTS: Final = f"attachable-volumes-csi-{EBS_CSI_DRIVER}"
"""Column with the volumes that the EBS CSI driver attaches to a new node. It is no resource of pods or NodeClaims."""
MANY_ATTACHMENTS: Final = 1 << 20
"""For nodes without a limit in the column."""
# Well-known labels that the pool sets, not the instance type.
_POOL_KEYS: Final = frozenset({NODEPOOL})


class _LabelMatrix:
    """Which rows may have which value of one label."""

    def __init__(self, values: Sequence[str], matrix: Mask) -> None:
        self.values, self.matrix = values, matrix
        self._absent: Mask = ~_any_row(matrix)

    @classmethod
    def from_rows(cls, rows: Sequence[Iterable[str]]) -> "_LabelMatrix":
        values = sorted({value for row in rows for value in row})
        index = {value: number for number, value in enumerate(values)}
        matrix: Mask = np.zeros((len(values), len(rows)), dtype=bool)
        for number, row in enumerate(rows):
            for value in row:
                matrix[index[value], number] = True
        return cls(values, matrix)

    def merge_rows(self, groups: Indices, count: int) -> "_LabelMatrix":
        """Which of `count` groups may have which value; `groups`: the group of each row."""
        merged: Mask = np.zeros((len(self.values), count), dtype=bool)
        for number, rows in enumerate(self.matrix):
            merged[number, groups[rows]] = True
        return _LabelMatrix(self.values, merged)

    def rows_satisfying(self, requirement: Requirement) -> Mask:
        chosen = [number for number, value in enumerate(self.values) if requirement.has(value)]
        mask = _any_row(self.matrix[chosen])
        return mask if requirement.present else mask | self._absent


class InstanceTypeTable:
    """Rows are instance types sorted by name; columns of amounts are `resources`."""

    def __init__(self, types: Iterable[InstanceType], devices: Mapping[str, TypeDevices] | None = None) -> None:
        """`devices`: by instance type, those that pods request."""
        self.devices = devices or {}
        self.types = tuple(sorted(types, key=lambda one: one.name))
        self.names = [one.name for one in self.types]
        self.rows = {name: row for row, name in enumerate(self.names)}
        self._limits_attachments = any(one.ebs_attachments is not None for one in self.types)
        attachments = {EBS_ATTACHMENTS} if self._limits_attachments else set[str]()
        self._device_names = {name for one in self.devices.values() for name in one.amounts}
        self._not_requested = self._device_names | {EBS_ATTACHMENTS}
        known = attachments | self._device_names
        self.resources = tuple(sorted(known.union(*(one.capacity for one in self.types))))
        self.columns = {key: number for number, key in enumerate(self.resources)}
        self.capacity = self._build_amounts([one.capacity for one in self.types])
        self.allocatable = self._build_amounts([self._allocatable_of(one) for one in self.types])
        baselines = [baseline_millicores(one.name) for one in self.types]
        self.burstable: Mask = np.array([one is not None for one in baselines], dtype=bool)
        self.cpu_above_baseline: Amounts = np.array(
            [
                0 if baseline is None else max(0, one.capacity.get(CPU, 0) - baseline)
                for one, baseline in zip(self.types, baselines, strict=True)
            ],
            dtype=np.int64,
        )
        self._estimated_memory: Amounts = np.array([one.capacity.get(MEMORY, 0) for one in self.types], dtype=np.int64)
        self._memory_overhead: Amounts = np.array([one.overhead.get(MEMORY, 0) for one in self.types], dtype=np.int64)
        self._offerings = [
            (row, one) for row, instance_type in enumerate(self.types) for one in instance_type.offerings
        ]
        self.offering_rows: Indices = np.array([row for row, _ in self._offerings], dtype=np.intp)
        self.offering_prices: Prices = np.array([one.price for _, one in self._offerings], dtype=np.float64)
        self.capacity_types = np.array([one.capacity_type for _, one in self._offerings], dtype=object)
        self.zone_ids = np.array([one.zone_id for _, one in self._offerings], dtype=object)
        self.zones = np.array([one.zone for _, one in self._offerings], dtype=object)
        self.reservations = np.array([one.reservation_id for _, one in self._offerings], dtype=object)
        self.partitions = np.array([one.partition for _, one in self._offerings], dtype=object)
        self.reserved: Mask = np.asarray(self.capacity_types == RESERVED, dtype=bool).reshape(len(self._offerings))
        self.overlaid_prices: Mask = np.array([one.overlaid for _, one in self._offerings], dtype=bool)
        self.overlaid_capacity: Mask = np.array([one.overlaid for one in self.types], dtype=bool)
        self.placement_group = self.types[0].placement_group if self.types else ""
        self._listed_available: Mask = np.array([one.available for _, one in self._offerings], dtype=bool)
        self._offering_labels: dict[str, _LabelMatrix] = {}
        self._labels: dict[str, _LabelMatrix] = {}
        self._types_with: dict[Requirement, Mask] = {}
        self._offerings_with: dict[Requirement, Mask] = {}
        self._known_labels = {key for one in self.types for key in one.labels}

    def __len__(self) -> int:
        return len(self.types)

    def apply_discovered_capacity(self, discovered: DiscoveredCapacity, spec_hash: str = "") -> bool:
        """Replace memory estimates with discovered capacity; True if anything changed.

        Changes the memory columns only; labels, offerings and cached results stay.
        """
        column = self.columns.get(MEMORY)
        if column is None:
            return False
        memory_by_type = [discovered.get_memory(one.image_id, one.name, spec_hash) for one in self.types]
        measured = np.array([-1 if one is None else one for one in memory_by_type], dtype=np.int64)
        memory = np.where(measured >= 0, measured, self._estimated_memory)
        if np.array_equal(memory, self.capacity[:, column]):
            return False
        self.capacity[:, column] = memory
        self.allocatable[:, column] = np.maximum(0, memory - self._memory_overhead)
        return True

    def to_vector(self, amounts: Mapping[str, int]) -> Amounts | None:
        """Amounts in the order of the columns; None for a requested resource that no type has."""
        vector = np.zeros(len(self.resources), dtype=np.int64)
        for key, amount in amounts.items():
            if key in self.columns:
                vector[self.columns[key]] = amount
            elif amount > 0:
                return None
        return vector

    def to_amounts(self, vector: Amounts) -> dict[str, int]:
        """The reverse of `to_vector`, without zeros, volumes and DRA devices."""
        amounts = zip(self.resources, vector, strict=True)
        return {key: int(amount) for key, amount in amounts if amount and key not in self._not_requested}

    def to_devices(self, vector: Amounts) -> dict[str, int]:
        """The amounts of DRA devices, without zeros."""
        return {key: int(vector[self.columns[key]]) for key in sorted(self._device_names) if vector[self.columns[key]]}

    def find_device_drivers(self, names: Iterable[str], rows: Indices) -> list[str]:
        """The DRA drivers whose devices these amounts may be, on any of these types; sorted."""
        known = [self.devices[self.names[row]] for row in rows if self.names[row] in self.devices]
        return sorted({driver for one in known for name in names for driver in one.drivers.get(name, ())})

    def _allocatable_of(self, instance_type: InstanceType) -> Mapping[str, int]:
        devices = self.devices.get(instance_type.name)
        return {**instance_type.allocatable(), **devices.amounts} if devices else instance_type.allocatable()

    def types_with(self, requirements: Requirements) -> Mask:
        """The types that can satisfy all requirements. Skips labels that no type has, unless they are well-known."""
        mask: Mask = np.ones(len(self), dtype=bool)
        for key, one in requirements.items():
            if key in _OPTIONAL_KEYS and not one.present:
                continue
            if key not in _POOL_KEYS and (key in self._known_labels or key in WELL_KNOWN):
                mask = mask & self._types_satisfying(one)
        return mask

    def offerings_with(self, requirements: Requirements) -> Mask:
        """The offerings whose zone, capacity type and reservation satisfy all requirements."""
        mask: Mask = np.ones(len(self._offerings), dtype=bool)
        for key in OFFERING_KEYS:
            if key in requirements:
                mask = mask & self._offerings_satisfying(requirements[key])
        return mask

    def available_offerings(self, unavailable: Iterable[UnavailableOffering], now: datetime) -> Mask:
        """The offerings that the catalogue lists as available and that no current `unavailable` entry covers."""
        available = self._listed_available.copy()
        for unavailable_offering in unavailable:
            if now < unavailable_offering.until and self._is_relevant(unavailable_offering):
                available &= ~self._covered_offerings(unavailable_offering)
        return available

    def rows_of(self, offerings: Mask) -> Mask:
        """The types that have at least one of these offerings."""
        mask: Mask = np.zeros(len(self), dtype=bool)
        mask[self.offering_rows[offerings]] = True
        return mask

    def cheapest_prices(self, offerings: Mask) -> Prices:
        """The lowest price of each type among these offerings; infinite where there is none."""
        prices = np.full(len(self), np.inf)
        np.minimum.at(prices, self.offering_rows[offerings], self.offering_prices[offerings])
        return prices

    def count_distinct_values(self, allowed: Requirement, rows: Indices) -> int:
        """The number of allowed values of a label that these types can have together."""
        labels = self._label_matrix(allowed.key)
        found = np.asarray(labels.matrix[:, rows].any(axis=1), dtype=bool)
        return sum(map(allowed.has, compress(labels.values, found.tolist())))

    def values_of(self, key: str, types: Mask) -> set[str]:
        """The values of a label that these types can have."""
        if key not in self._known_labels and key not in WELL_KNOWN:
            return set()
        labels = self._label_matrix(key)
        return {value for value, row in zip(labels.values, labels.matrix, strict=True) if (row & types).any()}

    def _is_relevant(self, unavailable_offering: UnavailableOffering) -> bool:
        """Entries for a subnet do not count here: a launch avoids full subnets."""
        return not unavailable_offering.subnet_id and unavailable_offering.placement_group in ("", self.placement_group)

    def _covered_offerings(self, unavailable_offering: UnavailableOffering) -> Mask:
        covered: Mask = np.ones(len(self._offerings), dtype=bool)
        for column, expected_value in (
            (self.reservations, unavailable_offering.reservation_id),
            (self.partitions, unavailable_offering.partition),
        ):
            if expected_value:
                covered = covered & (column == expected_value)
        if unavailable_offering.capacity_type != ANY:
            covered = covered & (self.capacity_types == unavailable_offering.capacity_type)
        if unavailable_offering.zone != ANY:
            covered = covered & (self.zones == unavailable_offering.zone)
        if unavailable_offering.instance_type != ANY:
            row = self.rows.get(unavailable_offering.instance_type, -1)
            covered = covered & (self.offering_rows == row)
        return covered

    def _build_amounts(self, rows: Sequence[Mapping[str, int]]) -> Amounts:
        table = [[row.get(key, 0) for key in self.resources] for row in rows]
        amounts = np.array(table, dtype=np.int64).reshape(len(rows), len(self.resources))
        if self._limits_attachments:
            limits = (one.ebs_attachments for one in self.types)
            amounts[:, self.columns[EBS_ATTACHMENTS]] = [MANY_ATTACHMENTS if one is None else one for one in limits]
        return amounts

    def _types_satisfying(self, requirement: Requirement) -> Mask:
        known = self._types_with.get(requirement)
        if known is None:
            known = self._label_matrix(requirement.key).rows_satisfying(requirement)
            _store_mask(self._types_with, requirement, known)
        return known

    def _offerings_satisfying(self, requirement: Requirement) -> Mask:
        known = self._offerings_with.get(requirement)
        if known is None:
            known = self._offering_label_matrix(requirement.key).rows_satisfying(requirement)
            _store_mask(self._offerings_with, requirement, known)
        return known

    def _offering_label_matrix(self, key: str) -> _LabelMatrix:
        known = self._offering_labels.get(key)
        if known is None:
            column = np.array([one.label(key) for _, one in self._offerings], dtype=object)
            values = sorted({*column} - {""})
            matrix = np.array([column == value for value in values], dtype=bool).reshape(len(values), len(column))
            known = self._offering_labels[key] = _LabelMatrix(values, matrix)
        return known

    def _label_matrix(self, key: str) -> _LabelMatrix:
        known = self._labels.get(key)
        if known is None:
            if key in OFFERING_KEYS and key not in self._known_labels:
                known = self._offering_label_matrix(key).merge_rows(self.offering_rows, len(self))
            else:
                known = _LabelMatrix.from_rows([_possible_values(one, key) for one in self.types])
            self._labels[key] = known
        return known


def _store_mask(cache: dict[Requirement, Mask], requirement: Requirement, mask: Mask) -> None:
    """Most requirements are those of pods, which come and go, and may have thousands of values."""
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    if len(requirement.values) <= _MAX_CACHED_VALUES:
        cache[requirement] = mask


def _any_row(matrix: Mask) -> Mask:
    """The columns that are true in any row."""
    return np.asarray(matrix.any(axis=0), dtype=bool)


def _possible_values(instance_type: InstanceType, key: str) -> Iterable[str]:
    if key == INSTANCE_TYPE:
        return (instance_type.name,)
    if key in instance_type.labels:
        return instance_type.labels[key]
    return (
        {value for one in instance_type.offerings for value in _offering_values(one, key)}
        if key in OFFERING_KEYS
        else ()
    )


def _offering_values(offering: Offering, key: str) -> tuple[str, ...]:
    value = offering.label(key)
    return (value,) if value else ()
