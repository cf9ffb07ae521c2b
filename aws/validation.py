"""What is wrong with an EC2NodeClass by itself, in Karpenter's order (reference 7.2) and with its reasons.

Pure. The schema has caught what the API server can; this is the rest. `node_class.py` adds what depends on others, and
`dry_run.py` what only EC2 knows.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aws.capacity import Machine
from aws.cel import ExpressionError, expression
from aws.cluster import ClusterFacts
from aws.families import AL2023, Family
from aws.kubelet_computed import ComputedKubelet
from aws.kubelet_rules import expressions_of, why_malformed, why_unsupported
from aws.type_info import TypeInfo
from aws.user_data_check import why_unreadable
from model import labels
from model.kinds import EC2NodeClass

Problem = tuple[str, str]
"""Reason and message."""

_TAG_KEYS = frozenset({labels.TAG_EKS_CLUSTER_NAME, labels.TAG_NODEPOOL, labels.TAG_NODECLAIM, labels.TAG_NODECLASS})


def why_invalid(
    node_class: EC2NodeClass, family: Family, cluster: ClusterFacts, *, expressions: bool = False
) -> Problem | None:
    """The first thing that is wrong with what the class says; `expressions`: the gate NodeClassCEL is on."""
    raw = node_class.spec.kubelet or {}
    return (
        _range(family, cluster)
        or _led(labels.INVALID_KUBELET_CONFIGURATION, why_malformed(raw))
        or (_unreadable(raw) if expressions else _disabled(raw))
        or _led(labels.UNSUPPORTED_KUBELET_CONFIGURATION, why_unsupported(raw, family))
        or _user_data(node_class, family)
    )


def why_not_evaluated(
    computed: ComputedKubelet, types: Mapping[str, TypeInfo], machine_of: Callable[[TypeInfo], Machine]
) -> Problem | None:
    """Expressions must have a value on every type that is known, not only on those that pools ask for."""
    failed: list[str] = []
    first = ""
    for name in sorted(types) if computed else ():
        try:
            computed.filled(machine_of(types[name]))
        except ExpressionError as error:
            failed, first = [*failed, name], first or str(error)
    if not failed:
        return None
    more = f" (and for {len(failed) - 1} types more)" if len(failed) > 1 else ""
    return labels.KUBELET_EXPRESSION_EVALUATION_FAILED, f"spec.kubelet.{first}{more}"


def why_tags(node_class: EC2NodeClass) -> Problem | None:
    """Tags that the controller finds its own things by."""
    for key in sorted(node_class.spec.tags):
        if key in _TAG_KEYS or key.startswith(labels.TAG_CLUSTER_PREFIX.rstrip("/")):
            return labels.TAG_VALIDATION_FAILED, f"spec.tags: {key} is set by the controller; remove it"
    return None


def _range(family: Family, cluster: ClusterFacts) -> Problem | None:
    if family is not AL2023 or cluster.cidr:
        return None
    return labels.CLUSTER_CIDR_RESOLUTION_FAILED, "the range of the cluster's Service addresses is not known"


def _disabled(raw: Mapping[str, Any]) -> Problem | None:
    for field, key, _ in expressions_of(raw):
        told = f"spec.kubelet.{_name(field, key)} is an expression: write an amount, or set AWS_FEATURE_GATES"
        return labels.KUBELET_EXPRESSIONS_DISABLED, f"{told}=NodeClassCEL=true"
    return None


def _unreadable(raw: Mapping[str, Any]) -> Problem | None:
    for field, key, text in expressions_of(raw):
        try:
            expression(text)
        except ExpressionError as error:
            return labels.KUBELET_EXPRESSION_INVALID, f"spec.kubelet.{_name(field, key)}: {error}"
    return None


def _user_data(node_class: EC2NodeClass, family: Family) -> Problem | None:
    problem = why_unreadable(node_class.spec.user_data or "", family)
    return (labels.INVALID_USER_DATA, problem) if problem else None


def _led(reason: str, problem: str) -> Problem | None:
    return (reason, f"spec.kubelet: {problem}") if problem else None


def _name(field: str, key: str) -> str:
    return f"{field}.{key}" if key else field
