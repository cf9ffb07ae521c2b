"""Validation of spec.kubelet: unknown fields, wrong types and impossible values are reported with their field."""

from typing import Any

import pytest

from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.kubelet.config import Kubelet
from tenure.aws.kubelet.validation import why_malformed, why_unsupported

FULL_CONFIG: dict[str, Any] = {
    "clusterDNS": ["10.0.1.100"],
    "containerLogMaxSize": "50Mi",
    "containerLogMaxFiles": 3,
    "cpuCFSQuota": True,
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "defaultPodSysctls": {"net.ipv4.ip_forward": "1"},
    "evictionHard": {"memory.available": "5%", "nodefs.available": "10%", "nodefs.inodesFree": "10%"},
    "evictionSoft": {"memory.available": "500Mi", "imagefs.available": "15%", "pid.available": "5%"},
    "evictionSoftGracePeriod": {"memory.available": "1m", "imagefs.available": "1m30s", "pid.available": "2m"},
    "evictionMaxPodGracePeriod": 60,
    "evictionMinimumReclaim": {"nodefs.available": "500Mi"},
    "featureGates": {"NodeSwap": True},
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "imageMinimumGCAge": "2m",
    "kubeReserved": {"cpu": "200m", "memory": "100Mi", "ephemeral-storage": "3Gi", "pid": "100"},
    "systemReserved": {"cpu": "100m", "memory": "100Mi"},
    "logging": {"verbosity": 4, "flushFrequency": "5s", "options": {"json": {"infoBufferSize": "0"}}},
    "maxPods": 20,
    "memorySwap": {"swapBehavior": "LimitedSwap"},
    "memoryThrottlingFactor": 0.9,
    "podPidsLimit": 4096,
    "podsPerCore": 2,
    "registryPullQPS": 10,
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "serializeImagePulls": False,
    "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 60}],
    "singleProcessOOMKill": None,
    "topologyManagerPolicy": "single-numa-node",
    "tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"],
    "userNamespaces": {"idsPerPod": 65536},
}


def test_full_configuration_is_valid() -> None:
    assert why_malformed(FULL_CONFIG) == ""


@pytest.mark.parametrize("key", sorted(FULL_CONFIG))
def test_wrong_type_is_reported_with_its_field(key: str) -> None:
    other: Any = [{"a": 1}] if not isinstance(FULL_CONFIG[key], list) else "text"
    problem = why_malformed({key: other})
    assert problem.startswith(key), problem


