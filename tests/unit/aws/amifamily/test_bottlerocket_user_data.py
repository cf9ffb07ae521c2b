"""Bottlerocket settings: generated ones, custom ones, and invalid types."""

import re

import pytest

from tenure.aws.amifamily.user_data import UserDataError
from tests.unit.aws.amifamily.user_data_builders import (
    KUBELET,
    rendered,
    settings,
)


def test_bottlerocket_settings_are_complete() -> None:
    assert settings(kubelet=KUBELET) == {
        "kubernetes": {
            "api-server": "https://demo.invalid",
            "cluster-name": "demo",
            "cluster-certificate": "Q0E=",
            "cluster-dns-ip": "10.0.0.10",
            "max-pods": 29,
            "node-labels": {
                "karpenter.k8s.aws/ec2nodeclass": "default",
                "karpenter.sh/capacity-type": "spot",
                "karpenter.sh/do-not-sync-taints": "true",
                "karpenter.sh/nodepool": "general",
                "team": "a",
            },
            "node-taints": {
                "team": ["a:NoSchedule", ":NoExecute"],
                "cni": [":NoExecute"],
                "karpenter.sh/unregistered": [":NoExecute"],
            },
            "system-reserved": {"cpu": "100m", "memory": "200Mi"},
            "kube-reserved": {"cpu": "50m"},
            "eviction-hard": {"memory.available": "5%"},
            "eviction-soft": {"nodefs.available": "10%"},
            "eviction-soft-grace-period": {"nodefs.available": "1m"},
            "eviction-max-pod-grace-period": 60,
            "image-gc-high-threshold-percent": "85",
            "image-gc-low-threshold-percent": "80",
            "cpu-cfs-quota-enforced": False,
        }
    }


def test_bottlerocket_keeps_custom_settings_and_replaces_reserved_ones() -> None:
    own = """
        [settings.kubernetes]
        unknown-setting = "x"
        api-server = "x"
        cloud-provider = "external"
        cluster-name = "x"
        max-pods = 9999
        [settings.kubernetes.eviction-hard]
        "memory.available" = "12%"
        [settings.kubernetes.labels]
        "not" = "known"
        [settings.kubernetes.node-labels]
        "custom" = "1"
        "team" = "overridden"
        [settings.kubernetes.node-taints]
        "mine" = ["a:NoSchedule"]
        [settings.kubernetes.static-pods.one]
        enabled = true
        [settings.network]
        hosts = [["10.0.0.0", ["a.example.com", "b.example.com"]]]
        [settings.bootstrap-commands.mine]
        commands = [["ls"]]
        mode = "once"
        essential = false
    """
    found = settings(userData=own, instanceStorePolicy="RAID0")
    kubernetes = found["kubernetes"]
    assert found["network"] == {"hosts": [["10.0.0.0", ["a.example.com", "b.example.com"]]]}
    assert set(found["bootstrap-commands"]) == {"mine", "000-mount-instance-storage"}
    assert not {"unknown-setting", "labels"} & kubernetes.keys()
    assert kubernetes["cloud-provider"] == "external"
    assert kubernetes["static-pods"] == {"one": {"enabled": True}}
    assert kubernetes["eviction-hard"] == {"memory.available": "12%"}
    assert (kubernetes["api-server"], kubernetes["max-pods"]) == ("https://demo.invalid", 29)
    assert kubernetes["node-labels"]["custom"] == "1"
    assert kubernetes["node-labels"]["team"] == "a"
    assert set(kubernetes["node-taints"]) == {"team", "cni", "karpenter.sh/unregistered"}


@pytest.mark.parametrize(
    ("terms", "names", "passes_directories"),
    [
        ([{"alias": "bottlerocket@latest"}], [], False),
        ([{"alias": "bottlerocket@v1.46.0"}], [], False),
        ([{"alias": "bottlerocket@1.45.9"}], [], True),
        ([{"alias": "bottlerocket@2.0.0-abcd"}], [], False),
        ([{"id": "ami-1"}], ["bottlerocket-aws-k8s-1.34-x86_64-v1.46.0-431fe75a"], False),
        ([{"id": "ami-1"}], ["bottlerocket-aws-k8s-1.34-x86_64-v1.9.0-431fe75a"], True),
        ([{"id": "ami-1"}], ["of-my-own"], True),
        ([{"id": "ami-1"}], ["bottlerocket-x86_64-v1.50.0-1", "of-my-own"], True),
        ([{"id": "ami-1"}], [], True),
    ],
)
def test_bottlerocket_gets_directories_unless_its_version_has_them(
    terms: list[dict[str, str]], names: list[str], passes_directories: bool
) -> None:
    status = {"amis": [{"id": f"ami-{n}", "name": name, "requirements": []} for n, name in enumerate(names)]}
    found = settings(amiSelectorTerms=terms, amiFamily="Bottlerocket", instanceStorePolicy="RAID0", status=status)
    mount = found["bootstrap-commands"]["000-mount-instance-storage"]
    assert mount["essential"] is True
    init, bind = mount["commands"]
    assert init == ["apiclient", "ephemeral-storage", "init"]
    assert bind[:3] == ["apiclient", "ephemeral-storage", "bind"]
    assert bind[3:] == (
        ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"] if passes_directories else []
    )


@pytest.mark.parametrize(
    ("own", "field"),
    [
        ("settings = 1", "settings"),
        ("[settings]\nkubernetes = 1", "settings.kubernetes"),
        ('[settings.kubernetes]\nnode-labels = ["a"]', "settings.kubernetes.node-labels"),
    ],
)
def test_invalid_toml_type_is_reported_with_its_field(own: str, field: str) -> None:
    with pytest.raises(UserDataError, match=re.escape(f"[{field}]")):
        rendered("Bottlerocket", userData=own)
