"""Pods and DaemonSets, pruned to what planning and drains decide on: raw JSON in, facts out.

Called for every pod event by `tenure/controller/cache/cluster_cache.py`, so it builds one plain dict and lets
pydantic read it once.

What a pod asks of its node, by kube-scheduler's arithmetic (reference 2.10).

`pod_facts.py` calls it for live pods, and for DaemonSet templates with limits standing in for missing requests.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from tenure.apis import labels, resources
from tenure.apis.quantity import parse_resources
from tenure.kube.facts.pod_topology import company, host_ports, shared
from tenure.model.facts import DaemonSetFact, PodFact, Toleration

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


MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_TOLERATION: Final = {name: name for name in ("key", "operator", "value", "effect")} | {"seconds": "tolerationSeconds"}


def pod_fact(pod: Json) -> PodFact:
    """Raises QuantityError for a request that no API server would have let in."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    owners = metadata.get("ownerReferences") or ()
    owner = controller(owners)
    return PodFact.model_validate(
        {
            "uid": metadata["uid"],
            "namespace": shared(metadata["namespace"]),
            "name": metadata["name"],
            "requests": pod_requests(spec, status),
            "created": metadata["creationTimestamp"],
            "node_name": shared(spec.get("nodeName", "")),
            **_nomination(status),
            "phase": shared(status.get("phase", "Pending")),
            "deleting": "deletionTimestamp" in metadata,
            "deletion_deadline": metadata.get("deletionTimestamp"),
            "unschedulable": _unschedulable(status),
            "untried": not spec.get("schedulingGates") and _said(status) is None,
            "owner_kind": shared(owner.get("kind", "")),
            "owner_uid": shared(owner.get("uid", "")),
            "daemonset": any(one.get("kind") == "DaemonSet" for one in owners),
            "mirror": MIRROR_ANNOTATION in annotations or any(one.get("kind") == "Node" for one in owners),
            "do_not_disrupt": annotations.get(labels.DO_NOT_DISRUPT, ""),
            "started": status.get("startTime"),
            "bound": _bound(status),
            "ready": _ready(status),
            "deletion_cost": _deletion_cost(annotations),
            **_placement(spec),
            **company(metadata, spec),
        }
    )


def daemonset_fact(daemonset: Json) -> DaemonSetFact:
    """The pod it puts on a node, from its template: limits stand in for missing requests, as admission does it."""
    metadata, spec = daemonset["metadata"], daemonset["spec"]["template"]["spec"]
    template = daemonset["spec"]["template"].get("metadata") or {}
    named = {"uid": metadata["uid"], "namespace": metadata["namespace"], "name": metadata["name"]}
    return DaemonSetFact.model_validate(
        {
            **named,
            "pod": {
                **named,
                "requests": pod_requests(spec, limits_too=True),
                "created": metadata["creationTimestamp"],
                "owner_kind": "DaemonSet",
                "owner_uid": metadata["uid"],
                "daemonset": True,
                "do_not_disrupt": (template.get("annotations") or {}).get(labels.DO_NOT_DISRUPT, ""),
                **_placement(spec),
                "host_ports": host_ports(spec),
            },
        }
    )


def virtual_pod_fact(buffer: Json, template: Json) -> PodFact:
    """A pod for which a CapacityBuffer keeps room: as in the template, but for its volumes (reference 2.20).

    `template` has the pod's metadata and spec. Raises QuantityError and ValidationError."""
    metadata, pod = buffer["metadata"], template.get("metadata") or {}
    spec = template.get("spec") or {}
    return PodFact.model_validate(
        {
            "uid": metadata["uid"],
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "requests": pod_requests(spec, limits_too=True),
            "created": metadata["creationTimestamp"],
            **_placement(spec),
            **company(pod, {**spec, "volumes": ()}),
        }
    )


def _placement(spec: Json) -> dict[str, Any]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return {
        "priority": spec.get("priority", 0),
        "priority_class": spec.get("priorityClassName", ""),
        "node_selector": spec.get("nodeSelector") or {},
        "required_terms": [expressions(term) for term in required],
        "preferred_terms": [
            {"weight": one["weight"], "expressions": expressions(one.get("preference") or {})} for one in preferred
        ],
        "tolerations": [_toleration(one) for one in spec.get("tolerations") or ()],
        "uses_match_fields": any("matchFields" in term for term in required)
        or any("matchFields" in (one.get("preference") or {}) for one in preferred),
    }


def expressions(term: Json) -> list[dict[str, Any]]:
    """The requirements of a selector term, as facts have them."""
    return [
        {"key": one["key"], "operator": one["operator"], "values": one.get("values") or ()}
        for one in term.get("matchExpressions") or ()
    ]


def _toleration(one: Json) -> Toleration | dict[str, Any]:
    said = {name: one.get(key) for name, key in _TOLERATION.items()}
    given = {name: value for name, value in said.items() if value not in (None, "")}
    plain = all(type(value) is (int if name == "seconds" else str) for name, value in given.items())
    return _kept(*given.items()) if plain else given


@lru_cache(maxsize=1024)
def _kept(*given: tuple[str, str | int]) -> Toleration:
    """Nearly all pods have the same two: they are kept once."""
    return Toleration.model_validate(dict(given))


def controller(owners: Iterable[Json]) -> Json:
    """The owner that manages the object; empty where there is none."""
    return next((one for one in owners if one.get("controller")), {})


def _nomination(status: Json) -> dict[str, str]:
    """kube-scheduler nominates by preemption and says nothing else; ours comes with a condition that names the node."""
    node = status.get("nominatedNodeName", "")
    ours = any(one["type"] == labels.NOMINATED and one.get("message") == node for one in status.get("conditions") or ())
    return {"expected_on": node} if ours else {"nominated_node": node}


def _unschedulable(status: Json) -> bool:
    said = _said(status)
    return said is not None and said.get("status") == "False" and said.get("reason") == "Unschedulable"


def _bound(status: Json) -> str | None:
    said = _said(status)
    return said.get("lastTransitionTime") if said is not None and said.get("status") == "True" else None


def _ready(status: Json) -> bool | None:
    """None before its kubelet has said anything."""
    said = next((one for one in status.get("conditions") or () if one.get("type") == labels.READY), None)
    return None if said is None else said.get("status") == "True"


def _deletion_cost(annotations: Json) -> int:
    """Zero where the annotation is not a whole number, as for Kubernetes."""
    try:
        return int(annotations.get(labels.POD_DELETION_COST, "0"))
    except ValueError:
        return 0


def _said(status: Json) -> Json | None:
    """kube-scheduler's word on the pod."""
    return next((one for one in status.get("conditions") or () if one.get("type") == "PodScheduled"), None)
