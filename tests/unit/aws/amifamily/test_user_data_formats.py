"""Generated user data of each family for each format of custom user data, parsed as the instances parse it."""

import pytest
import yaml

from tenure.apis import labels
from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.amifamily.user_data import UserDataError, render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of, kubelet_may_set
from tenure.sandbox.nodes.userdata import read_user_data
from tests.support.aws.builders import CLUSTER, build_nodeclaim, build_nodeclass
from tests.unit.aws.amifamily.user_data_builders import (
    EXPECTED_FLAGS,
    KUBELET,
    MIME,
    NODE_CONFIG,
    SHELL,
    body,
    kinds,
    mime_parts,
    node_config,
    parse_bootstrap_call,
    parse_flags,
    powershell_call,
    rendered,
    settings,
)

# --- AL2023 -------------------------------------------------------------------------------------------


def test_al2023_without_user_data_is_one_complete_node_config() -> None:
    text = rendered("AL2023", kubelet=KUBELET | {"serializeImagePulls": False, "featureGates": {"X": True}})
    assert kinds(text) == ["application/node.eks.aws"]
    taints = [
        {"key": "team", "value": "a", "effect": "NoSchedule"},
        {"key": "team", "effect": "NoExecute"},
        {"key": "cni", "effect": "NoExecute"},
        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
    ]
    config = KUBELET | {"serializeImagePulls": False, "featureGates": {"X": True}, "maxPods": 29}
    assert node_config(text) == {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": "demo",
                "apiServerEndpoint": "https://demo.invalid",
                "certificateAuthority": "Q0E=",
                "cidr": "10.100.0.0/16",
            },
            "kubelet": {
                "config": config | {"registerWithTaints": taints},
                "flags": ["--node-labels=" + EXPECTED_FLAGS["node-labels"]],
            },
        },
    }


def test_al2023_shell_script_is_its_own_part() -> None:
    text = rendered("AL2023", userData=SHELL)
    assert kinds(text) == ["text/x-shellscript", "application/node.eks.aws"]
    assert body(mime_parts(text)[0]).strip() == SHELL.strip()


@pytest.mark.parametrize("own", [NODE_CONFIG, "---\n" + NODE_CONFIG, NODE_CONFIG + "---\nkind: Other\n"])
def test_al2023_custom_node_config_comes_before_generated_one(own: str) -> None:
    text = rendered("AL2023", userData=own)
    assert kinds(text) == ["application/node.eks.aws"] * 2
    assert next(iter(yaml.safe_load_all(body(mime_parts(text)[0]))))["spec"]["kubelet"]["config"]["maxPods"] == 5
    assert node_config(text)["spec"]["kubelet"]["config"]["maxPods"] == 29


def test_yaml_without_node_config_is_a_script() -> None:
    assert kinds(rendered("AL2023", userData="key: value\n"))[0] == "text/x-shellscript"


@pytest.mark.parametrize("family", ["AL2", "AL2023"])
@pytest.mark.parametrize("head", ["", "\n\n"])
def test_mime_parts_keep_order_headers_and_contents(family: str, head: str) -> None:
    own = mime_parts(rendered(family, userData=head + MIME))[:-1]
    assert [part.get_content_type() for part in own] == [
        "text/x-shellscript",
        "application/node.eks.aws",
        "text/cloud-config",
    ]
    assert own[0].get_filename() == "first.sh"
    assert body(own[0]).strip() == "#!/bin/bash\necho first"
    assert yaml.safe_load(body(own[1]))["kind"] == "NodeConfig"
    assert own[2].get_payload(decode=True) == b"runcmd: [ls]\n"


@pytest.mark.parametrize("family", ["AL2", "AL2023"])
def test_mime_may_start_with_content_type(family: str) -> None:
    first = (
        'Content-Type: multipart/mixed; boundary="X"\nMIME-Version: 1.0\n\n--X\nContent-Type: text/plain\n\nhi\n--X--\n'
    )
    assert kinds(rendered(family, userData=first))[0] == "text/plain"


