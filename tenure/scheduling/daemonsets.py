"""What DaemonSets take: on each instance type of a template, and on a node they have not reached yet.

`tenure/scheduling/nodepool_template.py` and `tenure/scheduling/existing_nodes.py` subtract it before any other pod
is placed.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from tenure.apis.resources import total
from tenure.model.facts import DaemonSetFact, HostPort, PodFact, Taint
from tenure.model.requirements import Requirements
from tenure.scheduling.instance_type_table import Amounts, Mask, TypeTable
from tenure.scheduling.pods import alternatives, constraints_of
from tenure.scheduling.taints import untolerated


def overhead(
    table: TypeTable, daemons: Iterable[DaemonSetFact], requirements: Requirements, taints: Sequence[Taint]
) -> Amounts:
    """Row by row what the DaemonSets ask for on a node of that type, made from a template with these requirements.

    A resource that no type has makes no difference here: such a DaemonSet's pod will not run there.
    """
    taken = np.zeros_like(table.allocatable)
    for daemon in daemons:
        vector = table.vector(daemon.pod.requests)
        if vector is not None and _tolerated(daemon.pod, taints):
            taken[_rows(table, daemon.pod, requirements)] += vector
    return taken


def ports(
    table: TypeTable, daemons: Iterable[DaemonSetFact], requirements: Requirements, taints: Sequence[Taint]
) -> tuple[tuple[HostPort, Mask], ...]:
    """Host ports that DaemonSets take on nodes made from a template with these requirements, and on which types."""
    return tuple(
        (port, rows)
        for daemon in daemons
        if daemon.pod.host_ports and _tolerated(daemon.pod, taints)
        for rows in (_rows(table, daemon.pod, requirements),)
        if rows.any()
        for port in daemon.pod.host_ports
    )


def still_to_come(
    daemons: Iterable[DaemonSetFact], present: frozenset[str], labels: Requirements, taints: Sequence[Taint]
) -> dict[str, int]:
    """What DaemonSets that will run on a node, and are not in `present` (UIDs), will take of it."""
    return total(
        daemon.pod.requests
        for daemon in daemons
        if daemon.uid not in present
        and _tolerated(daemon.pod, taints)
        and any(labels.compatible_strictly(wanted) for wanted in alternatives(constraints_of(daemon.pod)))
    )


def _tolerated(pod: PodFact, taints: Sequence[Taint]) -> bool:
    return untolerated(pod.tolerations, taints, tolerate_preferences=True) is None


def _rows(table: TypeTable, pod: PodFact, requirements: Requirements) -> Mask:
    rows: Mask = np.zeros(len(table), dtype=bool)
    for wanted in alternatives(constraints_of(pod)):
        if requirements.compatible(wanted):
            narrowed = requirements.intersection(wanted)
            rows |= table.types_with(narrowed) & table.rows_of(table.offerings_with(narrowed))
    return rows
