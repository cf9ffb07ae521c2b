"""Why pods stay unscheduled: the reasons of all NodePools, or a planning budget that their constraints exceed."""

from collections.abc import Mapping
from typing import Final

from tenure.apis.labels import NODEPOOL, ZONE
from tenure.model.blockers import NEARNESS, NODEPOOL_NOT_READY
from tenure.model.facts import PodFact
from tenure.model.plan import UnschedulablePod
from tenure.scheduling.nodepool_template import RejectionReason
from tenure.scheduling.pods import Variant

NO_NODEPOOL_AVAILABLE: Final = RejectionReason(
    "no existing node has room, and no NodePool is ready to launch one", NODEPOOL_NOT_READY
)


def unscheduled_pod(pod: PodFact, reason: str, code: str) -> UnschedulablePod:
    return UnschedulablePod(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, reason=str(reason), code=code)


def explain_rejections(variant: Variant, by_pool: Mapping[str, RejectionReason]) -> RejectionReason:
    """Names every pool, the nearest first, then in the given order; only those that the pods select, if any exist."""
    if NODEPOOL in variant.requirements:
        selected = variant.requirements[NODEPOOL]
        by_pool = {name: one for name, one in by_pool.items() if selected.has(name)} or by_pool
    if not by_pool:
        return NO_NODEPOOL_AVAILABLE
    every = sorted(by_pool.items(), key=lambda one: NEARNESS.index(one[1].code))
    return RejectionReason("; ".join(f"pool {name}: {rejection}" for name, rejection in every), every[0][1].code)


def explain_exceeded_budget(domains_by_key: Mapping[str, int]) -> str:
    """`domains_by_key`: the number of usable domains of each topology key."""
    domains = ", ".join(f"{key} with {count} values" for key, count in domains_by_key.items())
    return (
        f"spec.topologySpreadConstraints and spec.affinity: planning takes too long for {domains or 'them'}; "
        f"expected fewer terms, or labels with fewer values, e.g. {ZONE}"
    )
