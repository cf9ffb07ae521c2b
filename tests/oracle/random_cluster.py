"""Random clusters as manifests: NodePools, existing nodes with pods, DaemonSets, volumes and pending pods.

The seed determines the cluster. `slot` is only a part of its namespaces and of the label of its nodes, so that several
clusters share an API server.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from benchmarks.generators.instance_types import ZONES, catalogue
from benchmarks.generators.workloads import make_pool
from tenure.apis import labels
from tenure.model.instance_types import InstanceType
from tests.oracle.manifests import EBS, in_zones, make_object, node_manifest, persistent_volume, volume_claim
from tests.oracle.random_pods import (
    APPS,
    CLUSTER,
    CPUS,
    GPU,
    HOST_PORTS,
    MEMORIES,
    PRIORITY_CLASSES,
    RUNTIME_CLASS,
    TEAM,
    TEAMS,
    Dice,
    Object,
    Site,
    random_template,
)

_MAX_CPUS: Final = 16
_MAX_TYPES: Final = 20
_MAX_REPLICAS: Final = 6
_TOPOLOGIES: Final[Mapping[str, tuple[str, ...]]] = {
    "any-zone": (),
    "first-zone": ZONES[:1],
    "two-zones": ZONES[:2],
}
"""Allowed zones by StorageClass."""


@dataclass(frozen=True)
class RandomCluster:
    """All objects are manifests. `storage`: PersistentVolumes, PersistentVolumeClaims and CSINodes."""

    seed: int
    site: Site
    types: tuple[InstanceType, ...]
    pools: list[Object]
    namespaces: list[Object]
    nodes: list[Object] = field(default_factory=list)
    daemonsets: list[Object] = field(default_factory=list)
    storage: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    """Running pods have a node name and a status. Pending pods have a scheduling gate."""

    @property
    def objects(self) -> list[Object]:
        """Everything that the API server stores."""
        return [*self.namespaces, *self.nodes, *self.storage, *self.pods, *self.daemonsets]


def shared_objects() -> list[Object]:
    """PriorityClasses, the RuntimeClass and StorageClasses, which all clusters use."""
    scheduling, node, storage = "scheduling.k8s.io/v1", "node.k8s.io/v1", "storage.k8s.io/v1"
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    return [
        *(
            make_object(scheduling, "PriorityClass", name, value=value, preemptionPolicy="Never")
            for value, name in enumerate(PRIORITY_CLASSES, 1)
        ),
        make_object(node, "RuntimeClass", RUNTIME_CLASS, handler="sandboxed", overhead=overhead),
        *(
            make_object(storage, "StorageClass", name, provisioner=EBS, volumeBindingMode="WaitForFirstConsumer")
            | ({"allowedTopologies": [{"matchLabelExpressions": [in_zones(zones, "")]}]} if zones else {})
            for name, zones in _TOPOLOGIES.items()
        ),
    ]


def generate_cluster(seed: int, slot: int = 0) -> RandomCluster:
    """A cluster with up to 25 pods."""
    dice = random.Random(seed)
    site = Site(
        str(slot),
        (f"oracle-{slot}-a", f"oracle-{slot}-b"),
        tuple(f"c{seed}-node-{number}" for number in range(dice.choice((0, 1, 2, 3, 4)))),
    )
    types = tuple(dice.sample(_all_types(), dice.randint(5, _MAX_TYPES)))
    namespaces = [make_object("v1", "Namespace", name, labels={CLUSTER: site.cluster}) for name in site.namespaces]
    cluster = RandomCluster(seed, site, types, list(_random_pools(dice, site)), namespaces)
    templates = [random_template(dice, site, app=dice.choice(APPS)) for _ in range(dice.randint(2, 6))]
    for name in site.nodes:
        _add_node(dice, cluster, name, templates)
    cluster.daemonsets.extend(_random_daemonsets(dice, site, [one["metadata"]["labels"]["app"] for one in templates]))
    for number, template in enumerate(templates):
        for replica in range(dice.randint(1, _MAX_REPLICAS)):
            _add_pod(dice, cluster, template, f"c{seed}-pod-{number}-{replica}")
    return cluster


def cluster_with_daemonset(slot: int, pod_spec: Object) -> RandomCluster:
    """A cluster without nodes, a DaemonSet `agent` for all nodes, and three pods `web` with these fields."""
    site = Site(str(slot), (f"oracle-{slot}-a", f"oracle-{slot}-b"), ())
    namespaces = [make_object("v1", "Namespace", name, labels={CLUSTER: site.cluster}) for name in site.namespaces]
    zones = [{"key": labels.ZONE, "operator": "In", "values": [*ZONES]}]
    pool = make_pool("pool-0", zones, taints=[_cluster_taint(site)])
    pool["spec"]["template"]["metadata"] = {"labels": {CLUSTER: site.cluster}}
    cluster = RandomCluster(slot, site, tuple(_all_types()[:_MAX_TYPES]), [pool], namespaces)
    template: Object = {
        "metadata": {"annotations": {"sandbox.tenure.sh/starts-after": "never"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/app:1",
                    "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
                }
            ],
            "nodeSelector": {CLUSTER: site.cluster},
            "tolerations": [_cluster_toleration(site)],
        },
    }
    agent = make_object("apps/v1", "DaemonSet", "agent")
    agent["metadata"]["namespace"] = site.namespaces[0]
    of_agent = {"metadata": template["metadata"] | {"labels": {"app": "agent"}}, "spec": template["spec"]}
    cluster.daemonsets.append(agent | {"spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": of_agent}})
    metadata = template["metadata"] | {"labels": {"app": "web"}, "namespace": site.namespaces[0]}
    web = make_object("v1", "Pod", "web") | {"metadata": metadata, "spec": template["spec"] | pod_spec}
    for number in range(3):
        _add_pod(random.Random(slot), cluster, web, f"c{slot}-web-{number}")
    return cluster


@lru_cache(maxsize=1)
def _all_types() -> tuple[InstanceType, ...]:
    """Types with GPUs are rare in the catalogue, and a tenth of this list."""
    found = catalogue(_MAX_CPUS).by_node_class["default"]
    return (*found, *(one for one in found if GPU in one.capacity for _ in range(5)))


def _random_pools(dice: Dice, site: Site) -> Iterator[Object]:
    """Up to three NodePools, of which the first has no taint of a team."""
    for number in range(dice.choice((1, 1, 2, 3))):
        requirements = dice.choice(
            (
                [],
                [],
                [{"key": labels.CAPACITY_TYPE, "operator": "In", "values": [labels.ON_DEMAND]}],
                [{"key": labels.ZONE, "operator": "In", "values": dice.sample(ZONES, 2)}],
                [{"key": labels.ARCH, "operator": "In", "values": ["amd64"]}],
                [{"key": labels.INSTANCE_CPU, "operator": "Gt", "values": ["2"]}],
            )
        )
        effect = dice.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        team = [{"key": TEAM, "value": dice.choice(TEAMS), "effect": effect}] if number else []
        team_label = {TEAM: dice.choice(TEAMS)} if dice.random() < 0.6 else {}
        limits = dice.choice(({}, {}, {}, {"limits": {"cpu": "64"}}, {"limits": {"nodes": "6"}}))
        # An empty list would mean the default of the builder.
        any_os = [{"key": labels.OS, "operator": "In", "values": ["linux"]}]
        taints, weight = [_cluster_taint(site), *team], dice.choice((1, 1, 10))
        pool = make_pool(f"pool-{number}", requirements or any_os, taints=taints, weight=weight, **limits)
        pool["spec"]["template"]["metadata"] = {"labels": {CLUSTER: site.cluster, **team_label}}
        yield pool


def _add_node(dice: Dice, cluster: RandomCluster, name: str, templates: list[Object]) -> None:
    """An existing node that is at most half full. Some have a taint, a cordon or an attachment limit."""
    site, kind = cluster.site, dice.choice(cluster.types)
    offering = dice.choice(kind.offerings)
    team = {TEAM: dice.choice(TEAMS)} if dice.random() < 0.5 else {}
    # NoExecute would end the running pods.
    effect = dice.choice(("NoSchedule", "PreferNoSchedule"))
    taints = [{"key": TEAM, "value": dice.choice(TEAMS), "effect": effect}] if dice.random() < 0.2 else []
    node_labels = {CLUSTER: site.cluster, labels.NODEPOOL: "pool-0", **team}
    node = node_manifest(name, kind, offering, node_labels, [_cluster_taint(site), *taints])
    if dice.random() < 0.08:
        node["spec"]["unschedulable"] = True
    cluster.nodes.append(node)
    if dice.random() < 0.3:
        limited = {"name": EBS, "nodeID": name, "topologyKeys": [], "allocatable": {"count": dice.choice((1, 2, 3))}}
        cluster.storage.append(make_object("storage.k8s.io/v1", "CSINode", name, spec={"drivers": [limited]}))
    allocatable = kind.allocatable()
    for number in range(dice.choice((0, 1, 2, 3))):
        template = dice.choice(templates)
        milli_cpu, mebibytes = allocatable["cpu"] // 8, (allocatable["memory"] >> 20) // 8
        pod = _add_pod(dice, cluster, template, f"{name}-running-{number}", zone=offering.zone)
        _make_running(dice, pod, name, {"cpu": f"{milli_cpu}m", "memory": f"{mebibytes}Mi"})


def _make_running(dice: Dice, pod: Object, node: str, requests: Object) -> None:
    """Bind a pod with these requests of its main container. Some pods are in a resize to other requests."""
    spec = pod["spec"]
    spec["nodeName"] = node
    for field_name in ("initContainers", "resources", "runtimeClassName", "schedulingGates"):
        spec.pop(field_name, None)
    (main,) = spec["containers"]
    main["resources"] = {"requests": requests}
    status: Object = {"phase": "Running", "podIP": "10.244.0.9"}
    if dice.random() < 0.4:
        half = {"cpu": requests["cpu"], "memory": "32Mi"}
        double = {"cpu": "10m", "memory": requests["memory"]}
        allocated = dice.choice((half, double))
        container = {"name": "main", "image": main["image"], "imageID": "1", "ready": True, "restartCount": 0}
        status["containerStatuses"] = [
            container | {"allocatedResources": allocated, "resources": {"requests": allocated}}
        ]
        reason = dice.choice(("", "Deferred", "Infeasible"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    pod["status"] = status


def _add_pod(dice: Dice, cluster: RandomCluster, template: Object, name: str, *, zone: str = "") -> Object:
    """A pod of the template with its claim. `zone`: of its node, where its volume then exists."""
    metadata, spec = template["metadata"], template["spec"]
    gates = [{"name": CLUSTER}]
    pod_spec = {**spec, "containers": [*spec["containers"]], "schedulingGates": gates}
    pod = {**template, "metadata": {**metadata, "name": name}, "spec": pod_spec}
    pod["spec"]["containers"][0] = dict(pod["spec"]["containers"][0])
    if volume := metadata["annotations"].get(CLUSTER):
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        is_bound = bool(zone) or volume == "bound"
        storage_class = "any-zone" if is_bound else volume
        claim = volume_claim(name, metadata["namespace"], storage_class)
        if is_bound:
            claim["spec"]["volumeName"] = name
            key = dice.choice((labels.ZONE, labels.EBS_CSI_ZONE))
            volume_zone = zone or dice.choice(ZONES)
            cluster.storage.append(persistent_volume(name, claim, volume_zone, cluster.site.cluster, key=key))
        cluster.storage.append(claim)
    cluster.pods.append(pod)
    return pod


def _random_daemonsets(dice: Dice, site: Site, apps: Sequence[str]) -> Iterator[Object]:
    """Up to two DaemonSets: on all nodes or some, with host ports or a device, and often with an application's
    labels."""
    for number in range(dice.choice((0, 1, 1, 2))):
        name = f"agent-{number}"
        requests: Object = {"cpu": dice.choice(CPUS[:4]), "memory": dice.choice(MEMORIES[:3])}
        container: Object = {"name": "main", "image": "registry.example/agent:1", "resources": {"requests": requests}}
        spec: Object = {"containers": [container], "nodeSelector": {CLUSTER: site.cluster}}
        spec["tolerations"] = [{"operator": "Exists"}] if dice.random() < 0.6 else [_cluster_toleration(site)]
        match dice.randrange(6):
            case 0:
                container["ports"] = [{"containerPort": 80, "hostPort": HOST_PORTS[number]}]
            case 1:
                spec["hostNetwork"] = True
                container["ports"] = [{"containerPort": HOST_PORTS[number]}]
            case 2:
                spec["nodeSelector"][labels.ARCH] = "arm64"
            case 3:
                container["resources"] = {"requests": requests, "limits": {GPU: "1"}}
            case 4:
                spec["runtimeClassName"] = RUNTIME_CLASS
        labels_of_pod = {"agent": name}
        # Terms of other pods that select the application also select these pods.
        app = {"app": dice.choice(apps), "rev": "1", "tier": "front"} if dice.random() < 0.6 else {}
        template = {
            "metadata": {"labels": labels_of_pod | app, "annotations": {"sandbox.tenure.sh/starts-after": "never"}},
            "spec": spec,
        }
        found = make_object("apps/v1", "DaemonSet", name)
        found["metadata"]["namespace"] = site.namespaces[0]
        yield found | {"spec": {"selector": {"matchLabels": labels_of_pod}, "template": template}}


def _cluster_taint(site: Site) -> Object:
    return {"key": CLUSTER, "value": site.cluster, "effect": "NoSchedule"}


def _cluster_toleration(site: Site) -> Object:
    return {**_cluster_taint(site), "operator": "Equal"}
