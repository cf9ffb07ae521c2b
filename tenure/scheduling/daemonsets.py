"""The overhead of DaemonSets: per instance type of a template, and on a node that they have not reached yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tenure.model.facts import DaemonSetFact, HostPort, PodFact, Taint
from tenure.model.requirements import Requirements
from tenure.scheduling.instance_type_table import Amounts, InstanceTypeTable, Mask
from tenure.scheduling.pods import constraints_of, node_requirement_alternatives
from tenure.scheduling.taints import first_untolerated


@dataclass(frozen=True, slots=True)
class DaemonDemand:
    """Requests and host ports of the DaemonSet pods that a node is expected to get."""

    requests: Mapping[str, int] = field(default_factory=dict)
    host_ports: tuple[HostPort, ...] = ()
    uids: frozenset[str] = frozenset()
    remaining: Mapping[str, int] = field(default_factory=dict)
    """Allocatable that they leave on every possible instance type; empty if the types are not known."""


def compute_daemon_overhead(
    table: InstanceTypeTable, daemons: Iterable[DaemonSetFact], requirements: Requirements, taints: Sequence[Taint]
) -> Amounts:
    """Per row, the requests of the DaemonSets that run on a node of that type, for a template with these requirements.

    A DaemonSet does not count on a type without a resource that it requests, such as a device: its pod does not run
    there.
    """
    taken = np.zeros_like(table.allocatable)
    for daemon in daemons:
        vector = table.to_vector(daemon.pod.requests)
        if vector is not None:
            taken[rows_running_daemon(table, daemon, requirements, taints)] += vector
    return taken


def rows_running_daemon(
    table: InstanceTypeTable, daemon: DaemonSetFact, requirements: Requirements, taints: Sequence[Taint]
) -> Mask:
    """The types whose nodes, of a template with these requirements, get a pod of the DaemonSet."""
    vector = table.to_vector(daemon.pod.requests)
    if vector is None or not _tolerates_taints(daemon.pod, taints):
        return np.zeros(len(table), dtype=bool)
    has_resources: Mask = ((table.allocatable > 0) | (vector == 0)).all(axis=1)
    return _rows_with_daemon(table, daemon.pod, requirements) & has_resources


def daemon_host_ports(
    table: InstanceTypeTable, daemons: Iterable[DaemonSetFact], requirements: Requirements, taints: Sequence[Taint]
) -> tuple[tuple[tuple[HostPort, ...], Mask], ...]:
    """By DaemonSet, its host ports on nodes of a template with these requirements, and the types concerned."""
    return tuple(
        (daemon.pod.host_ports, rows)
        for daemon in daemons
        if daemon.pod.host_ports and _tolerates_taints(daemon.pod, taints)
        for rows in (_rows_with_daemon(table, daemon.pod, requirements),)
        if rows.any()
    )


def pending_daemon_pods(
    daemons: Iterable[DaemonSetFact],
    present: frozenset[str],
    labels: Requirements,
    taints: Sequence[Taint],
    allocatable: Mapping[str, int],
) -> list[PodFact]:
    """The pods of DaemonSets that will run on a node, except the DaemonSets in `present` (UIDs).

    `allocatable`: a DaemonSet does not run on a node that lacks a resource that it requests. Empty if it is not known.
    """
    return [
        daemon.pod
        for daemon in daemons
        if daemon.uid not in present
        and (not allocatable or all(allocatable.get(key) for key, amount in daemon.pod.requests.items() if amount))
        and _tolerates_taints(daemon.pod, taints)
        and any(
            labels.is_strictly_compatible(requirements)
            for requirements in node_requirement_alternatives(constraints_of(daemon.pod))
        )
    ]


def _tolerates_taints(pod: PodFact, taints: Sequence[Taint]) -> bool:
    return first_untolerated(pod.tolerations, taints, tolerate_preferences=True) is None


def _rows_with_daemon(table: InstanceTypeTable, pod: PodFact, requirements: Requirements) -> Mask:
    rows: Mask = np.zeros(len(table), dtype=bool)
    for alternative in node_requirement_alternatives(constraints_of(pod)):
        if requirements.is_compatible(alternative):
            intersection = requirements.intersection(alternative)
            rows |= table.types_with(intersection) & table.rows_of(table.offerings_with(intersection))
    return rows
