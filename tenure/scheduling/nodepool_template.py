"""NodePools as offers: a template, the instance types that satisfy it, and capacity within limits and reservations.

A node in reserved capacity is planned into one reservation and names it in its requirements. So no more nodes are
planned into a reservation than it has instances left.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_TYPE, OS, RESERVED, is_injected_elsewhere
from tenure.apis.quantity import format_amount
from tenure.apis.resources import CPU, NODES, Resources
from tenure.model.blockers import INSUFFICIENT_CAPACITY, NO_NODEPOOL_FITS
from tenure.model.facts import DaemonSetFact, HostPort, NodeClaimFact, NodePoolFact
from tenure.model.instance_types import ReservationHeadroom, UnavailableOffering
from tenure.model.launch import UNAVAILABLE_FOR
from tenure.model.requirements import Requirement, Requirements, one_of
from tenure.scheduling.burstable_types import names_burstable_types
from tenure.scheduling.daemonsets import compute_daemon_overhead, daemon_host_ports, rows_running_daemon
from tenure.scheduling.instance_type_table import Amounts, Indices, InstanceTypeTable, Mask, Prices
from tenure.scheduling.nodepool_requirements import INTERNAL_LABELS, nodepool_requirements, template_labels
from tenure.scheduling.pods import Variant
from tenure.scheduling.taints import first_untolerated, format_taint, ports_conflict


class ReservationTracker:
    """Available instances of reservations: EC2's count less NodeClaims that it does not include. Pools share it."""

    def __init__(self, reported: Mapping[str, ReservationHeadroom], nodeclaims: Iterable[NodeClaimFact] = ()) -> None:
        self._reported = reported
        self._remaining = {key: capacity.available for key, capacity in reported.items()}
        for nodeclaim in nodeclaims:
            key = reservation_of(nodeclaim)
            if key in reported and not _is_counted(nodeclaim, reported[key]):
                self._remaining[key] -= 1

    def remaining(self, reservation_id: str) -> int:
        return max(0, self._remaining.get(reservation_id, 0))

    def is_outdated(self, unavailable_offering: UnavailableOffering) -> bool:
        """Whether EC2 rejected a launch into a full reservation, and has reported available instances since."""
        capacity = self._reported.get(unavailable_offering.reservation_id)
        return (
            capacity is not None
            and capacity.available > 0
            and capacity.at > unavailable_offering.until - UNAVAILABLE_FOR
        )

    def reserve(self, reservation_id: str, nodes: int) -> None:
        self._remaining[reservation_id] = self.remaining(reservation_id) - nodes


def reservation_of(nodeclaim: NodeClaimFact) -> str:
    """The reservation that it was planned into, or that its instance uses."""
    for one in nodeclaim.requirements:
        if one.key == CAPACITY_RESERVATION_ID and one.operator == "In" and len(one.values) == 1:
            return one.values[0]
    return nodeclaim.labels.get(CAPACITY_RESERVATION_ID, "")


def _is_counted(nodeclaim: NodeClaimFact, capacity: ReservationHeadroom) -> bool:
    """EC2's count includes only NodeClaims that are launched and were created before it."""
    return nodeclaim.launched and nodeclaim.created <= capacity.at


NOT_AVAILABLE = "is available: EC2 has no capacity for them"


