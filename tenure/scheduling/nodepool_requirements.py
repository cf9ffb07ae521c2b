"""Labels and requirements of the nodes of a NodePool, without its instance types."""

from tenure.apis.labels import INITIALIZED, NODEPOOL, REGISTERED, WELL_KNOWN, nodeclass_label
from tenure.model.facts import NodePoolFact
from tenure.model.requirements import Requirements

INTERNAL_LABELS = (REGISTERED, INITIALIZED)
"""Tenure sets them on each node, so that DaemonSets can select them."""


def template_labels(pool: NodePoolFact) -> dict[str, str]:
    """Labels of the template, and those that Tenure adds for the NodePool and its NodeClass."""
    own = {NODEPOOL: pool.name, nodeclass_label(pool.node_class_group, pool.node_class_kind): pool.node_class}
    return {**pool.template_labels, **own}


def nodepool_labels(pool: NodePoolFact) -> dict[str, str]:
    """Labels of every node of the pool: its template's labels, and requirements with a single value."""
    fixed = {
        one.key: one.values[0]
        for one in pool.requirements
        if one.operator == "In" and len(one.values) == 1 and one.key not in WELL_KNOWN
    }
    return {**fixed, **template_labels(pool)}


def nodepool_requirements(pool: NodePoolFact) -> Requirements:
    """Requirements that every node of the pool satisfies, with internal labels. Raises RequirementError."""
    labels = {**template_labels(pool), **dict.fromkeys(INTERNAL_LABELS, "true")}
    return Requirements.from_expressions(pool.requirements).intersection(Requirements.from_labels(labels))


def without_internal_labels(requirements: Requirements) -> Requirements:
    """Requirements of the NodeClaim, without those that only DaemonSets need (reference 2.8)."""
    return requirements.without(*INTERNAL_LABELS)
