"""User data that the worker generates and instances parse, and capacity that is planned and reported.

The two sides were written independently from the documentation of EKS images. A difference is a bug in one of them.
"""

from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClassSpec
from tenure.apis.meta import Taint
from tenure.apis.quantity import parse_resources
from tenure.aws.amifamily.families import FAMILIES, Family
from tenure.aws.amifamily.user_data import Bootstrap, render
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.instancetype.capacity import Machine, capacity_of, overhead_of
from tenure.aws.instancetype.info import TypeInfo
from tenure.aws.kubelet.config import Kubelet
from tenure.aws.settings import AwsSettings
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.nodes.capacity import resources_of
from tenure.sandbox.nodes.instances import MachineType
from tenure.sandbox.nodes.userdata import Join, read_user_data

JOINING = [family for name, family in FAMILIES.items() if name != "Custom"]
CLUSTER = ClusterFacts(
    name="demo",
    version="1.34",
    endpoint="https://x.invalid",
    ca_bundle="Y2E=",
    cidr="10.100.0.0/16",
    dns="10.100.0.10",
)
LABELS = {"karpenter.sh/nodepool": "default", "team": "a", "karpenter.k8s.aws/instance-cpu": "4"}
TAINTS = (
    Taint(key="karpenter.sh/unregistered", effect="NoExecute"),
    Taint(key="team", value="a", effect="NoSchedule"),
)
KUBELETS: list[dict[str, Any]] = [
    {},
    {"maxPods": 20},
    {
        "kubeReserved": {"cpu": "200m", "memory": "1Gi", "ephemeral-storage": "3Gi"},
        "systemReserved": {"memory": "100Mi"},
    },
    {"evictionHard": {"memory.available": "5%", "nodefs.available": "12%"}},
    {"evictionHard": {"memory.available": "700Mi", "nodefs.available": "100%"}},
    {"evictionHard": {"memory.available": "100%"}},
]
TYPES = ("t3.micro", "m5.large", "c6a.48xlarge", "m7g.2xlarge", "g5.xlarge", "i4i.large")


def write_and_read(
    family: Family, raw: dict[str, Any], *, max_pods: int, custom: str = "", raid0: bool = False
) -> Join:
    bootstrap = Bootstrap(
        cluster=CLUSTER,
        labels=LABELS,
        taints=TAINTS,
        kubelet=Kubelet.of(raw),
        kubelet_map=raw,
        max_pods=max_pods,
        raid0=raid0,
        custom=custom,
    )
    join = read_user_data(render(family, bootstrap))
    assert join is not None
    return join


@pytest.mark.parametrize("raw", KUBELETS)
@pytest.mark.parametrize("family", JOINING, ids=lambda family: family.name)
def test_generated_user_data_is_parsed_for_every_family(family: Family, raw: dict[str, Any]) -> None:
    join = write_and_read(family, raw, max_pods=raw.get("maxPods", 29))
    assert join.cluster == "demo"
    assert join.labels == LABELS
    assert [taint.model_dump() for taint in join.taints] == [
        {"key": taint.key, "value": taint.value or "", "effect": taint.effect} for taint in TAINTS
    ]
    assert join.max_pods in (raw.get("maxPods", 29), None)
    assert join.kube_reserved == raw.get("kubeReserved", {})
    assert join.system_reserved == raw.get("systemReserved", {})
    assert join.eviction_hard == raw.get("evictionHard", {})
    assert (join.system == "windows") == family.name.startswith("Windows")


@pytest.mark.parametrize("name", ["AL2", "AL2023", "Bottlerocket"])
@pytest.mark.parametrize("raid0", [True, False])
def test_raid0_is_requested_and_parsed(name: str, raid0: bool) -> None:
    assert write_and_read(FAMILIES[name], {}, max_pods=29, raid0=raid0).raid0 is raid0


@pytest.mark.parametrize("name", ["AL2", "AL2023"])
def test_custom_script_does_not_change_settings(name: str) -> None:
    custom = "#!/bin/bash\necho 'hello' > /etc/motd\n"
    assert write_and_read(FAMILIES[name], {}, max_pods=29, custom=custom) == write_and_read(
        FAMILIES[name], {}, max_pods=29
    )


@pytest.mark.parametrize("raw", KUBELETS)
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", ["AL2", "AL2023", "Bottlerocket"])
def test_node_reports_planned_resources_with_equal_memory(name: str, type_name: str, raw: dict[str, Any]) -> None:
    """With the same memory and disk, planned and reported values are equal to the byte."""
    described = all_types()[type_name]
    settings = AwsSettings(cluster_name="demo", region="us-west-2")
    planned = Machine(TypeInfo.from_ec2(described), FAMILIES[name], Kubelet.of(raw), EC2NodeClassSpec(), settings)
    capacity = capacity_of(planned)
    overhead = overhead_of(planned, capacity)
    join = write_and_read(FAMILIES[name], raw, max_pods=capacity["pods"])
    reported = resources_of(MachineType.from_ec2(described), join, memory=capacity["memory"], disk_gib=20)
    plain = ("cpu", "memory", "ephemeral-storage", "pods")
    assert parse_resources(reported.capacity) == {key: capacity[key] for key in plain}
    allocatable = {key: capacity[key] - overhead.get(key, 0) for key in plain}
    reported_allocatable = parse_resources(reported.allocatable)
    assert {
        key: reported_allocatable[key] - reported_allocatable[key] % 1024
        if key == "memory"
        else reported_allocatable[key]
        for key in plain
    } == {key: allocatable[key] - allocatable[key] % 1024 if key == "memory" else allocatable[key] for key in plain}
