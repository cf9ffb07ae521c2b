"""Static validation of an EC2NodeClass: Karpenter's reasons, and the valid form in the message."""

from typing import Any

import pytest

from tenure.apis.feature_gates import FeatureGate
from tenure.apis.labels import NVIDIA_CONSUMABLE_CAPACITY
from tenure.aws.amifamily.families import FAMILIES, AliasError, parameters_of
from tenure.aws.nodeclass.spec_validation import why_tags
from tenure.aws.nodeclass.validation import why_invalid
from tests.support.aws.builders import CLUSTER, SETTINGS, build_nodeclass


@pytest.mark.parametrize(
    ("kubelet", "field"),
    [
        ({"maxPods": "max_pods * 2"}, "spec.kubelet.maxPods"),
        ({"kubeReserved": {"cpu": "vcpus * 10"}}, "spec.kubelet.kubeReserved.cpu"),
    ],
)
def test_disabled_expression_is_reported_with_its_field_and_gate(kubelet: dict[str, Any], field: str) -> None:
    reason, message = why_invalid(build_nodeclass(kubelet=kubelet), FAMILIES["AL2023"], CLUSTER, SETTINGS) or ("", "")
    assert reason == "KubeletExpressionsDisabled"
    assert message.startswith(f"{field}: ") and "NodeClassCEL" in message


@pytest.mark.parametrize(
    ("value", "gate", "reason"),
    [
        ("", False, ""),
        ("disabled", False, ""),
        ("memory", True, ""),
        ("unlimited", True, ""),
        ("4", True, ""),
        ("+04", True, ""),
        ("9223372036854775807", True, ""),
        ("memory", False, "DRADisabled"),
        ("4", False, "DRADisabled"),
        ("0", True, "NVIDIAConsumableCapacityInvalid"),
        ("-1", True, "NVIDIAConsumableCapacityInvalid"),
        ("4.0", True, "NVIDIAConsumableCapacityInvalid"),
        ("9223372036854775808", True, "NVIDIAConsumableCapacityInvalid"),
        ("Memory", False, "NVIDIAConsumableCapacityInvalid"),
        ("9" * 5000, False, "NVIDIAConsumableCapacityInvalid"),
    ],
)
def test_shared_gpus_need_a_valid_mode_and_the_gate(value: str, gate: bool, reason: str) -> None:
    annotations = {NVIDIA_CONSUMABLE_CAPACITY: value}
    node_class = build_nodeclass()
    metadata = node_class.metadata.model_copy(update={"annotations": annotations})
    settings = SETTINGS.model_copy(update={"feature_gates": {FeatureGate.DRA_NVIDIA_GPU: gate}})
    shared = node_class.model_copy(update={"metadata": metadata})
    found, message = why_invalid(shared, FAMILIES["AL2023"], CLUSTER, settings) or ("", "")
    assert found == reason
    assert bool(message) == bool(reason) and len(message) < 300
    assert not reason or message.startswith(f"metadata.annotations[{NVIDIA_CONSUMABLE_CAPACITY}]: ")


def test_bottlerocket_needs_no_service_cidr() -> None:
    without = CLUSTER.model_copy(update={"cidr": ""})
    assert why_invalid(build_nodeclass(), FAMILIES["Bottlerocket"], without, SETTINGS) is None


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("al2@latest", "al2023@latest"),
        ("al2023@a@b", "family@version"),
        ("al2023", "family@version"),
        ("ubuntu@latest", "family@version"),
        ("windows2022@v1", "windows2022@latest"),
        ("windows2025@latest", "1.35"),
    ],
)
def test_unsupported_alias_names_alternative(alias: str, expected: str) -> None:
    with pytest.raises(AliasError, match=expected):
        parameters_of(alias, "1.34", 34)


@pytest.mark.parametrize(
    ("keys", "named", "problem"),
    [
        (42, False, ""),
        (43, False, "spec.tags: 43 tags, expected at most 42: EC2 allows 50 for an instance, and Tenure adds 8"),
        (43, True, ""),
        (44, True, "spec.tags: 44 tags, expected at most 43: EC2 allows 50 for an instance, and Tenure adds 7"),
    ],
)
def test_tags_of_a_launch_fit_into_the_limit_of_ec2(keys: int, named: bool, problem: str) -> None:
    """With the tags of a NodeClaim that launches individually, and `Name`, which is added when the Node registers."""
    tags = {f"key-{number}": "" for number in range(keys - named)} | ({"Name": "mine"} if named else {})
    found = why_tags(build_nodeclass(tags=tags), SETTINGS)
    assert (found[1] if found else "") == problem