def test_last_boundary_line_of_mime_adds_no_part() -> None:
    """An example of Karpenter ends so, without the final `--`."""
    own = 'Content-Type: multipart/mixed; boundary="//"\n\n--//\nContent-Type: text/plain\n\nhi\n--//\n'
    assert kinds(rendered("AL2023", userData=own)) == ["text/plain", "application/node.eks.aws"]


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket"])
def test_carriage_returns_are_removed(family: str) -> None:
    own = '[settings.ntp]\r\ntime-servers = ["a"]\r\n' if family == "Bottlerocket" else SHELL.replace("\n", "\r\n")
    assert "\r" not in rendered(family, userData=own)


def test_script_with_boundary_text_stays_one_part() -> None:
    own = "#!/bin/sh\ncat <<E\n--//\n--//1\nE\nFrom here on\n"
    text = rendered("AL2023", userData=own)
    assert len(mime_parts(text)) == 2
    assert body(mime_parts(text)[0]).strip() == own.strip()


def test_equal_input_gives_equal_user_data() -> None:
    assert rendered("AL2023", userData=MIME) == rendered("AL2023", userData=MIME)


def test_al2023_ipv6_cluster_has_ipv6_cidr_and_dns() -> None:
    six = CLUSTER.model_copy(update={"cidr": "fd00:ec2::/108", "dns": "fd00:ec2::a"})
    spec = node_config(rendered("AL2023", six))["spec"]
    assert spec["cluster"]["cidr"] == "fd00:ec2::/108"
    assert spec["kubelet"]["config"]["clusterDNS"] == ["fd00:ec2::a"]


def test_dns_addresses_of_custom_user_data_override_the_discovered_one() -> None:
    """`spec.kubelet` overrides both. NodeLocal DNSCache has such an address."""
    own = NODE_CONFIG.replace("maxPods: 5", "clusterDNS: [169.254.20.10]")
    toml = '[settings.kubernetes]\ncluster-dns-ip = "169.254.20.10"\n'
    kubelet = {"clusterDNS": ["10.0.0.10"]}
    assert "clusterDNS" not in node_config(rendered("AL2023", userData=own))["spec"]["kubelet"]["config"]
    found = node_config(rendered("AL2023", userData=own, kubelet=kubelet))["spec"]["kubelet"]["config"]
    assert found["clusterDNS"] == ["10.0.0.10"]
    assert settings(userData=toml)["kubernetes"]["cluster-dns-ip"] == "169.254.20.10"
    assert settings(userData=toml, kubelet=kubelet)["kubernetes"]["cluster-dns-ip"] == "10.0.0.10"
    assert settings()["kubernetes"]["cluster-dns-ip"] == CLUSTER.dns


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2022"])
@pytest.mark.parametrize("value", ["true", ""])
def test_unregistered_taint_of_a_pool_is_registered_once(family: str, value: str) -> None:
    """The API server refuses a Node with two taints of one key and effect."""
    one = build_nodeclaim()
    raw = one.to_object()
    raw["spec"]["startupTaints"] = [{"key": "karpenter.sh/unregistered", "value": value, "effect": "NoExecute"}]
    facts = bootstrap_of(
        build_nodeclass(), type(one).from_object(raw), FAMILIES[family], CLUSTER, capacity_type="spot", max_pods=29
    )
    assert render(FAMILIES[family], facts).count("karpenter.sh/unregistered") == 1


def test_al2023_configures_local_disks_only_with_instance_store_policy() -> None:
    assert "instance" not in node_config(rendered("AL2023"))["spec"]
    instance_config = node_config(rendered("AL2023", instanceStorePolicy="RAID0"))["spec"]["instance"]
    assert instance_config == {"localStorage": {"strategy": "RAID0"}}


# --- AL2 ----------------------------------------------------------------------------------------------


def test_al2_bootstrap_call_has_all_settings() -> None:
    call = parse_bootstrap_call(rendered("AL2", kubelet=KUBELET))
    assert parse_flags(call.pop("kubelet-extra-args")) == EXPECTED_FLAGS
    assert call == {
        "": "demo",
        "apiserver-endpoint": "https://demo.invalid",
        "b64-cluster-ca": "Q0E=",
        "dns-cluster-ip": "10.0.0.10",
        "use-max-pods": "false",
    }


