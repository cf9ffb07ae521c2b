"""Random pod templates with every scheduling field that Tenure implements."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.generators.instance_types import ZONES
from tenure.apis import labels

Object = dict[str, Any]
Dice = random.Random
CLUSTER: Final = "oracle.tenure.sh/cluster"
"""Label and taint of all nodes of a cluster. Several clusters share an API server."""
TEAM: Final = "team"
TEAMS: Final = ("red", "blue")
APPS: Final = ("web", "api", "db", "queue")
GPU: Final = "nvidia.com/gpu"
HOST_PORTS: Final = (8080, 9090)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
PRIORITY_CLASSES: Final = ("low", "high")
RUNTIME_CLASS: Final = "sandboxed"
CPUS: Final = ("0", "100m", "250m", "500m", "1", "1900m", "3")
MEMORIES: Final = ("64Mi", "256Mi", "1Gi", "3Gi", "7Gi")
DISK_GIB: Final = ("1Gi", "4Gi")
_FIELDS_PER_TEMPLATE: Final = (0, 1, 1, 2, 2, 3)


@dataclass(frozen=True)
class Site:
    """Names of a cluster that pods refer to."""

    cluster: str
    namespaces: tuple[str, str]
    nodes: tuple[str, ...]
    """Existing nodes."""


def random_template(dice: Dice, site: Site, *, app: str) -> Object:
    """A pod template with its namespace: random requests, and up to three random placement fields."""
    metadata = {
        "namespace": dice.choice((site.namespaces[0], *site.namespaces)),
        "labels": {"app": app, "rev": dice.choice("12"), "tier": dice.choice(("front", "back"))},
        # kwok starts no pod, since its status has no effect on the placement of others.
        "annotations": {"sandbox.tenure.sh/starts-after": "never"},
    }
    spec: Object = {
        "containers": [{"name": "main", "image": "registry.example/app:1"}],
        "nodeSelector": {CLUSTER: site.cluster},
        "tolerations": [{"key": CLUSTER, "value": site.cluster, "effect": "NoSchedule"}],
    }
    add_requests(dice, spec)
    for add_field in dice.sample(PLACEMENT_FIELDS, dice.choice(_FIELDS_PER_TEMPLATE)):
        add_field(dice, spec, metadata, site)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def add_requests(dice: Dice, spec: Object) -> None:
    """Requests of containers, init containers, sidecars or the pod, and the overhead of a RuntimeClass."""
    (main,) = spec["containers"]
    main["resources"] = {"requests": _amounts(dice)} if dice.random() < 0.9 else {}
    match dice.randrange(12):
        case 0:
            spec["initContainers"] = [_container("init", _amounts(dice))]
        case 1:
            sidecar = {**_container("sidecar", _amounts(dice)), "restartPolicy": "Always"}
            spec["initContainers"] = [sidecar, _container("init", _amounts(dice))]
        case 2:
            main["resources"] = {}
            spec["resources"] = {"requests": _amounts(dice)}
        case 3:
            spec["runtimeClassName"] = RUNTIME_CLASS
        case 4:
            gpus = {GPU: "1"}
            main["resources"] = {"requests": _amounts(dice) | gpus, "limits": gpus}
        case 5:
            main["resources"].setdefault("requests", {})["ephemeral-storage"] = dice.choice(DISK_GIB)


def _amounts(dice: Dice) -> Object:
    return {"cpu": dice.choice(CPUS), "memory": dice.choice(MEMORIES)}


def _container(name: str, requests: Object) -> Object:
    return {"name": name, "image": "registry.example/app:1", "resources": {"requests": requests}}


def _add_node_selector(dice: Dice, spec: Object, _: Object, site: Site) -> None:
    key, value = dice.choice(
        (
            (labels.ZONE, dice.choice(ZONES)),
            (labels.CAPACITY_TYPE, dice.choice((labels.SPOT, labels.ON_DEMAND))),
            (labels.ARCH, dice.choice(("amd64", "arm64"))),
            (TEAM, dice.choice(TEAMS)),
        )
    )
    spec["nodeSelector"][key] = value


def _add_node_affinity(dice: Dice, spec: Object, _: Object, site: Site) -> None:
    terms = [_node_term(dice, site) for _ in range(dice.choice((1, 1, 2)))]
    _affinity(spec, "nodeAffinity")[REQUIRED] = {"nodeSelectorTerms": terms}


def _add_node_preference(dice: Dice, spec: Object, _: Object, site: Site) -> None:
    preference = {"matchExpressions": [_node_expression(dice)]}
    _affinity(spec, "nodeAffinity")[PREFERRED] = [{"weight": dice.randint(1, 100), "preference": preference}]


def _node_term(dice: Dice, site: Site) -> Object:
    if site.nodes and dice.random() < 0.15:
        operator = dice.choice(("In", "NotIn"))
        return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [dice.choice(site.nodes)]}]}
    return {"matchExpressions": [_node_expression(dice) for _ in range(dice.choice((1, 1, 2)))]}


def _node_expression(dice: Dice) -> Object:
    return dice.choice(
        (
            {"key": labels.ZONE, "operator": dice.choice(("In", "NotIn")), "values": dice.sample(ZONES, 2)},
            {"key": labels.INSTANCE_CATEGORY, "operator": "In", "values": dice.sample(("c", "m", "r"), 2)},
            {"key": labels.INSTANCE_CPU, "operator": dice.choice(("Gt", "Lt")), "values": [dice.choice("48")]},
            {"key": labels.CAPACITY_TYPE, "operator": "NotIn", "values": [labels.SPOT]},
            {"key": TEAM, "operator": "NotIn", "values": [dice.choice(TEAMS)]},
            {"key": TEAM, "operator": dice.choice(("Exists", "DoesNotExist"))},
        )
    )


def _add_toleration(dice: Dice, spec: Object, _: Object, site: Site) -> None:
    by_value = {"key": TEAM, "value": dice.choice(TEAMS), "effect": dice.choice(("NoSchedule", "NoExecute"))}
    spec["tolerations"] += [dice.choice((by_value, {"key": TEAM, "operator": "Exists"}))]


def _add_pod_affinity(dice: Dice, spec: Object, metadata: Object, site: Site) -> None:
    _affinity(spec, "podAffinity")[REQUIRED] = [_pod_term(dice, metadata, site)]


def _add_pod_anti_affinity(dice: Dice, spec: Object, metadata: Object, site: Site) -> None:
    _affinity(spec, "podAntiAffinity")[REQUIRED] = [_pod_term(dice, metadata, site)]


def _add_pod_preference(dice: Dice, spec: Object, metadata: Object, site: Site) -> None:
    kind = dice.choice(("podAffinity", "podAntiAffinity"))
    term = {"weight": dice.randint(1, 100), "podAffinityTerm": _pod_term(dice, metadata, site)}
    _affinity(spec, kind)[PREFERRED] = [term]


def _affinity(spec: Object, kind: str) -> Object:
    found: Object = spec.setdefault("affinity", {}).setdefault(kind, {})
    return found


def _pod_term(dice: Dice, metadata: Object, site: Site) -> Object:
    term: Object = {
        "topologyKey": dice.choice((labels.ZONE, labels.HOSTNAME)),
        "labelSelector": _selector(dice, metadata),
    }
    match dice.randrange(8):
        case 0:
            term["namespaces"] = list(site.namespaces)
        case 1:
            term["namespaceSelector"] = {"matchLabels": {CLUSTER: site.cluster}}
        case 2:
            term["matchLabelKeys"] = ["rev"]
        case 3:
            term["mismatchLabelKeys"] = ["tier"]
    return term


def _add_spread(dice: Dice, spec: Object, metadata: Object, site: Site) -> None:
    keys = dice.sample((labels.ZONE, labels.HOSTNAME, labels.CAPACITY_TYPE), dice.choice((1, 1, 2)))
    spec["topologySpreadConstraints"] = [_spread_constraint(dice, key, metadata) for key in keys]


def _spread_constraint(dice: Dice, key: str, metadata: Object) -> Object:
    hard = dice.random() < 0.8
    found: Object = {
        "topologyKey": key,
        "maxSkew": dice.choice((1, 1, 2)),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": _selector(dice, metadata),
    }
    match dice.randrange(6):
        case 0 if hard and key == labels.ZONE:
            found["minDomains"] = dice.choice((2, 3))
        case 1:
            # With nodeTaintsPolicy Ignore, the nodes of other clusters would count, too.
            found |= {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
        case 2:
            found["nodeTaintsPolicy"] = "Honor"
        case 3:
            found["matchLabelKeys"] = ["rev"]
    return found


def _selector(dice: Dice, metadata: Object) -> Object:
    """Selects the pod's own app, or another one."""
    own = metadata["labels"]["app"]
    match dice.randrange(6):
        case 0:
            return {"matchLabels": {"app": dice.choice(APPS)}}
        case 1:
            return {"matchExpressions": [{"key": "app", "operator": "In", "values": [own, dice.choice(APPS)]}]}
        case 2:
            return {"matchLabels": {"app": own}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
        case _:
            return {"matchLabels": {"app": own}}


def _add_host_port(dice: Dice, spec: Object, _: Object, site: Site) -> None:
    if dice.random() < 0.3:
        spec["hostNetwork"] = True
        spec["containers"][0]["ports"] = [{"containerPort": dice.choice(HOST_PORTS)}]
        return
    address = dice.choice(("", "", "127.0.0.1", "10.1.2.3"))
    port = {"containerPort": 80, "hostPort": dice.choice(HOST_PORTS), "protocol": dice.choice(("TCP", "TCP", "UDP"))}
    spec["containers"][0]["ports"] = [port | ({"hostIP": address} if address else {})]


def _add_priority(dice: Dice, spec: Object, _: Object, site: Site) -> None:
    spec["priorityClassName"] = dice.choice(PRIORITY_CLASSES)


def _add_volume(dice: Dice, spec: Object, metadata: Object, site: Site) -> None:
    """A volume whose claim `random_cluster.py` creates for each pod."""
    metadata["annotations"][CLUSTER] = dice.choice(("bound", "bound", "any-zone", "first-zone", "two-zones"))


PLACEMENT_FIELDS: Final[Sequence[Callable[[Dice, Object, Object, Site], None]]] = (
    _add_node_selector,
    _add_node_affinity,
    _add_node_preference,
    _add_toleration,
    _add_pod_affinity,
    _add_pod_anti_affinity,
    _add_pod_preference,
    _add_spread,
    _add_spread,
    _add_host_port,
    _add_priority,
    _add_volume,
)
