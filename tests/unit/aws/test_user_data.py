"""User data, read back: what was said must be what a machine would hear."""

import base64
import json
import tomllib
from email import message_from_string
from typing import Any

import pytest
import yaml

from aws.families import FAMILIES
from aws.launch_template_data import launch_template
from aws.user_data import Bootstrap, UserDataError, render
from aws.user_data.bootstrap import bootstrap_of, kubelet_may_set
from model import labels
from sandbox.nodes.userdata import read_user_data
from tests.support.aws.builders import CLUSTER, SETTINGS, claim, node_class, resolved_status

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
STARTUP = {"key": "cni", "effect": "NoExecute"}


def bootstrap(family: str = "AL2023", *, labelled: dict[str, str] | None = None, **spec: Any) -> Bootstrap:
    one = claim(labels={labels.NODEPOOL: "general", "team": "a", **(labelled or {})})
    raw = one.to_object()
    raw["spec"] |= {"taints": [TAINT], "startupTaints": [STARTUP]}
    return bootstrap_of(
        node_class(**spec),
        type(one).from_object(raw),
        FAMILIES[family],
        CLUSTER,
        capacity_type="spot",
        max_pods=29,
    )


def rendered(family: str = "AL2023", **spec: Any) -> str:
    return render(FAMILIES[family], bootstrap(family, **spec))


def parts(text: str) -> list[tuple[str, str]]:
    found = message_from_string(text)
    assert found.is_multipart()
    bodies = []
    for part in found.walk():
        if not part.is_multipart():
            body = part.get_payload(decode=True)
            assert isinstance(body, bytes)
            bodies.append((part.get_content_type(), body.decode()))
    return bodies


def config(text: str) -> dict[str, Any]:
    kind, body = parts(text)[-1]
    assert kind == "application/node.eks.aws"
    document: dict[str, Any] = yaml.safe_load(body)
    return document


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


def test_al2023_is_told_of_the_cluster_and_keeps_foreign_kubelet_keys() -> None:
    spec = config(rendered(kubelet={"systemReserved": {"cpu": "100m"}, "serializeImagePulls": False}))["spec"]
    assert spec["cluster"] == {
        "name": "demo",
        "apiServerEndpoint": "https://demo.invalid",
        "certificateAuthority": "Q0E=",
        "cidr": "10.100.0.0/16",
    }
    kubelet = spec["kubelet"]["config"]
    assert kubelet["serializeImagePulls"] is False
    assert kubelet["systemReserved"] == {"cpu": "100m"}
    assert kubelet["clusterDNS"] == ["10.100.0.10"]
    assert "instance" not in spec


def test_al2023_asks_for_raid_when_the_class_does() -> None:
    assert config(rendered(instanceStorePolicy="RAID0"))["spec"]["instance"]["localStorage"]["strategy"] == "RAID0"


def test_al2023_puts_the_users_part_first_in_its_own_type() -> None:
    own_config = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}\n"
    assert [kind for kind, _ in parts(rendered(userData="#!/bin/bash\necho hi"))] == [
        "text/x-shellscript",
        "application/node.eks.aws",
    ]
    assert parts(rendered(userData=own_config))[0] == ("application/node.eks.aws", own_config)


def test_mime_of_the_users_own_is_taken_apart_and_kept_in_order() -> None:
    own = (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="X"\n\n'
        "--X\nContent-Type: text/x-shellscript\n\n#!/bin/sh\none\n"
        "--X\nContent-Type: text/cloud-config\n\ntwo: 2\n--X--\n"
    )
    for family in ("AL2023", "AL2"):
        found = parts(rendered(family, userData=own))
        assert [kind for kind, _ in found][:2] == ["text/x-shellscript", "text/cloud-config"]
        assert "one" in found[0][1]


def test_mime_that_is_none_is_said_to_be_wrong() -> None:
    with pytest.raises(UserDataError, match="boundary"):
        rendered(userData="MIME-Version: 1.0\n\nno parts")


def test_al2023_needs_the_address_range() -> None:
    without = bootstrap().model_copy(update={"cluster": CLUSTER.model_copy(update={"cidr": ""})})
    with pytest.raises(UserDataError, match="Service addresses"):
        render(FAMILIES["AL2023"], without)


def test_bottlerocket_keeps_the_users_settings_and_wins_where_it_must() -> None:
    own = """
        [settings.ntp]
        time-servers = ["a"]
        [settings.kubernetes]
        cluster-name = "x"
        [settings.kubernetes.node-labels]
        mine = "1"
    """
    found = tomllib.loads(rendered("Bottlerocket", userData=own, kubelet={"imageGCHighThresholdPercent": 80}))
    kubernetes = found["settings"]["kubernetes"]
    assert found["settings"]["ntp"]["time-servers"] == ["a"]
    assert kubernetes["cluster-name"] == "demo"
    assert kubernetes["node-labels"]["mine"] == "1"
    assert kubernetes["node-taints"]["team"] == ["a:NoSchedule"]
    assert kubernetes["image-gc-high-threshold-percent"] == "80"


def test_bottlerocket_mounts_local_disks_when_the_class_asks() -> None:
    found = tomllib.loads(rendered("Bottlerocket", instanceStorePolicy="RAID0"))
    command = found["settings"]["bootstrap-commands"]["000-mount-instance-storage"]
    assert command["essential"] is True
    assert command["commands"][1][:3] == ["apiclient", "ephemeral-storage", "bind"]


def test_toml_that_is_none_is_said_to_be_wrong() -> None:
    with pytest.raises(UserDataError, match="not TOML"):
        rendered("Bottlerocket", userData="<powershell>")


def test_custom_is_passed_on_as_it_is() -> None:
    assert rendered("Custom", userData="anything at all") == "anything at all"


def test_windows_has_one_block_with_the_users_lines_first() -> None:
    text = rendered("Windows2022", userData="<powershell>\nWrite-Host hi\n</powershell>")
    assert text.count("<powershell>") == text.count("</powershell>") == 1
    assert text.index("Write-Host hi") < text.index("-EKSClusterName 'demo'")


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
    one = node_class(resolved_status(), detailedMonitoring=True, ipPrefixCount=2)
    said = {"image_id": "ami-1", "tags": {"a": "b"}, "capacity_type": "spot"}
    made = launch_template(one, FAMILIES["AL2023"], SETTINGS, user_data="hello", **said)  # type: ignore[arg-type]
    other = launch_template(one, FAMILIES["AL2023"], SETTINGS, user_data="hallo", **said)  # type: ignore[arg-type]
    assert base64.b64decode(made.data["UserData"]) == b"hello"
    assert made.data["NetworkInterfaces"][0]["Groups"] == ["sg-1"]
    assert made.data["NetworkInterfaces"][0]["Ipv4PrefixCount"] == 2
    assert made.data["IamInstanceProfile"] == {"Name": "demo_profile"}
    assert made.data["MetadataOptions"]["HttpTokens"] == "required"
    assert made.data["Monitoring"] == {"Enabled": True}
    assert made.data["BlockDeviceMappings"][0]["Ebs"] == {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": 20}
    assert {one["ResourceType"] for one in made.data["TagSpecifications"]} == {
        "network-interface",
        "spot-instances-request",
    }
    assert made.name.removeprefix("karpenter.k8s.aws/").isdigit()
    assert made.name != other.name
    assert json.dumps(made.data)
