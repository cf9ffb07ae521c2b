"""How instances parse user data: all formats of an EC2NodeClass, and user data that never joins a cluster."""

import pytest

from tenure.sandbox.nodes.userdata import Join, UserDataError, read_user_data
from tenure.sandbox.nodes.userdata.kubelet_join import Taint

NODE_CONFIG = """\
# Made by somebody
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: https://cluster.demo.invalid
    certificateAuthority: Y2E=
    cidr: 10.100.0.0/16
  instance:
    localStorage:
      strategy: RAID0
  kubelet:
    config:
      maxPods: 58
      clusterDNS: [10.100.0.10]
      evictionHard:
        memory.available: 5%
      kubeReserved:
        cpu: 100m
      registerWithTaints:
      - key: karpenter.sh/unregistered
        effect: NoExecute
      - key: team
        value: a
        effect: NoSchedule
    flags:
    - --node-labels="karpenter.sh/nodepool=default,team=a"
"""
MIME = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo hello

--//
Content-Type: application/node.eks.aws

{first}
--//
Content-Type: application/node.eks.aws

{second}
--//--
"""
FIRST = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 10
      podsPerCore: 4
"""
AL2_KUBELET = " ".join(
    [
        '--node-labels="a=b,karpenter.sh/nodepool=default"',
        '--register-with-taints="karpenter.sh/unregistered:NoExecute,x=y:NoSchedule"',
        '--max-pods=20 --kube-reserved="cpu=100m,memory=1Gi" --eviction-hard="memory.available<5%"',
    ]
)
AL2 = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash -xe
exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1
/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://x' --b64-cluster-ca 'Y2E=' \\
--dns-cluster-ip '10.100.0.10' \\
--use-max-pods false \\
--kubelet-extra-args '{kubelet}'
--//--
"""
BOTTLEROCKET = """\
[settings]
[settings.kubernetes]
api-server = "https://x"
cluster-name = "demo"
max-pods = 35

[settings.kubernetes.node-labels]
team = "a"

[settings.kubernetes.node-taints]
"karpenter.sh/unregistered" = [":NoExecute"]
team = ["a:NoSchedule", "b:NoExecute"]

[settings.kubernetes.system-reserved]
memory = "200Mi"
"""
WINDOWS = """\
<powershell>
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://x' -Base64ClusterCA 'Y2E=' \
-KubeletExtraArgs '--node-labels="team=a" --register-with-taints="karpenter.sh/unregistered:NoExecute" --max-pods=110' \
-DNSClusterIP '10.100.0.10'
</powershell>
"""
UNREGISTERED = Taint(key="karpenter.sh/unregistered", effect="NoExecute")


def join_of(text: str) -> Join:
    join = read_user_data(text)
    assert join is not None
    return join


def test_node_config_has_cluster_labels_taints_and_kubelet_settings() -> None:
    join = join_of(NODE_CONFIG)
    assert join.cluster == "demo"
    assert join.labels == {"karpenter.sh/nodepool": "default", "team": "a"}
    assert join.taints == (UNREGISTERED, Taint(key="team", value="a", effect="NoSchedule"))
    assert (join.max_pods, join.raid0) == (58, True)
    assert join.eviction_hard == {"memory.available": "5%"}
    assert join.kube_reserved == {"cpu": "100m"}


def test_later_node_config_overrides_per_key() -> None:
    join = join_of(MIME.format(first=FIRST, second=NODE_CONFIG))
    assert (join.cluster, join.max_pods, join.pods_per_core) == ("demo", 58, 4)


def test_windows_line_endings_are_accepted() -> None:
    text = MIME.format(first=FIRST, second=NODE_CONFIG)
    assert read_user_data(text.replace("\n", "\r\n")) == read_user_data(text)


def test_al2_settings_come_from_bootstrap_arguments() -> None:
    join = join_of(AL2.format(kubelet=AL2_KUBELET))
    assert join.cluster == "demo"
    assert join.labels == {"a": "b", "karpenter.sh/nodepool": "default"}
    assert join.taints == (UNREGISTERED, Taint(key="x", value="y", effect="NoSchedule"))
    assert join.max_pods == 20
    assert join.kube_reserved == {"cpu": "100m", "memory": "1Gi"}
    assert join.eviction_hard == {"memory.available": "5%"}


def test_bottlerocket_settings_are_parsed() -> None:
    join = join_of(BOTTLEROCKET)
    assert (join.cluster, join.max_pods, join.labels) == ("demo", 35, {"team": "a"})
    assert join.taints == (
        UNREGISTERED,
        Taint(key="team", value="a", effect="NoSchedule"),
        Taint(key="team", value="b", effect="NoExecute"),
    )
    assert join.system_reserved == {"memory": "200Mi"}


def test_windows_settings_come_from_bootstrap_arguments() -> None:
    join = join_of(WINDOWS)
    assert (join.cluster, join.labels, join.max_pods) == ("demo", {"team": "a"}, 110)
    assert join.taints == (UNREGISTERED,)


def test_custom_script_with_bootstrap_call_joins() -> None:
    join = join_of("#!/bin/bash\nsudo /etc/eks/bootstrap.sh demo --kubelet-extra-args '--node-labels=a=b'\n")
    assert (join.cluster, join.labels, join.taints) == ("demo", {"a": "b"}, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#!/bin/bash\necho nothing\n",
        "<powershell>\nWrite-Host hello\n</powershell>",
        "[settings.host-containers.admin]\nenabled = true\n",
        FIRST,
        MIME.format(first=FIRST, second=FIRST),
    ],
)
def test_user_data_without_cluster_name_never_joins(text: str) -> None:
    assert read_user_data(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NODE_CONFIG.replace("kind: NodeConfig", "kind: NodeConfig\n  x: ["), "NodeConfig"),
        (NODE_CONFIG.replace("effect: NoExecute", "efect: NoExecute"), "registerWithTaints"),
        ("[settings.kubernetes\ncluster-name=1", "settings"),
        (BOTTLEROCKET.replace('":NoExecute"', '"NoExecute"'), "node-taints"),
        ("/etc/eks/bootstrap.sh --dns-cluster-ip 10.100.0.10", "cluster's name"),
        ("/etc/eks/bootstrap.sh demo 'unclosed", "bootstrap.sh"),
        ("/etc/eks/bootstrap.sh demo --kubelet-extra-args '--node-labels=broken'", "broken"),
        ("/etc/eks/bootstrap.sh demo --kubelet-extra-args '--register-with-taints=a=b'", "no effect"),
    ],
)
def test_invalid_user_data_is_reported(text: str, expected: str) -> None:
    with pytest.raises(UserDataError, match=expected):
        read_user_data(text)
