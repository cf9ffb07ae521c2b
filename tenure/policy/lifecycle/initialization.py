"""Remaining blockers of initialization in Karpenter's order (reference 3.4), and expected startup durations.

A Node must have nine tenths of the resources that were expected for its NodeClaim at launch (reference 3.7).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from tenure.apis import labels
from tenure.apis.meta import Taint
from tenure.apis.quantity import format_resources
from tenure.apis.resources import Resources, is_known_ephemeral, missing_resources
from tenure.model.base import Value
from tenure.model.facts import Taint as TaintFact

_OWN_KEYS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")


def decide_waiting_for(
    *,
    ready: bool,
    taints: Iterable[TaintFact],
    startup_taints: Iterable[Taint | TaintFact],
    allocatable: Resources,
    requests: Resources,
    dra_resources: Collection[str] = (),
    missing_drivers: Sequence[str] = (),
) -> tuple[str, ...]:
    """Blockers as `Reason: detail`; empty if the node is initialized.

    `dra_resources`: those that DeviceClasses provide, which are never allocatable. `missing_drivers`: DRA drivers of
    the NodeClaim that have not published a complete pool (reference 1.15, A9).
    """
    present, declared = tuple(taints), {(one.key, one.effect) for one in startup_taints}
    waiting = []
    if not ready:
        waiting.append(f"{labels.NODE_NOT_READY}: the kubelet does not report Ready")
    startup = [taint.name for taint in present if (taint.key, taint.effect) in declared]
    if startup:
        waiting.append(f"{labels.STARTUP_TAINTS_EXIST}: {', '.join(startup)}")
    ephemeral = [taint.name for taint in present if is_known_ephemeral(taint.key, taint.value, taint.effect)]
    if ephemeral:
        waiting.append(f"{labels.KNOWN_EPHEMERAL_TAINTS_EXIST}: {', '.join(ephemeral)}")
    if missing := missing_resources(requests, allocatable, ignored=dra_resources):
        waiting.append(f"{labels.RESOURCE_NOT_REGISTERED}: {', '.join(missing)}")
    if missing_drivers:
        waiting.append(
            f"{labels.DRA_DRIVER_POOLS_NOT_PUBLISHED}: no complete ResourceSlices of {', '.join(missing_drivers)}"
        )
    return tuple(waiting)


def decide_undeclared(taints: Iterable[TaintFact], declared: Iterable[Taint | TaintFact]) -> tuple[str, ...]:
    """Taints that neither the NodePool declares nor Kubernetes or Tenure sets, as `key:effect`."""
    known = {(one.key, one.effect) for one in declared}
    return tuple(
        taint.name
        for taint in taints
        if (taint.key, taint.effect) not in known
        and not is_known_ephemeral(taint.key, taint.value, taint.effect)
        and not taint.key.startswith(_OWN_KEYS)
        and taint.effect != labels.PREFER_NO_SCHEDULE
    )


def undeclared_message(node: str, undeclared: Iterable[str]) -> str:
    return (
        f"Node {node} is tainted {', '.join(undeclared)}: only pods that tolerate it run there, and "
        "others get another node; if the taint is temporary, declare it in the NodePool's startupTaints"
    )


MIN_SAMPLES: Final = 3
"""Minimum number of samples for an expected duration."""
DEADLINE_DIVISOR: Final = 10
"""With fewer samples, the expected duration is the phase's deadline divided by this."""
MIN_EXPECTED_DURATION: Final = timedelta(seconds=10)


class Summary(Value):
    """Seconds."""

    count: int
    median: float
    p90: float
    longest: float


def summary_of(seconds: Sequence[float]) -> Summary:
    """Percentiles by nearest rank. Raises ValueError without a sample."""
    if not seconds:
        raise ValueError("no durations given")
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return Summary(count=len(ordered), median=ordered[last // 2], p90=ordered[round(last * 0.9)], longest=ordered[last])


def decide_expected(seconds: Sequence[float]) -> timedelta | None:
    """At least `MIN_EXPECTED_DURATION`, twice the median, and 1.25 times the 90th percentile; None with too few
    samples."""
    if len(seconds) < MIN_SAMPLES:
        return None
    found = summary_of(seconds)
    return max(MIN_EXPECTED_DURATION, timedelta(seconds=max(2 * found.median, 1.25 * found.p90)))


def default_expected_duration(deadline: timedelta) -> timedelta:
    return max(MIN_EXPECTED_DURATION, deadline / DEADLINE_DIVISOR)


MIN_CAPACITY_SHARE: Final = 0.9


def describe_missing_resources(requests: Mapping[str, int], expected: Mapping[str, int], has: Mapping[str, int]) -> str:
    """The resources that the Node lacks; empty if none. Amounts in the units of `tenure/apis/resources.py`."""
    lacking = []
    for resource in sorted(requests):
        required, found = expected.get(resource, 0), has.get(resource, 0)
        if requests[resource] and found < required * MIN_CAPACITY_SHARE:
            lacking.append(_describe_shortage(resource, found, required))
    return "; ".join(lacking)


def _describe_shortage(resource: str, found: int, required: int) -> str:
    has, expected = format_resources({resource: found})[resource], format_resources({resource: required})[resource]
    return f"expected {expected} of resource {resource}, but found {has} ({100 * found / required:.1f}% of expected)"