class NodePoolTemplate:
    """A NodePool's template with the instance types of its NodeClass; reused until one of them changes."""

    def __init__(self, pool: NodePoolFact, table: InstanceTypeTable, daemons: Iterable[DaemonSetFact]) -> None:
        self.pool = pool
        self.table = table
        self.labels, self.requirements = template_labels(pool), nodepool_requirements(pool)
        self._daemons = daemons = tuple(daemons)
        self.overhead = compute_daemon_overhead(table, daemons, self.requirements, pool.taints)
        self._daemon_ports = daemon_host_ports(table, daemons, self.requirements, pool.taints)
        self._rows_by_daemon: dict[str, Mask] | None = None
        self.headroom = table.allocatable - self.overhead
        self._sustained_headroom = self.headroom.copy()
        if CPU in table.columns:
            self._sustained_headroom[:, table.columns[CPU]] -= table.cpu_above_baseline
        linux = self.requirements.intersection(Requirements((one_of(OS, "linux"),)))
        self.runs_linux = bool(table.types_with(linux).any())

    def headroom_for(self, requirements: Requirements, types: Mask) -> Amounts:
        """Headroom of all rows. Burstable types count with their baseline CPU if the requirements neither name them
        nor exclude all other `types`."""
        full = names_burstable_types(requirements) or not (types & ~self.table.burstable).any()
        return self.headroom if full else self._sustained_headroom

    def explain_overhead(self, resource: str) -> str:
        """The message for a resource that DaemonSets use up on every instance type; it names the largest DaemonSet."""
        daemon = max(self._daemons, key=lambda one: one.pod.requests.get(resource, 0))
        amount = format_amount(resource, daemon.pod.requests.get(resource, 0))
        name = f"{daemon.namespace}/{daemon.name}"
        return f"DaemonSets leave no {resource} on any allowed instance type: {name} requests {amount}"

    def may_have_label(self, key: str) -> bool:
        """Whether a new node may have this label: of its NodePool or of an instance type."""
        return key in self.requirements or bool(self.table.values_of(key, np.ones(len(self.table), dtype=bool)))

    def types_with_daemons(self, uids: Iterable[str]) -> Amounts:
        """How many of these DaemonSets run on a node of each type."""
        for daemon in self._daemons if self._rows_by_daemon is None else ():
            rows = rows_running_daemon(self.table, daemon, self.requirements, self.pool.taints)
            self._rows_by_daemon = {**(self._rows_by_daemon or {}), daemon.pod.uid: rows}
        found = np.zeros(len(self.table), dtype=np.int64)
        for uid in uids:
            found += (self._rows_by_daemon or {}).get(uid, 0)
        return found

    def daemons_of(self, rows: Indices) -> frozenset[str]:
        """UIDs of the DaemonSets that run on any of these types."""
        return frozenset(one.pod.uid for one in self._daemons if self.types_with_daemons((one.pod.uid,))[rows].any())

    def daemon_ports_of(self, rows: Indices) -> tuple[HostPort, ...]:
        """Host ports that DaemonSets use on any of these types."""
        return tuple(port for used, types in self._daemon_ports if types[rows].any() for port in used)

    def types_with_free_ports(self, ports: Collection[HostPort]) -> Mask:
        """The types on which no DaemonSet uses any of these host ports."""
        free: Mask = np.ones(len(self.table), dtype=bool)
        for used, types in self._daemon_ports if ports else ():
            if ports_conflict(ports, used):
                free &= ~types
        return free


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """A template restricted by pod requirements: the remaining types and offerings."""

    requirements: Requirements
    types: Mask
    offerings: Mask
    headroom: Amounts
    """Of all types of the table."""
    reservation: str = ""
    """The capacity reservation of its nodes; empty for capacity that is not reserved."""


