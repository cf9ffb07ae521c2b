"""Taints, tolerations and host ports by the rules of kube-scheduler (reference 2.7)."""

from collections.abc import Iterable, Sequence, Set

from tenure.apis.labels import PREFER_NO_SCHEDULE
from tenure.apis.resources import is_known_ephemeral, is_transient_taint
from tenure.model.facts import HostPort, Taint, Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration matches the taint. An empty key or effect matches all."""
    if toleration.effect not in ("", taint.effect):
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    return toleration.key == taint.key and (
        toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
    )


def first_untolerated(
    tolerations: Sequence[Toleration], taints: Iterable[Taint], *, tolerate_preferences: bool = False
) -> Taint | None:
    """The first taint that excludes the pod. PreferNoSchedule counts unless `tolerate_preferences`."""
    for taint in taints:
        if tolerate_preferences and taint.effect == PREFER_NO_SCHEDULE:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def without_startup_taints(taints: Iterable[Taint], startup: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that remain after initialization: neither known ephemeral nor its own startup taints."""
    declared = {(taint.key, taint.effect) for taint in startup}
    return tuple(
        taint
        for taint in taints
        if not is_known_ephemeral(taint.key, taint.value, taint.effect) and (taint.key, taint.effect) not in declared
    )


def without_transient(taints: Iterable[Taint], declared: Iterable[Taint] = ()) -> tuple[Taint, ...]:
    """The taints that remain when the node recovers: without transient taints and the `declared` ones."""
    names = {taint.name for taint in declared}
    return tuple(taint for taint in taints if not is_transient_taint(taint.key) and taint.name not in names)


def format_taint(taint: Taint) -> str:
    """As in kubectl: `key=value:effect`."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def conflicting_addresses(address: str, used: Set[str]) -> Set[str]:
    """The used addresses of a port and protocol that conflict with this one. Empty means every address."""
    return used & {address, ""} if address else used


def ports_conflict(some: Iterable[HostPort], others: Iterable[HostPort]) -> bool:
    """Whether any two of them conflict. Takes linear time, since a pod may have thousands of ports."""
    addresses: dict[tuple[int, str], set[str]] = {}
    for one in some:
        addresses.setdefault((one.port, one.protocol), set()).add(one.address)
    return any(
        conflicting_addresses(one.address, addresses.get((one.port, one.protocol), set[str]())) for one in others
    )
