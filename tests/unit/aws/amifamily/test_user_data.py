"""User data, read back: what was said must be what a machine would hear."""

import base64
import json
import tomllib
from typing import Any

import pytest

from tenure.apis import labels
from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.amifamily.user_data import Bootstrap, UserDataError, render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of, kubelet_may_set
from tenure.aws.instance.launch_templates import launch_template
from tenure.sandbox.nodes.userdata import read_user_data
from tests.support.aws.builders import CLUSTER, SETTINGS, build_nodeclaim, build_nodeclass, resolved_status

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
STARTUP = {"key": "cni", "effect": "NoExecute"}


def bootstrap(family: str = "AL2023", *, labelled: dict[str, str] | None = None, **spec: Any) -> Bootstrap:
    one = build_nodeclaim(labels={labels.NODEPOOL: "general", "team": "a", **(labelled or {})})
    raw = one.to_object()
    raw["spec"] |= {"taints": [TAINT], "startupTaints": [STARTUP]}
    return bootstrap_of(
        build_nodeclass(**spec),
        type(one).from_object(raw),
        FAMILIES[family],
        CLUSTER,
        capacity_type="spot",
        max_pods=29,
    )


def rendered(family: str = "AL2023", **spec: Any) -> str:
    return render(FAMILIES[family], bootstrap(family, **spec))


@pytest.mark.parametrize("family", ["AL2023", "AL2", "Bottlerocket", "Windows2022"])
def test_every_family_joins_with_the_claims_labels_and_taints(family: str) -> None:
    joined = read_user_data(rendered(family))
    assert joined is not None
    assert joined.cluster == "demo"
    assert joined.max_pods == 29
    assert joined.labels == {
        "team": "a",
        labels.NODEPOOL: "general",
        labels.NODECLASS: "default",
        labels.CAPACITY_TYPE: "spot",
        labels.DO_NOT_SYNC_TAINTS: "true",
    }
    assert {(taint.key, taint.value, taint.effect) for taint in joined.taints} == {
        ("team", "a", "NoSchedule"),
        ("cni", "", "NoExecute"),
        ("karpenter.sh/unregistered", "", "NoExecute"),
    }


def test_mime_that_is_none_is_said_to_be_wrong() -> None:
    with pytest.raises(UserDataError, match="boundary"):
        rendered(userData="MIME-Version: 1.0\n\nno parts")


def test_al2023_needs_the_address_range() -> None:
    without = bootstrap().model_copy(update={"cluster": CLUSTER.model_copy(update={"cidr": ""})})
    with pytest.raises(UserDataError, match="Service addresses"):
        render(FAMILIES["AL2023"], without)


def test_bottlerocket_mounts_local_disks_when_the_class_asks() -> None:
    found = tomllib.loads(rendered("Bottlerocket", instanceStorePolicy="RAID0"))
    command = found["settings"]["bootstrap-commands"]["000-mount-instance-storage"]
    assert command["essential"] is True
    assert command["commands"][1][:3] == ["apiclient", "ephemeral-storage", "bind"]


def test_toml_that_is_none_is_said_to_be_wrong() -> None:
    with pytest.raises(UserDataError, match="not TOML"):
        rendered("Bottlerocket", userData="<powershell>")


def test_more_than_ec2_takes_is_refused_with_both_numbers() -> None:
    with pytest.raises(UserDataError, match="16384"):
        rendered(userData="#!/bin/sh\n" + "x" * 16384)


@pytest.mark.parametrize(
    ("key", "may"),
    [
        ("team", True),
        ("karpenter.sh/nodepool", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/anything", True),
        ("kubernetes.io/arch", True),
        ("kubernetes.io/role", False),
        ("node-role.kubernetes.io/worker", False),
        ("example.node-restriction.kubernetes.io/x", False),
        ("topology.ebs.csi.aws.com/zone", True),
    ],
)
def test_labels_that_a_kubelet_may_say_of_itself(key: str, may: bool) -> None:
    assert kubelet_may_set(key) is may


def test_a_launch_template_says_what_the_class_says_and_is_named_by_it() -> None:
    one = build_nodeclass(resolved_status(), detailedMonitoring=True, ipPrefixCount=2)
    template_fields = {"image_id": "ami-1", "tags": {"a": "b"}, "capacity_type": "spot"}
    made = launch_template(one, FAMILIES["AL2023"], SETTINGS, user_data="hello", **template_fields)  # type: ignore[arg-type]
    other = launch_template(one, FAMILIES["AL2023"], SETTINGS, user_data="hallo", **template_fields)  # type: ignore[arg-type]
    assert base64.b64decode(made.data["UserData"]) == b"hello"
    assert made.data["NetworkInterfaces"][0]["Groups"] == ["sg-1"]
    assert made.data["NetworkInterfaces"][0]["Ipv4PrefixCount"] == 2
    assert made.data["IamInstanceProfile"] == {"Name": "demo_profile"}
    assert made.data["MetadataOptions"]["HttpTokens"] == "required"
    assert made.data["MetadataOptions"]["HttpProtocolIpv6"] == "disabled"
    assert made.data["Monitoring"] == {"Enabled": True}
    assert made.data["BlockDeviceMappings"][0]["Ebs"] == {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": 20}
    assert {one["ResourceType"] for one in made.data["TagSpecifications"]} == {
        "network-interface",
        "spot-instances-request",
    }
    assert made.name.removeprefix("karpenter.k8s.aws/").isdigit()
    assert made.name != other.name
    assert json.dumps(made.data)


@pytest.mark.parametrize("region", ["us-iso-east-1", "us-isob-east-1"])
def test_launch_templates_omit_ipv6_metadata_in_isolated_regions(region: str) -> None:
    settings = SETTINGS.model_copy(update={"region": region})
    made = launch_template(
        build_nodeclass(resolved_status()),
        FAMILIES["AL2023"],
        settings,
        image_id="ami-1",
        user_data="",
        tags={},
        capacity_type="spot",
    )
    assert "HttpProtocolIpv6" not in made.data["MetadataOptions"]
