"""Problems of an EC2NodeClass that the object alone shows, with Karpenter's checks, order and reasons (reference 7.2).

They need no call to AWS. The CRD's schema covers the checks of the API server.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.amifamily.families import Family
from tenure.aws.amifamily.user_data.config import why_too_large
from tenure.aws.amifamily.user_data.validation import why_unreadable
from tenure.aws.instancetype.gpu_sharing import shares_gpus, why_sharing_invalid
from tenure.aws.kubelet.expressions import ExpressionError, compile_expression
from tenure.aws.kubelet.validation import expressions_of, why_malformed, why_unsupported
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import instance_tags, node_tags

Problem = tuple[str, str]
"""Reason and message."""

_TAG_KEYS = frozenset({labels.TAG_EKS_CLUSTER_NAME, labels.TAG_NODEPOOL, labels.TAG_NODECLAIM, labels.TAG_NODECLASS})

_MAX_TAGS: Final = 50
_ANY: Final = "any"
"""A value, where only the keys count."""


def find_spec_problem(
    node_class: EC2NodeClass, family: Family, is_enabled: Callable[[FeatureGate], bool]
) -> Problem | None:
    """The first problem of kubelet settings, shared GPUs and user data."""
    raw = node_class.spec.kubelet or {}
    expressions = is_enabled(FeatureGate.NODECLASS_CEL)
    return (
        _kubelet_problem(labels.INVALID_KUBELET_CONFIGURATION, why_malformed(raw))
        or (_why_expression_invalid(raw) if expressions else _why_expressions_disabled(raw))
        or _kubelet_problem(labels.UNSUPPORTED_KUBELET_CONFIGURATION, why_unsupported(raw, family))
        or _gpu_sharing_problem(node_class, is_enabled)
        or _user_data(node_class, family)
    )


def why_tags(node_class: EC2NodeClass, settings: AwsSettings) -> Problem | None:
    """Reject tags that the controller uses to find its resources, and more tags than EC2 allows for an instance.

    An instance has the tags of its launch, and `Name` once its Node has registered.
    """
    for key in sorted(node_class.spec.tags):
        if key in _TAG_KEYS or key.startswith(labels.TAG_CLUSTER_PREFIX.rstrip("/")):
            return labels.TAG_VALIDATION_FAILED, f"spec.tags: {key} is set by the controller; remove it"
    launched = instance_tags(node_tags(settings, node_class, _ANY), _ANY, _ANY, nodeclaim=_ANY)
    added = {*launched, labels.TAG_NAME} - node_class.spec.tags.keys()
    most = _MAX_TAGS - len(added)
    if len(node_class.spec.tags) > most:
        message = f"spec.tags: {len(node_class.spec.tags)} tags, expected at most {most}"
        added_by = f"EC2 allows {_MAX_TAGS} for an instance, and Tenure adds {len(added)}"
        return labels.TAG_VALIDATION_FAILED, f"{message}: {added_by}"
    return None


def _why_expressions_disabled(raw: Mapping[str, Any]) -> Problem | None:
    for field, key, _ in expressions_of(raw):
        message = f"spec.kubelet.{_field_name(field, key)}: expressions are disabled, expected an amount"
        return labels.KUBELET_EXPRESSIONS_DISABLED, f"{message}; or set {FeatureGate.NODECLASS_CEL.example}"
    return None


def _why_expression_invalid(raw: Mapping[str, Any]) -> Problem | None:
    for field, key, text in expressions_of(raw):
        try:
            compile_expression(text)
        except ExpressionError as error:
            return labels.KUBELET_EXPRESSION_INVALID, f"spec.kubelet.{_field_name(field, key)}: {error}"
    return None


def _gpu_sharing_problem(node_class: EC2NodeClass, is_enabled: Callable[[FeatureGate], bool]) -> Problem | None:
    field = f"metadata.annotations[{labels.NVIDIA_CONSUMABLE_CAPACITY}]"
    if problem := why_sharing_invalid(node_class):
        return labels.NVIDIA_CONSUMABLE_CAPACITY_INVALID, f"{field}: {problem}"
    if shares_gpus(node_class) and not is_enabled(FeatureGate.DRA_NVIDIA_GPU):
        remedy = f"set {FeatureGate.DRA_NVIDIA_GPU.example}, or remove the annotation"
        return labels.DRA_DISABLED, f"{field}: shared GPUs need the gate {FeatureGate.DRA_NVIDIA_GPU}: {remedy}"
    return None


def _user_data(node_class: EC2NodeClass, family: Family) -> Problem | None:
    text = node_class.spec.user_data or ""
    if problem := why_too_large(text):
        return labels.USER_DATA_SIZE_LIMIT_EXCEEDED, problem
    problem = why_unreadable(text, family)
    return (labels.INVALID_USER_DATA, problem) if problem else None


def _kubelet_problem(reason: str, problem: str) -> Problem | None:
    return (reason, f"spec.kubelet: {problem}") if problem else None


def _field_name(field: str, key: str) -> str:
    return f"{field}.{key}" if key else field
