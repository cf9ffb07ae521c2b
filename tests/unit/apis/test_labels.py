"""Label and taint rules that planning and validation share."""

import pytest

from tenure.apis import labels, resources
from tenure.apis.meta import Taint


@pytest.mark.parametrize(
    ("key", "restricted"),
    (
        ("team", False),
        ("example.com/team", False),
        ("kubernetes.io/custom", False),
        ("k8s.io/custom", False),
        ("kops.k8s.io/instancegroup", False),
        ("node-restriction.kubernetes.io/a", False),
        ("mykarpenter.sh/a", False),
        ("karpenter.sh/nodepool", False),
        ("karpenter.sh/capacity-type", False),
        ("karpenter.k8s.aws/instance-family", False),
        ("topology.kubernetes.io/zone", False),
        ("karpenter.sh/registered", True),
        ("karpenter.sh/custom", True),
        ("sub.karpenter.sh/custom", True),
        ("karpenter.k8s.aws/custom", True),
        ("karpenter.k8s.aws/ec2nodeclass", True),
        ("kubernetes.io/hostname", True),
    ),
)
def test_restricted_labels(key: str, restricted: bool) -> None:
    assert labels.is_restricted(key) is restricted


def test_well_known_and_provider_labels_are_injected_at_launch() -> None:
    assert labels.is_injected_elsewhere("topology.kubernetes.io/zone")
    assert labels.is_injected_elsewhere("karpenter.sh/custom")
    assert not labels.is_injected_elsewhere("example.com/team")


def test_deprecated_label_keys_are_normalized() -> None:
    assert labels.normalize_label_key("beta.kubernetes.io/arch") == "kubernetes.io/arch"
    assert labels.normalize_label_key("topology.ebs.csi.aws.com/zone") == "topology.kubernetes.io/zone"
    assert labels.normalize_label_key("team") == "team"


def test_nodeclass_label_is_that_of_karpenter() -> None:
    assert labels.nodeclass_label("karpenter.k8s.aws", "EC2NodeClass") == labels.NODECLASS


@pytest.mark.parametrize(
    ("taint", "ephemeral"),
    (
        (Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"), True),
        (Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"), True),
        (Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule"), True),
        (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"), False),
        (Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule"), True),
        (Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="false", effect="NoSchedule"), False),
        (Taint(key="karpenter.sh/unregistered", effect="NoExecute"), True),
        (Taint(key="readiness.k8s.io/gpu", value="x", effect="NoExecute"), True),
        (Taint(key="node.cilium.io/agent-not-ready", effect="NoExecute"), False),
        (Taint(key="karpenter.sh/disrupted", effect="NoSchedule"), False),
    ),
    ids=lambda one: f"{one.key}:{one.effect}" if isinstance(one, Taint) else str(one),
)
def test_ephemeral_taints(taint: Taint, ephemeral: bool) -> None:
    assert resources.is_known_ephemeral(taint.key, taint.value, taint.effect) is ephemeral


def test_merge_keeps_existing_taints() -> None:
    existing = Taint(key="a", value="old", effect="NoSchedule")
    added = Taint(key="a", value="new", effect="NoSchedule"), Taint(key="a", effect="NoExecute")
    assert resources.merge([existing], added) == (existing, added[1])
