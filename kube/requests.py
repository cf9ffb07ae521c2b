"""What a pod asks of its node, by kube-scheduler's arithmetic (reference 2.10).

`pod_facts.py` calls it for live pods, and for DaemonSet templates with limits standing in for missing requests.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from model import resources
from model.quantity import parse_resources

Json = Mapping[str, Any]


def pod_requests(spec: Json, status: Json | None = None, *, limits_too: bool = False) -> dict[str, int]:
    """Containers and sidecars together, or the largest init step where that is more; overhead; one of `pods`.

    Amounts set for the pod as a whole stand above those of its containers. While a resize is going on, the larger of
    what is asked and what is held counts. Raises QuantityError.
    """
    held = _held(status or {})
    running = resources.total(_one(container, held, limits_too) for container in spec.get("containers") or ())
    sidecars: dict[str, int] = {}
    start: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _one(container, held, limits_too)
        if container.get("restartPolicy") == "Always":
            sidecars = resources.add(sidecars, own)
            start = resources.largest(start, sidecars)
        else:
            start = resources.largest(start, resources.add(sidecars, own))
    asked = resources.largest(resources.add(running, sidecars), start) if spec.get("initContainers") else running
    whole = spec.get("resources")
    if whole:
        asked.update(_amounts(whole, limits_too))
    overhead = spec.get("overhead")
    if overhead:
        asked = resources.add(asked, parse_resources(overhead))
    asked[resources.PODS] = asked.get(resources.PODS, 0) + 1
    return asked


def _one(container: Json, held: Mapping[str, dict[str, int]], limits_too: bool) -> dict[str, int]:
    amounts = _amounts(container.get("resources") or {}, limits_too)
    resized = held.get(container["name"])
    return resources.largest(amounts, resized) if resized else amounts


def _amounts(declared: Json, limits_too: bool) -> dict[str, int]:
    requests = declared.get("requests") or {}
    if limits_too:
        requests = {**(declared.get("limits") or {}), **requests}
    return parse_resources(requests)


def _held(status: Json) -> dict[str, dict[str, int]]:
    """By container: what the kubelet has allocated or runs with; only containers that say so."""
    held: dict[str, dict[str, int]] = {}
    for container in _statuses(status):
        allocated = container.get("allocatedResources")
        actual = (container.get("resources") or {}).get("requests")
        if allocated or actual:
            held[container["name"]] = resources.largest(parse_resources(allocated), parse_resources(actual))
    return held


def _statuses(status: Json) -> Iterable[Json]:
    yield from status.get("containerStatuses") or ()
    yield from status.get("initContainerStatuses") or ()
