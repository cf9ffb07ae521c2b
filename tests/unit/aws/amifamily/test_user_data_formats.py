"""Generated user data of each family for each format of custom user data, parsed as the instances parse it."""

import re
import shlex
import tomllib
from email import message_from_string
from email.message import Message
from typing import Any

import pytest
import yaml

from tenure.apis import labels
from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.amifamily.user_data import Bootstrap, UserDataError, render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of, kubelet_may_set
from tenure.aws.cluster_facts import ClusterFacts
from tenure.sandbox.nodes.userdata import read_user_data
from tests.support.aws.builders import CLUSTER, build_nodeclaim, build_nodeclass

SHELL = "#!/bin/bash\necho 'Grüße' # and so on\n"
NODE_CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      maxPods: 5\n"
MIME = (
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="BOUNDARY"\n\n'
    '--BOUNDARY\nContent-Type: text/x-shellscript; charset="us-ascii"\nContent-Disposition: attachment; '
    'filename="first.sh"\n\n#!/bin/bash\necho first\n\n'
    "--BOUNDARY\nContent-Type: application/node.eks.aws\n\n" + NODE_CONFIG + "\n--BOUNDARY\n"
    "Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\ncnVuY21kOiBbbHNdCg==\n\n--BOUNDARY--\n"
)
KUBELET = {
    "clusterDNS": ["10.0.0.10"],
    "podsPerCore": 4,
    "systemReserved": {"cpu": "100m", "memory": "200Mi"},
    "kubeReserved": {"cpu": "50m"},
    "evictionHard": {"memory.available": "5%"},
    "evictionSoft": {"nodefs.available": "10%"},
    "evictionSoftGracePeriod": {"nodefs.available": "1m"},
    "evictionMaxPodGracePeriod": 60,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cpuCFSQuota": False,
}


def bootstrap(family: str, cluster: ClusterFacts = CLUSTER, **spec: Any) -> Bootstrap:
    one = build_nodeclaim(labels={labels.NODEPOOL: "general", "team": "a", "node-role.kubernetes.io/worker": ""})
    raw = one.to_object()
    raw["spec"] |= {
        "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}, {"key": "team", "effect": "NoExecute"}],
        "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
    }
    return bootstrap_of(
        build_nodeclass(**spec),
        type(one).from_object(raw),
        FAMILIES[family],
        cluster,
        capacity_type="spot",
        max_pods=29,
    )


def rendered(family: str, cluster: ClusterFacts = CLUSTER, **spec: Any) -> str:
    return render(FAMILIES[family], bootstrap(family, cluster, **spec))


def mime_parts(text: str) -> list[Message]:
    parsed = message_from_string(text)
    assert parsed.is_multipart()
    assert not parsed.defects
    return [part for part in parsed.walk() if not part.is_multipart()]


def kinds(text: str) -> list[str]:
    return [part.get_content_type() for part in mime_parts(text)]


def body(part: Message) -> str:
    found = part.get_payload()
    assert isinstance(found, str)
    return found


def node_config(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(body(mime_parts(text)[-1]))
    return found


def parse_bootstrap_call(text: str) -> dict[str, str]:
    """Options of the bootstrap.sh call in the last part; the positional argument has an empty name."""
    line = body(mime_parts(text)[-1]).replace("\\\n", " ").strip().splitlines()[-1]
    arguments = shlex.split(line)
    assert arguments[0] == "/etc/eks/bootstrap.sh"
    found = {"": arguments[1]}
    return found | {
        name.removeprefix("--"): value for name, value in zip(arguments[2::2], arguments[3::2], strict=True)
    }


def parse_flags(text: str) -> dict[str, str]:
    """Kubelet flags of one string with quoted values."""
    pairs = [argument.removeprefix("--").partition("=") for argument in shlex.split(text)]
    return {name: value for name, _, value in pairs}


def powershell_call(text: str) -> dict[str, str]:
    line = next(line for line in text.splitlines() if line.startswith("& $EKSBootstrapScriptFile"))
    found = re.findall(r"-(\w+) '((?:[^']|'')*)'", line)
    return {name: value.replace("''", "'") for name, value in found}


EXPECTED_FLAGS = {
    "node-labels": "karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=spot,"
    "karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=general,team=a",
    "register-with-taints": "team=a:NoSchedule,team:NoExecute,cni:NoExecute,karpenter.sh/unregistered:NoExecute",
    "max-pods": "29",
    "pods-per-core": "4",
    "system-reserved": "cpu=100m,memory=200Mi",
    "kube-reserved": "cpu=50m",
    "eviction-hard": "memory.available<5%",
    "eviction-soft": "nodefs.available<10%",
    "eviction-soft-grace-period": "nodefs.available=1m",
    "eviction-max-pod-grace-period": "60",
    "image-gc-high-threshold": "85",
    "image-gc-low-threshold": "80",
    "cpu-cfs-quota": "false",
}


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
def test_unregistered_taint_of_a_pool_is_registered_once(family: str) -> None:
    """The API server refuses a Node with two taints of one key and effect."""
    one = build_nodeclaim()
    raw = one.to_object()
    raw["spec"]["startupTaints"] = [{"key": "karpenter.sh/unregistered", "value": "true", "effect": "NoExecute"}]
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


# --- Bottlerocket -------------------------------------------------------------------------------------


def settings(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(rendered("Bottlerocket", **spec))["settings"]
    return found


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
