"""AL2023: MIME with a NodeConfig for nodeadm. Custom user data comes first, because the last NodeConfig wins."""

from email.message import Message
from typing import Any, Final

import yaml

from tenure.aws.amifamily.user_data.config import Bootstrap, UserDataError, join_pairs
from tenure.aws.amifamily.user_data.documents import load_yaml
from tenure.aws.amifamily.user_data.mime import SHELL_TYPE, decode_part, is_mime, join_parts, make_part, parts_of

NODE_CONFIG_TYPE: Final = "application/node.eks.aws"
_API_VERSION: Final = "node.eks.aws/v1alpha1"


def render_al2023(bootstrap: Bootstrap) -> str:
    """Raises UserDataError for invalid MIME, or if the CIDR of Service addresses is unknown."""
    if not bootstrap.cluster.cidr:
        raise UserDataError("the cluster's Service CIDR is unknown: DescribeCluster of EKS named none")
    own = _own_parts(bootstrap.custom)
    config = node_config(bootstrap, has_own_dns=any(_sets_cluster_dns(part) for part in own))
    document = "# Made by Tenure\n" + yaml.safe_dump(config, sort_keys=False, width=10_000)
    return join_parts([*own, make_part(NODE_CONFIG_TYPE, document)])


def node_config(bootstrap: Bootstrap, *, has_own_dns: bool = False) -> dict[str, Any]:
    """`has_own_dns`: the custom user data has cluster DNS addresses, which override the discovered one."""
    spec: dict[str, Any] = {
        "cluster": {
            "name": bootstrap.cluster.name,
            "apiServerEndpoint": bootstrap.cluster.endpoint,
            "certificateAuthority": bootstrap.cluster.ca_bundle,
            "cidr": bootstrap.cluster.cidr,
        },
        "kubelet": {
            "config": _kubelet_config(bootstrap, has_own_dns),
            "flags": [f"--node-labels={join_pairs(bootstrap.labels)}"],
        },
    }
    if bootstrap.raid0:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    return {"apiVersion": _API_VERSION, "kind": "NodeConfig", "spec": spec}


def _kubelet_config(bootstrap: Bootstrap, has_own_dns: bool) -> dict[str, Any]:
    dns = {"clusterDNS": list(bootstrap.dns)} if bootstrap.dns and not has_own_dns else {}
    taints = [taint.to_object() for taint in bootstrap.taints]
    return {**dns, **bootstrap.kubelet_map, "maxPods": bootstrap.max_pods, "registerWithTaints": taints}


def _sets_cluster_dns(part: Message) -> bool:
    if part.get_content_type() != NODE_CONFIG_TYPE:
        return False
    try:
        found = load_yaml(decode_part(part))
    except UserDataError:
        return False
    for key in ("spec", "kubelet", "config"):
        found = found.get(key) if isinstance(found, dict) else None
    return isinstance(found, dict) and bool(found.get("clusterDNS"))


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