@pytest.mark.parametrize(
    ("kubelet", "fragments"),
    [
        ({"maxPod": 10}, ("maxPod is not a field", "did you mean maxPods?")),
        ({"MaxPods": 10}, ("MaxPods is not a field", "did you mean maxPods?")),
        ({"clusterDns": ["10.0.0.1"]}, ("clusterDns is not a field", "did you mean clusterDNS?")),
        ({"frobnicate": 1}, ("frobnicate is not a field",)),
        ({"draManagerReconcilePeriod": "1m"}, ("draManagerReconcilePeriod is not a field",)),
        ({"logging": {"verbose": 1}}, ("logging.verbose is not a field", "did you mean verbosity?")),
        ({"reservedMemory": [{"numa": 0}]}, ("reservedMemory[0].numa is not a field",)),
        ({"serializeImagePulls": "false"}, ("serializeImagePulls", "true or false", "'false'")),
        ({"podsPerCore": "2"}, ("podsPerCore", "whole number", "'2'")),
        ({"podsPerCore": 2.5}, ("podsPerCore", "whole number", "2.5")),
        ({"podsPerCore": True}, ("podsPerCore", "whole number", "True")),
        ({"podsPerCore": -1}, ("podsPerCore", "from 0", "-1")),
        ({"maxPods": -1}, ("maxPods", "from 0", "-1")),
        ({"maxPods": 2**31}, ("maxPods", "2147483647")),
        ({"maxPods": 10.5}, ("maxPods", "whole number")),
        ({"evictionMaxPodGracePeriod": -1}, ("evictionMaxPodGracePeriod", "from 0", "-1")),
        ({"imageMinimumGCAge": "2 minutes"}, ("imageMinimumGCAge", "30s or 5m")),
        ({"imageMinimumGCAge": 120}, ("imageMinimumGCAge", "30s or 5m")),
        ({"clusterDNS": "10.0.0.1"}, ("clusterDNS", "list")),
        ({"clusterDNS": [10]}, ("clusterDNS[0]", "text")),
        ({"kubeReserved": {"cpu": 1}}, ("kubeReserved.cpu", "in quotes")),
        ({"kubeReserved": ["cpu"]}, ("kubeReserved", "map")),
        ({"featureGates": {"NodeSwap": "on"}}, ("featureGates.NodeSwap", "true or false")),
        ({"registerWithTaints": []}, ("registerWithTaints", "spec.template.spec.taints")),
        ({"kubeReserved": {"gpu": "1"}}, ("kubeReserved", "'gpu'", "cpu, ephemeral-storage, memory, pid")),
        ({"systemReserved": {"cpu": "-1"}}, ("systemReserved.cpu", "negative")),
        ({"evictionHard": {"memory": "1Gi"}}, ("evictionHard", "'memory'", "memory.available")),
        ({"evictionHard": {"memory.available": "101%"}}, ("evictionHard.memory.available", "101%")),
        ({"evictionHard": {"memory.available": "٣%"}}, ("evictionHard.memory.available", "٣%")),
        ({"evictionHard": {"memory.available": "-5%"}}, ("evictionHard.memory.available", "-5%")),
        (
            {"evictionMinimumReclaim": {"memory.free": "1Gi"}},
            ("evictionMinimumReclaim: unknown key 'memory.free'", "memory.available"),
        ),
        ({"evictionMinimumReclaim": {"memory.available": "-1Gi"}}, ("evictionMinimumReclaim.memory.available", "-1Gi")),
        ({"evictionHard": {"memory.available": "5 %"}}, ("evictionHard.memory.available", "5 %")),
        ({"evictionHard": {"memory.available": "1_0%"}}, ("evictionHard.memory.available", "1_0%")),
        ({"evictionHard": {"memory.available": "-1Gi"}}, ("evictionHard.memory.available", "-1Gi")),
        ({"evictionHard": {"memory.available": "some"}}, ("evictionHard.memory.available", "some")),
        ({"evictionHard": {"memory.available": 5}}, ("evictionHard.memory.available", "in quotes")),
        ({"evictionSoft": {"memory.available": "5%"}}, ("evictionSoftGracePeriod", "memory.available", "same keys")),
        ({"evictionSoftGracePeriod": {"memory.available": "1m"}}, ("evictionSoft", "same keys")),
        (
            {"evictionSoft": {"pid.available": "5%"}, "evictionSoftGracePeriod": {"pid.available": "-1m"}},
            ("evictionSoftGracePeriod.pid.available", "-1m"),
        ),
        (
            {"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "soon"}},
            ("evictionSoftGracePeriod.memory.available", "soon"),
        ),
        ({"maxPods": True}, ("maxPods", "whole number", "True")),
        ({"imageGCHighThresholdPercent": 101}, ("imageGCHighThresholdPercent", "101")),
        ({"imageGCHighThresholdPercent": -10}, ("imageGCHighThresholdPercent", "-10")),
        ({"imageGCLowThresholdPercent": -10}, ("imageGCLowThresholdPercent", "-10")),
        (
            {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 60},
            ("imageGCHighThresholdPercent (50)", "imageGCLowThresholdPercent (60)"),
        ),
        (
            {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50},
            ("imageGCHighThresholdPercent (50)", "greater"),
        ),
    ],
)
def test_invalid_configuration_is_reported_with_its_field(kubelet: dict[str, Any], fragments: tuple[str, ...]) -> None:
    problem = why_malformed(kubelet)
    assert problem and all(fragment in problem for fragment in fragments), problem


@pytest.mark.parametrize(
    "kubelet",
    [
        {},
        {"maxPods": "vcpus * 10"},
        {"maxPods": 0, "podsPerCore": 0, "evictionMaxPodGracePeriod": 0},
        {"kubeReserved": {"cpu": "vcpus * 30"}},
        {"evictionHard": {"memory.available": "0%", "nodefs.available": "100%", "pid.available": "0"}},
        {"evictionHard": {"memory.available": "+5.%", "nodefs.available": ".5%", "pid.available": "1e1%"}},
        {"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 0},
        {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"},
        {"maxPods": None},
    ],
)
def test_plausible_configuration_is_valid(kubelet: dict[str, Any]) -> None:
    assert why_malformed(kubelet) == ""


def test_invalid_values_are_ignored_for_capacity() -> None:
    invalid = {"kubeReserved": {"cpu": "-1", "memory": "vcpus * 2"}, "maxPods": -1, "cpuCFSQuota": "no", "other": 1}
    invalid |= {"clusterDNS": 5}
    assert Kubelet.of(invalid) == Kubelet.of({}) == Kubelet()


NODE_CONFIG_ONLY = {"serializeImagePulls": False}
MANY_DNS = {"clusterDNS": ["10.0.0.1", "10.0.0.2"]}


@pytest.mark.parametrize(
    ("family", "kubelet", "expected"),
    [
        ("AL2", NODE_CONFIG_ONLY, "serializeImagePulls"),
        ("Bottlerocket", NODE_CONFIG_ONLY, "serializeImagePulls"),
        ("Windows2022", NODE_CONFIG_ONLY, "serializeImagePulls"),
        ("AL2023", NODE_CONFIG_ONLY, ""),
        ("Custom", NODE_CONFIG_ONLY, ""),
        ("Bottlerocket", {"podsPerCore": 2}, "podsPerCore"),
        ("AL2", {"podsPerCore": 2}, ""),
        ("Windows2019", {"podsPerCore": 2}, ""),
        ("AL2", MANY_DNS, "clusterDNS"),
        ("Bottlerocket", MANY_DNS, "clusterDNS"),
        ("Windows2025", MANY_DNS, "clusterDNS"),
        ("AL2023", MANY_DNS, ""),
        ("Custom", MANY_DNS, ""),
        ("Bottlerocket", {"maxPods": 10, "clusterDNS": ["10.0.0.1"]}, ""),
    ],
)
def test_settings_unsupported_by_family_are_reported(family: str, kubelet: dict[str, Any], expected: str) -> None:
    problem = why_unsupported(kubelet, FAMILIES[family])
    assert bool(problem) == bool(expected)
    assert expected in problem
