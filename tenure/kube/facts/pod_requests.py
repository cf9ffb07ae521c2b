"""Requests of a pod by kube-scheduler's arithmetic (reference 2.10), during a resize too (reference 10.3)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tenure.apis import resources
from tenure.apis.quantity import MAX_AMOUNT, parse_amount, parse_resources
from tenure.kube.facts.objects import true_condition

Json = Mapping[str, Any]


def pod_requests(spec: Json, status: Json | None = None, *, limits_too: bool = False) -> dict[str, int]:
    """Requests of containers and sidecars, or of the largest init step if larger, plus overhead and one of `pods`.

    Pod-level amounts override those of containers. During a resize, the larger of request and allocation counts, but
    only the allocation if the resize is infeasible (reference 10.3). Raises QuantityError.
    """
    status = status or {}
    allocated, is_infeasible = _allocated_by_container(status), _is_resize_infeasible(status)

    def of_container(container: Json) -> dict[str, int]:
        declared = _declared_requests(container.get("resources") or {}, limits_too)
        return _resized_requests(declared, allocated.get(container["name"]), is_infeasible)

    running = resources.sum_resources(of_container(container) for container in spec.get("containers") or ())
    sidecars: dict[str, int] = {}
    init_peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        container_requests = of_container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = resources.add(sidecars, container_requests)
            init_peak = resources.elementwise_max(init_peak, sidecars)
        else:
            init_peak = resources.elementwise_max(init_peak, resources.add(sidecars, container_requests))
    requested = (
        resources.elementwise_max(resources.add(running, sidecars), init_peak)
        if spec.get("initContainers")
        else running
    )
    pod_level = spec.get("resources")
    if pod_level:
        declared = _declared_requests(pod_level, limits_too)
        requested.update(_resized_requests(declared, _allocated_resources(status), is_infeasible))
    overhead = spec.get("overhead")
    if overhead:
        requested = resources.add(requested, parse_resources(overhead))
    requested[resources.PODS] = requested.get(resources.PODS, 0) + 1
    return requested


def _resized_requests(
    declared: dict[str, int], allocated: dict[str, int] | None, is_infeasible: bool
) -> dict[str, int]:
    if not allocated:
        return declared
    return allocated if is_infeasible else resources.elementwise_max(declared, allocated)


def _is_resize_infeasible(status: Json) -> bool:
    """Whether the requested amounts never fit the node. A deferred resize may fit later, so it is not infeasible."""
    pending = true_condition(status, "PodResizePending")
    return pending.get("reason") == "Infeasible"


def _declared_requests(declared: Json, limits_too: bool) -> dict[str, int]:
    requests = declared.get("requests") or {}
    if limits_too:
        requests = {**(declared.get("limits") or {}), **requests}
    return parse_resources(requests)


def _allocated_by_container(status: Json) -> dict[str, dict[str, int]]:
    """Allocated resources by container, for containers that report allocated or actual resources."""
    by_container = {one["name"]: _allocated_resources(one) for one in _container_statuses(status)}
    return {name: amounts for name, amounts in by_container.items() if amounts}


def _allocated_resources(status: Json) -> dict[str, int]:
    """The larger of allocated and actual resources of a container or a pod; empty if neither is reported."""
    allocated, actual = status.get("allocatedResources"), (status.get("resources") or {}).get("requests")
    if not (allocated or actual):
        return {}
    return resources.elementwise_max(parse_resources(allocated), parse_resources(actual))


def _oversized_request(spec: Json) -> str:
    """The first request that no node can satisfy, as `field: amount`; empty if none. Raises QuantityError."""
    for path, requests in _request_lists(spec):
        for resource, text in requests.items():
            if parse_amount(resource, text) >= MAX_AMOUNT:
                return f"{path}.{resource}: {text}"
    return ""


def _request_lists(spec: Json) -> Iterator[tuple[str, Json]]:
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            yield f"spec.{kind}[{container['name']}].resources.requests", _requests_of(container)
    yield "spec.resources.requests", _requests_of(spec)
    yield "spec.overhead", spec.get("overhead") or {}


def _requests_of(declaring: Json) -> Json:
    return (declaring.get("resources") or {}).get("requests") or {}


def _container_statuses(status: Json) -> Iterable[Json]:
    yield from status.get("containerStatuses") or ()
    yield from status.get("initContainerStatuses") or ()


def explain_oversized(spec: Json, requests: Mapping[str, int]) -> str:
    if max(requests.values()) < MAX_AMOUNT:
        return ""
    return f"{_oversized_request(spec) or 'the sum of requests'} is more than any instance type has"


def requests_on_node(requests: Mapping[str, int]) -> dict[str, int]:
    """The requests of a bound pod, without amounts that no node has.

    Such an amount overflows the 64 bits of kube-scheduler and the kubelet, for which it is then small: for example,
    `cpu: 1e30` fits every node. Otherwise, the kubelet rejects the pod.
    """
    return {resource: amount for resource, amount in requests.items() if amount < MAX_AMOUNT}
