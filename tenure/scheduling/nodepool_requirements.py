"""Labels and requirements of the nodes of a NodePool, without its instance types."""

from tenure.apis.labels import INITIALIZED, NODEPOOL, REGISTERED, WELL_KNOWN, nodeclass_label
from tenure.model.facts import NodePoolFact, PodFact
from tenure.model.requirements import RequirementError, Requirements
from tenure.scheduling.pods import constraints_of, node_requirement_alternatives
from tenure.scheduling.taints import first_untolerated

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


def may_run_on(pod: PodFact, pool: NodePoolFact) -> bool:
    """Whether the labels and taints of the pool's nodes allow the pod. True if requirements cannot be read."""
    if first_untolerated(pod.tolerations, pool.taints, tolerate_preferences=True) is not None:
        return False
    try:
        offered = nodepool_requirements(pool)
        return any(offered.is_compatible(required) for required in node_requirement_alternatives(constraints_of(pod)))
    except RequirementError:
        return True
