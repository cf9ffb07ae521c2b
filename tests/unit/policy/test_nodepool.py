"""What can be wrong with a NodePool, and what its NodeClass says of it."""

from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.policy.nodepool import decide_nodeclass_ready, reject_static, validate_nodepool


def pool(labels: dict[str, str] | None = None, **spec: Any) -> NodePool:
    template = {"metadata": {"labels": labels or {}}, "spec": spec}
    return NodePool.model_validate({"metadata": {"name": "default"}, "spec": {"template": template}})


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"requirements": [{"key": key, "operator": operator, "values": list(values)}]}


TAINT = {"key": "team", "effect": "NoSchedule", "value": "ml"}


@pytest.mark.parametrize(
    "good",
    [
        pool(),
        pool({"team": "ml"}),
        pool(**needs("karpenter.sh/capacity-type", "In", "spot", "on-demand")),
        pool(**needs("karpenter.sh/capacity-type", "In", "spot", "unheard-of")),
        pool(**needs("kubernetes.io/arch", "NotIn", "arm64")),
        pool(**needs("node.kubernetes.io/instance-type", "In", "m5.large")),
        pool(**needs("team", "Exists")),
        pool(taints=[TAINT], startupTaints=[{**TAINT, "effect": "NoExecute"}]),
    ],
)
def test_a_good_pool_has_no_errors(good: NodePool) -> None:
    assert validate_nodepool(good) == ()


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (pool({"karpenter.sh/nodepool": "other"}), "karpenter.sh/nodepool"),
        (pool({"karpenter.sh/custom": "x"}), "choose a domain of your own"),
        (pool({"kubernetes.io/hostname": "x"}), "kubernetes.io/hostname"),
        (pool(**needs("karpenter.sh/nodepool", "In", "other")), "leave it out"),
        (pool(**needs("kubernetes.io/hostname", "In", "a")), "leave it out"),
        (pool(**needs("karpenter.sh/capacity-type", "In", "cheap")), "never holds; write ['on-demand', 'reserved', "),
        (pool(taints=[TAINT, {**TAINT, "value": "web"}]), "team:NoSchedule stands twice"),
        (pool(taints=[TAINT], startupTaints=[TAINT]), "keep one"),
    ],
)
def test_each_error_names_the_field_and_what_to_write(bad: NodePool, expected: str) -> None:
    errors = validate_nodepool(bad)
    assert len(errors) == 1 and expected in errors[0] and errors[0].startswith("spec.template.")


def test_all_errors_are_told_together() -> None:
    bad = pool({"karpenter.sh/custom": "x"}, taints=[TAINT, TAINT], **needs("kubernetes.io/hostname", "In", "a"))
    assert len(validate_nodepool(bad)) == 3


def node_class(*conditions: dict[str, str], deleting: bool = False) -> EC2NodeClass:
    meta = {"name": "default", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})}
    return EC2NodeClass.model_validate({"metadata": meta, "status": {"conditions": list(conditions)}})


READY = {"type": "Ready", "status": "True", "reason": "Ready"}
FALSE = {"type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": "SubnetsReady=False"}


@pytest.mark.parametrize(
    ("found", "status", "reason", "expected"),
    [
        (None, "False", "NodeClassNotFound", "create it or name another"),
        (node_class(READY, deleting=True), "False", "NodeClassTerminating", "is being deleted"),
        (node_class(), "Unknown", "NodeClassReadinessUnknown", "not resolved yet"),
        (node_class({**READY, "status": "Unknown"}), "Unknown", "NodeClassReadinessUnknown", "not resolved yet"),
        (node_class(FALSE), "False", "UnhealthyDependents", "SubnetsReady=False"),
        (node_class(READY), "True", "", ""),
    ],
)
def test_whether_the_node_class_is_ready(found: EC2NodeClass | None, status: str, reason: str, expected: str) -> None:
    result = decide_nodeclass_ready("default", found)
    assert result[:2] == (status, reason) and expected in result[2]


def test_a_static_pool_without_its_gate_is_told_what_to_write() -> None:
    static = NodePool.model_validate({"spec": {"replicas": 0}})
    (error,) = reject_static(static)
    assert error.startswith("spec.replicas: 0: ") and "FEATURE_GATES=StaticCapacity=true" in error
    assert reject_static(NodePool()) == ()
