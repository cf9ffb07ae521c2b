"""EC2NodeClasses from bug reports and reviews, by their ID: `tests/cases/*/ID.*`."""

import tomllib
from typing import Any

import pytest
import yaml

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import EPHEMERAL_STORAGE
from tenure.aws.amifamily.families import FAMILIES, GIB
from tenure.aws.amifamily.user_data import render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of
from tenure.aws.amifamily.user_data.validation import why_settings_dropped, why_unreadable
from tenure.aws.instancetype.capacity import capacity_of
from tenure.aws.nodeclass.spec_validation import why_tags
from tests.support.aws.builders import CLUSTER, SETTINGS, build_nodeclaim, build_nodeclass, machine
from tests.support.cases import case_file


def nodeclass_of(case: str) -> EC2NodeClass:
    return build_nodeclass(**yaml.safe_load(case_file(f"{case}.nodeclass.yaml").read_text())["spec"])


def rendered(nodeclass: EC2NodeClass, family: str, **nodeclaim_spec: Any) -> str:
    one = build_nodeclaim()
    raw = one.to_object()
    raw["spec"] |= nodeclaim_spec
    facts = bootstrap_of(
        nodeclass, type(one).from_object(raw), FAMILIES[family], CLUSTER, capacity_type="spot", max_pods=29
    )
    return render(FAMILIES[family], facts)


def bottlerocket_settings(case: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(rendered(nodeclass_of(case), "Bottlerocket"))["settings"]["kubernetes"]
    return found


def test_many_tags() -> None:
    expected = "spec.tags: 45 tags, expected at most 42: EC2 allows 50 for an instance, and Tenure adds 8"
    assert (why_tags(nodeclass_of("many-tags"), SETTINGS) or ("", ""))[1] == expected


@pytest.mark.parametrize("name", ["d2.xlarge", "i2.xlarge", "m3.large"])
def test_raid0_without_nvme(name: str) -> None:
    spec = yaml.safe_load(case_file("raid0-without-nvme.nodeclass.yaml").read_text())["spec"]
    assert capacity_of(machine(name, **spec))[EPHEMERAL_STORAGE] == 50 * GIB
    assert capacity_of(machine("m5d.large", **spec))[EPHEMERAL_STORAGE] == 75 * 10**9


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket"])
@pytest.mark.parametrize("value", ["true", ""])
def test_unregistered_startup_taint(family: str, value: str) -> None:
    pool = yaml.safe_load(case_file("unregistered-startup-taint.pool.yaml").read_text())
    (taint,) = pool["spec"]["template"]["spec"]["startupTaints"]
    text = rendered(build_nodeclass(), family, startupTaints=[{**taint, "value": value}])
    assert text.count("karpenter.sh/unregistered") == 1


def test_bottlerocket_cluster_dns() -> None:
    assert bottlerocket_settings("bottlerocket-cluster-dns")["cluster-dns-ip"] == "169.254.20.10"


def test_bottlerocket_dropped_settings() -> None:
    found = bottlerocket_settings("bottlerocket-dropped-settings")
    assert (found["authentication-mode"], found["hostname-override"]) == ("aws", "node-a")
    text = nodeclass_of("bottlerocket-dropped-settings").spec.user_data or ""
    assert why_settings_dropped(text, FAMILIES["Bottlerocket"]) == ""
    dropped = why_settings_dropped(text.replace("hostname-override", "no-such-setting"), FAMILIES["Bottlerocket"])
    assert dropped.startswith("spec.userData: settings.kubernetes: no-such-setting: ")


def test_userdata_yaml_types() -> None:
    text = nodeclass_of("userdata-yaml-types").spec.user_data or ""
    assert "invalid YAML" in why_unreadable(text, FAMILIES["AL2023"])