class RejectionReason(str):
    """Why a pod cannot run on a node of a pool, as text with a code."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, text: str, code: str = NO_NODEPOOL_FITS) -> "RejectionReason":
        reason = super().__new__(cls, text)
        reason.code = code
        return reason


@dataclass(slots=True)
class RemainingLimits:
    """Remaining limits of a pool, in the units of `model.resources`; None means no limit."""

    limits: Resources
    used: Resources

    def remaining(self, key: str) -> int | None:
        return self.limits[key] - self.used.get(key, 0) if key in self.limits else None

    def add_usage(self, amounts: Resources) -> None:
        self.used = {**self.used, **{key: self.used.get(key, 0) + amount for key, amount in amounts.items()}}


@dataclass(slots=True, eq=False)
class Offer:
    """One pool in one pass."""

    template: NodePoolTemplate
    available: Mask
    remaining_limits: RemainingLimits
    reservation_tracker: ReservationTracker = field(default_factory=lambda: ReservationTracker({}))
    _restricted: dict[tuple[Option | None, Variant, str], Option | RejectionReason] = field(default_factory=dict)
    _options: dict[tuple[Requirements, str], Option | RejectionReason] = field(default_factory=dict)
    _prices: dict[Option, Prices] = field(default_factory=dict)
    _reservation_ids: list[str] | None = None
    """Of the available offerings; None until the first use."""

    @property
    def pool_name(self) -> str:
        return self.template.pool.name

    @property
    def table(self) -> InstanceTypeTable:
        return self.template.table

    @property
    def has_limits(self) -> bool:
        return bool(self.remaining_limits.limits)

    def base_option(self) -> Option | RejectionReason:
        """The template without pod requirements and without reservations."""
        return self._get_option(self.template.requirements, self.available & ~self.table.reserved, "")

    def restrict(self, option: Option | None, variant: Variant, reservation: str = "") -> Option | RejectionReason:
        """The option (None: the template) restricted by a pod's requirements, or why they are incompatible.

        `reservation` counts only for the template: an option keeps its reservation, or has none."""
        key = (option, variant, option.reservation if option else reservation)
        known = self._restricted.get(key)
        if known is None:
            known = self._restricted[key] = self._compute_restricted(*key)
        return known

    def restrict_to(self, option: Option, requirements: Requirements) -> Option | RejectionReason:
        """The option with these requirements added."""
        incompatibility = option.requirements.explain_incompatibility(requirements)
        if incompatibility:
            return RejectionReason(incompatibility)
        return self._get_option(
            option.requirements.intersection(requirements), self.available & ~self.table.reserved, option.reservation
        )

    def available_reservations(self) -> list[str]:
        """IDs of reservations with available offerings for this pool and instances left."""
        if self._reservation_ids is None:
            self._reservation_ids = sorted(set(self.table.reservations[self.available & self.table.reserved]))
        return [one for one in self._reservation_ids if self.reservation_tracker.remaining(one) > 0]

    def launchable_options(self, variant: Variant) -> Iterator[Option]:
        """The template for such pods: with capacity that is not reserved, and with each available reservation."""
        option = self.restrict(None, variant)
        if not isinstance(option, RejectionReason):
            yield option
        for one in self.available_reservations():
            option = self.restrict(None, variant, one)
            if not isinstance(option, RejectionReason):
                yield option

    def cheapest_prices(self, option: Option) -> Prices:
        """The lowest price of each type among the option's offerings."""
        known = self._prices.get(option)
        if known is None:
            known = self._prices[option] = self.table.cheapest_prices(option.offerings)
        return known

    def types_within_limits(self, types: Mask) -> Mask:
        """The types that one more node may have without exceeding a limit."""
        if not self.has_limits:
            return types
        nodes = self.remaining_limits.remaining(NODES)
        if nodes is not None and nodes < 1:
            return np.zeros_like(types)
        allowed = types
        for key in self.remaining_limits.limits:
            remaining = self.remaining_limits.remaining(key)
            if remaining is not None and key in self.table.columns:
                allowed = allowed & (self.table.capacity[:, self.table.columns[key]] <= remaining)
        return allowed

    def count_against_limits(self, rows: Indices, nodes: int = 1) -> None:
        """Count nodes against the limits, as the largest of these types in each resource (reference 2.11)."""
        if self.has_limits:
            self.remaining_limits.add_usage(
                {key: nodes * amount for key, amount in {**self.max_capacity(rows), NODES: 1}.items()}
            )

    def max_capacity(self, rows: Indices) -> dict[str, int]:
        """The largest capacity among these types."""
        return self.table.to_amounts(column_maximum(self.table.capacity, rows))

    def _compute_restricted(
        self, option: Option | None, variant: Variant, reservation: str
    ) -> Option | RejectionReason:
        pool = self.template.pool
        taint = first_untolerated(variant.tolerations, pool.taints, tolerate_preferences=variant.tolerate_preferences)
        if taint is not None:
            return RejectionReason(f"taint {format_taint(taint)} is not tolerated")
        before = option.requirements if option else self.template.requirements
        if not before.is_compatible(variant.requirements):
            return RejectionReason("" if option else before.explain_incompatibility(variant.requirements))
        requirements = before.intersection(variant.requirements)
        if not reservation:
            return self._get_option(requirements, self.available & ~self.table.reserved, reservation)
        reservation_requirements = _reservation_requirements(reservation)
        incompatibility = requirements.explain_incompatibility(reservation_requirements)
        if incompatibility:
            return RejectionReason(incompatibility)
        return self._get_option(requirements.intersection(reservation_requirements), self.available, reservation)

    def _get_option(self, requirements: Requirements, available: Mask, reservation: str) -> Option | RejectionReason:
        """Equal requirements share one option."""
        known = self._options.get((requirements, reservation))
        if known is None:
            known = self._options[requirements, reservation] = self._build_option(requirements, available, reservation)
        return known

    def _build_option(self, requirements: Requirements, available: Mask, reservation: str) -> Option | RejectionReason:
        if unlabelled := next(filter(_has_no_label_value, requirements.values()), None):
            return RejectionReason(f"no label value satisfies {unlabelled}")
        fitting = self.table.types_with(requirements)
        if not fitting.any():
            return RejectionReason(f"no instance type satisfies {requirements.without(*self._own_keys())}")
        possible = self.table.offerings_with(requirements)
        offerings = possible & available & fitting[self.table.offering_rows]
        types = fitting & self.table.rows_of(offerings)
        if not types.any():
            return _no_offering(int(fitting.sum()), known=bool((possible & fitting[self.table.offering_rows]).any()))
        headroom = self.template.headroom_for(requirements, fitting)
        return Option(requirements, types, offerings, headroom, reservation)

    def _own_keys(self) -> tuple[str, ...]:
        return (
            *INTERNAL_LABELS,
            *(key for key in self.template.labels if key not in self.template.pool.template_labels),
        )


def _has_no_label_value(one: Requirement) -> bool:
    """Whether NodeClaims would lack a custom label that they must have."""
    return one.present and not one.example() and not is_injected_elsewhere(one.key)


def _reservation_requirements(reservation: str) -> Requirements:
    return Requirements((one_of(CAPACITY_TYPE, RESERVED), one_of(CAPACITY_RESERVATION_ID, reservation)))


def column_maximum(amounts: Amounts, rows: Indices) -> Amounts:
    """The largest amount of each column among some rows."""
    return np.asarray(amounts[rows].max(axis=0), dtype=np.int64)


def _no_offering(types: int, *, known: bool) -> RejectionReason:
    subject = f"none of the {types} instance types that satisfy it"
    if known:
        return RejectionReason(f"{subject} {NOT_AVAILABLE}", INSUFFICIENT_CAPACITY)
    return RejectionReason(f"{subject} is offered in the allowed zones and capacity types")
