"""Labels and requirements of the nodes of a NodePool, without its instance types."""

from typing import Final

from tenure.apis.crd_schema import is_nodeclaim_label_key
from tenure.apis.labels import HOSTNAME, INITIALIZED, NODEPOOL, REGISTERED, WELL_KNOWN, nodeclass_label
from tenure.model.facts import Expression, NodePoolFact
from tenure.model.requirements import GTE, Requirements

INTERNAL_LABELS: Final = {REGISTERED: "true", INITIALIZED: "true", HOSTNAME: "<new node>"}
"""Labels that every node has, so that pods and DaemonSets can select them. The hostname of a new node is a placeholder
that no label can have."""
_MAX_REQUIREMENTS: Final = 100
"""Limit of the CustomResourceDefinition of NodeClaims."""


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
    labels = {**template_labels(pool), **INTERNAL_LABELS}
    return Requirements.from_expressions(pool.requirements).intersection(Requirements.from_labels(labels))


def nodeclaim_expressions(requirements: Requirements, *others: Expression) -> tuple[Expression, ...]:
    """The requirements and `others` in a form that the CustomResourceDefinition of NodeClaims accepts; sorted. They
    allow the same nodes.

    Left out are restricted labels, such as the hostname: a requirement for one allows its absence, or a label of the
    NodeClaim satisfies it. If there are too many requirements, all custom labels are left out for the same reason.
    """
    # The intersection turns bounds that no value satisfies into DoesNotExist.
    accepted = [one.intersection(one) for key, one in requirements.items() if is_nodeclaim_label_key(key)]
    found = Requirements(accepted).expressions()
    if len(found) + len(others) > _MAX_REQUIREMENTS:
        found = Requirements(one for one in accepted if one.key in WELL_KNOWN or one.min_values).expressions()
    return tuple(sorted((*map(_without_negative_bound, found), *others), key=lambda one: (one.key, one.operator)))


def _without_negative_bound(one: Expression) -> Expression:
    """A label value cannot be negative, so that a negative lower bound means any whole number."""
    return one.model_copy(update={"values": ("0",)}) if one.operator == GTE and int(one.values[0]) < 0 else one