def test_al2_ipv6_cluster_has_ipv6_family() -> None:
    six = CLUSTER.model_copy(update={"dns": "fd00:ec2::a"})
    call = parse_bootstrap_call(rendered("AL2", six))
    assert (call["ip-family"], call["dns-cluster-ip"]) == ("ipv6", "fd00:ec2::a")


def test_al2_configures_local_disks_with_instance_store_policy() -> None:
    assert parse_bootstrap_call(rendered("AL2", instanceStorePolicy="RAID0"))["local-disks"] == "raid0"


def test_al2_shell_script_comes_before_bootstrap_script() -> None:
    text = rendered("AL2", userData=SHELL)
    assert kinds(text) == ["text/x-shellscript"] * 2
    assert body(mime_parts(text)[0]).strip() == SHELL.strip()
    assert body(mime_parts(text)[1]).startswith("#!/bin/bash")


# --- Windows and Custom -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["Windows2019", "Windows2022", "Windows2025"])
def test_windows_bootstrap_call_has_all_settings(family: str) -> None:
    call = powershell_call(rendered(family, kubelet=KUBELET))
    assert parse_flags(call.pop("KubeletExtraArgs")) == EXPECTED_FLAGS
    assert call == {
        "EKSClusterName": "demo",
        "APIServerEndpoint": "https://demo.invalid",
        "Base64ClusterCA": "Q0E=",
        "DNSClusterIP": "10.0.0.10",
    }


@pytest.mark.parametrize(
    "own", ["Write-Host 'it''s'\nWrite-Host b", "<powershell>\nWrite-Host 'it''s'\nWrite-Host b\n</powershell>\n"]
)
def test_windows_custom_lines_come_before_bootstrap_in_one_block(own: str) -> None:
    lines = rendered("Windows2022", userData=own).splitlines()
    assert lines[:3] == ["<powershell>", "Write-Host 'it''s'", "Write-Host b"]
    assert lines[-1] == "</powershell>"
    assert sum("powershell>" in line for line in lines) == 2


def test_quotes_in_values_are_escaped() -> None:
    with_quote = CLUSTER.model_copy(update={"endpoint": "https://it's.invalid"})
    assert powershell_call(rendered("Windows2022", with_quote))["APIServerEndpoint"] == "https://it's.invalid"
    assert parse_bootstrap_call(rendered("AL2", with_quote))["apiserver-endpoint"] == "https://it's.invalid"


@pytest.mark.parametrize("own", ["", "anything\r\nat all", MIME])
def test_custom_user_data_is_unchanged(own: str) -> None:
    assert rendered("Custom", userData=own) == own


# --- All families -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["AL2023", "AL2", "Bottlerocket", "Windows2022"])
def test_every_family_sets_labels_and_taints_of_nodeclaim(family: str) -> None:
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
        ("team", "", "NoExecute"),
        ("cni", "", "NoExecute"),
        ("karpenter.sh/unregistered", "", "NoExecute"),
    }


@pytest.mark.parametrize(
    ("family", "own", "expected"),
    [
        ("AL2023", "MIME-Version: 1.0\n\nno parts", "boundary"),
        ("Bottlerocket", "<powershell>", "invalid TOML"),
        ("AL2023", "#!/bin/sh\n" + "x" * 16384, "16384"),
    ],
)
def test_unreadable_user_data_is_rejected(family: str, own: str, expected: str) -> None:
    with pytest.raises(UserDataError, match=expected):
        rendered(family, userData=own)


def test_al2023_requires_service_cidr() -> None:
    with pytest.raises(UserDataError, match="Service CIDR"):
        rendered("AL2023", CLUSTER.model_copy(update={"cidr": ""}))


@pytest.mark.parametrize(
    ("key", "is_allowed"),
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
def test_kubelet_may_set_only_allowed_labels(key: str, is_allowed: bool) -> None:
    assert kubelet_may_set(key) is is_allowed
