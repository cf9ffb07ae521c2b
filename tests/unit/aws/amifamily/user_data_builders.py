"""User data of a NodeClaim for each image family, and parsers of its formats."""

import re
import shlex
import tomllib
from email import message_from_string
from email.message import Message
from typing import Any

import yaml

from tenure.apis import labels
from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.amifamily.user_data import Bootstrap, render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of
from tenure.aws.cluster_facts import ClusterFacts
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


def settings(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(rendered("Bottlerocket", **spec))["settings"]
    return found
