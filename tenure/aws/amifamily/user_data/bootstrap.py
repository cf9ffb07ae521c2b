"""Input of user data. Every format except Custom registers the Node with the taint `karpenter.sh/unregistered`."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import domain_of
from tenure.apis.meta import Taint
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.resources import UNREGISTERED
from tenure.aws.amifamily.families import Family
from tenure.aws.amifamily.user_data.al2 import render_al2
from tenure.aws.amifamily.user_data.al2023 import render_al2023
from tenure.aws.amifamily.user_data.bottlerocket import render_bottlerocket
from tenure.aws.amifamily.user_data.config import (
    LIMIT,
    Bootstrap,
    UserDataError,
    UserDataTooLarge,
    replace_surrogates,
    why_too_large,
)
from tenure.aws.amifamily.user_data.windows import render_windows
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.kubelet.config import Kubelet

__all__ = ["Bootstrap", "UserDataError", "UserDataTooLarge", "bootstrap_of", "node_labels", "render"]

_VERSION: Final = re.compile(r"-(v\d+\.\d+\.\d+)")
_DIALECTS: Final[dict[str, Callable[[Bootstrap], str]]] = {
    "AL2": render_al2,
    "AL2023": render_al2023,
    "Bottlerocket": render_bottlerocket,
    "Windows2019": render_windows,
    "Windows2022": render_windows,
    "Windows2025": render_windows,
}
_KUBELET_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBELET_LABELS: Final = frozenset(
    {
        labels.HOSTNAME,
        labels.INSTANCE_TYPE,
        labels.OS,
        labels.ARCH,
        labels.ZONE,
        labels.REGION,
        *(key for key in labels.NORMALIZED if key != labels.EBS_CSI_ZONE),
    }
)


def render(family: Family, bootstrap: Bootstrap) -> str:
    """Render user data, before base64. Characters that UTF-8 cannot encode are replaced.

    Raises UserDataError for user data that EC2 or the node would reject.
    """
    if problem := why_too_large(bootstrap.custom):
        raise UserDataTooLarge(problem)
    bootstrap = bootstrap.model_copy(update={"custom": replace_surrogates(bootstrap.custom)})
    dialect = _DIALECTS.get(family.name)
    text = dialect(bootstrap) if dialect else bootstrap.custom
    size = len(text.encode())
    if size > LIMIT:
        message = (
            f"spec.userData: {size} bytes with Tenure's additions, expected at most {LIMIT}; move parts into the image"
        )
        raise UserDataTooLarge(message)
    return text


def bootstrap_of(
    node_class: EC2NodeClass,
    claim: NodeClaim,
    family: Family,
    cluster: ClusterFacts,
    *,
    capacity_type: str,
    max_pods: int,
    computed: Mapping[str, Any] | None = None,
) -> Bootstrap:
    """Input of the NodeClaim's user data. `computed`: spec.kubelet with the values of its expressions."""
    raw: Mapping[str, Any] = _in_order(computed or node_class.spec.kubelet or {})
    return Bootstrap(
        cluster=cluster,
        labels=node_labels(node_class, claim, family, capacity_type),
        taints=_unique_taints((*claim.spec.taints, *claim.spec.startup_taints, UNREGISTERED)),
        kubelet=Kubelet.of(raw),
        kubelet_map=dict(raw),
        max_pods=max_pods,
        raid0=node_class.spec.instance_store_policy == "RAID0",
        image_versions=image_versions(node_class),
        custom=node_class.spec.user_data or "",
    )


def _unique_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The first of each key and effect: the API server refuses a Node with two."""
    unique: dict[tuple[str, str], Taint] = {}
    for taint in taints:
        unique.setdefault((taint.key, taint.effect), taint)
    return tuple(unique.values())


def image_versions(node_class: EC2NodeClass) -> tuple[str, ...]:
    """The alias's version, or the versions in the images' names; empty if an image has none.

    An example is v1.46.0 in bottlerocket-aws-k8s-1.34-x86_64-v1.46.0-1a2b.
    """
    if node_class.alias:
        return (node_class.alias[1],)
    found = [_VERSION.search(image.name) for image in node_class.status.amis]
    return tuple(one[1] for one in found if one) if all(found) else ()


def node_labels(node_class: EC2NodeClass, claim: NodeClaim, family: Family, capacity_type: str) -> dict[str, str]:
    """The NodeClaim's labels and the labels known at launch, sorted, without labels that a kubelet may not set."""
    found = {**claim.metadata.labels, labels.NODECLASS: node_class.name, labels.CAPACITY_TYPE: capacity_type}
    if family.syncs_taints_itself:
        found[labels.DO_NOT_SYNC_TAINTS] = "true"
    return {key: found[key] for key in sorted(found) if kubelet_may_set(key)}


def _in_order(value: Any) -> Any:
    """Sort maps by key, so that the order of keys does not change the launch template."""
    if isinstance(value, Mapping):
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(one) for one in value] if isinstance(value, list | tuple) else value


def kubelet_may_set(key: str) -> bool:
    """Whether the admission plugin NodeRestriction lets a kubelet set the label.

    Of Kubernetes' own domains, a kubelet may set only a few labels.
    """
    domain = domain_of(key)
    if domain == "node-restriction.kubernetes.io" or domain.endswith(".node-restriction.kubernetes.io"):
        return False
    if not any(domain == root or domain.endswith("." + root) for root in ("kubernetes.io", "k8s.io")):
        return True
    allowed = any(domain == root or domain.endswith("." + root) for root in _KUBELET_DOMAINS)
    return allowed or key in _KUBELET_LABELS
