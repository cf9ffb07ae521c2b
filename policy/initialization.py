"""What still holds up a node's initialization, in the order in which Karpenter reports it (reference 3.4)."""

from collections.abc import Iterable

from model import labels
from model.kinds import Taint
from model.resources import Resources
from model.taints import is_known_ephemeral

_OWN_KEYS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")


def decide_waiting_for(
    *,
    ready: bool,
    taints: Iterable[Taint],
    startup_taints: Iterable[Taint],
    allocatable: Resources,
    requests: Resources,
) -> tuple[str, ...]:
    """Each as `Reason: what exactly`; empty when the node is initialized."""
    present, declared = tuple(taints), tuple(startup_taints)
    waiting = []
    if not ready:
        waiting.append(f"{labels.NODE_NOT_READY}: the kubelet does not report Ready")
    startup = [taint for taint in present if any(taint.matches(one) for one in declared)]
    if startup:
        waiting.append(f"{labels.STARTUP_TAINTS_EXIST}: {_written(startup)}")
    ephemeral = [taint for taint in present if is_known_ephemeral(taint)]
    if ephemeral:
        waiting.append(f"{labels.KNOWN_EPHEMERAL_TAINTS_EXIST}: {_written(ephemeral)}")
    missing = sorted(key for key, amount in requests.items() if amount > 0 and not allocatable.get(key))
    if missing:
        waiting.append(f"{labels.RESOURCE_NOT_REGISTERED}: {', '.join(missing)}")
    return tuple(waiting)


def decide_undeclared(taints: Iterable[Taint], declared: Iterable[Taint]) -> tuple[str, ...]:
    """Taints that neither the NodePool declares nor Kubernetes and Tenure set of their own, as `key:effect`."""
    known = tuple(declared)
    strange = [
        taint
        for taint in taints
        if not any(taint.matches(one) for one in known)
        and not is_known_ephemeral(taint)
        and not taint.key.startswith(_OWN_KEYS)
        and taint.effect != labels.PREFER_NO_SCHEDULE
    ]
    return tuple(f"{taint.key}:{taint.effect}" for taint in strange)


def undeclared_message(node: str, strange: Iterable[str]) -> str:
    """What it means that a Node carries such taints, and what to write."""
    return (
        f"Node {node} is tainted {', '.join(strange)}: only pods that tolerate it go there, and "
        "others get another node; if it goes by itself, declare it in the NodePool's startupTaints"
    )


def _written(taints: Iterable[Taint]) -> str:
    return ", ".join(f"{taint.key}:{taint.effect}" for taint in taints)
