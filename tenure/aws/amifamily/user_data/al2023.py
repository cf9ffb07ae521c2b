"""AL2023: MIME with a NodeConfig for nodeadm. Custom user data comes first, because the last NodeConfig wins."""

from email.message import Message
from typing import Any, Final

import yaml

from tenure.aws.amifamily.user_data.config import Bootstrap, UserDataError, join_pairs
from tenure.aws.amifamily.user_data.documents import load_yaml
from tenure.aws.amifamily.user_data.mime import SHELL_TYPE, is_mime, join_parts, make_part, parts_of

NODE_CONFIG_TYPE: Final = "application/node.eks.aws"
_API_VERSION: Final = "node.eks.aws/v1alpha1"


def render_al2023(bootstrap: Bootstrap) -> str:
    """Raises UserDataError for invalid MIME, or if the CIDR of Service addresses is unknown."""
    if not bootstrap.cluster.cidr:
        raise UserDataError("the cluster's Service CIDR is unknown; set CLUSTER_CIDR")
    document = "# Made by Tenure\n" + yaml.safe_dump(node_config(bootstrap), sort_keys=False, width=10_000)
    return join_parts([*_own_parts(bootstrap.custom), make_part(NODE_CONFIG_TYPE, document)])


def node_config(bootstrap: Bootstrap) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "cluster": {
            "name": bootstrap.cluster.name,
            "apiServerEndpoint": bootstrap.cluster.endpoint,
            "certificateAuthority": bootstrap.cluster.ca_bundle,
            "cidr": bootstrap.cluster.cidr,
        },
        "kubelet": {"config": _kubelet_config(bootstrap), "flags": [f"--node-labels={join_pairs(bootstrap.labels)}"]},
    }
    if bootstrap.raid0:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    return {"apiVersion": _API_VERSION, "kind": "NodeConfig", "spec": spec}


def _kubelet_config(bootstrap: Bootstrap) -> dict[str, Any]:
    dns = {"clusterDNS": list(bootstrap.dns)} if bootstrap.dns else {}
    taints = [taint.to_object() for taint in bootstrap.taints]
    return {**dns, **bootstrap.kubelet_map, "maxPods": bootstrap.max_pods, "registerWithTaints": taints}


def _own_parts(custom: str) -> list[Message]:
    if not custom.strip():
        return []
    if is_mime(custom):
        return parts_of(custom)
    return [make_part(NODE_CONFIG_TYPE if _is_node_config(custom) else SHELL_TYPE, custom)]


def _is_node_config(text: str) -> bool:
    """Whether the first YAML document is a NodeConfig. A script may be valid YAML too, but not a map of this kind."""
    try:
        found = load_yaml(text)
    except UserDataError:
        return False
    return isinstance(found, dict) and found.get("kind") == "NodeConfig"
