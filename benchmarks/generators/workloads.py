"""Workloads for planner benchmarks: seeded pods, NodePools, DaemonSets and instance types, as manifests.

    .venv/bin/python -m benchmarks.generators.workloads diverse 5000 --seed 1 --to DIRECTORY

`tenure simulate` and other planners can read the files. The five groups of `diverse` and the sizes of its pods are from
Karpenter's own scheduler benchmark. The other workloads are invented, in proportions of real clusters.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.generators.instance_types import ZONES, catalogue
from tenure.apis import labels
from tenure.cli.simulate.pod_admission import AdmissionObjects
from tenure.cli.simulate.workloads import pods_of
from tenure.kube.facts.objects import nodepool_fact
from tenure.kube.facts.pods import daemonset_fact, pod_fact
from tenure.model.facts import DaemonSetFact, NodePoolFact, PodFact
from tenure.model.instance_types import Catalogue, InstanceType
from tenure.scheduling.cluster_state import ClusterState
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change

Object = dict[str, Any]
Dice = random.Random

CREATED: Final = "2000-01-01T00:00:00Z"
LETTERS: Final = "abcdefg"
CPUS: Final = (100, 250, 500, 1000, 1500)
MEBIBYTES: Final = (100, 256, 512, 1024, 2048, 4096)
SERVICES: Final = (
    (18, 100, 128),
    (20, 250, 512),
    (10, 100, 1024),
    (16, 500, 1024),
    (12, 1000, 2048),
    (8, 1000, 4096),
    (5, 2000, 4096),
    (4, 500, 6144),
    (3, 4000, 8192),
    (2, 4000, 30720),
    (2, 7000, 14336),
)
"""Percent of the pods, millicores, MiB."""
GPU: Final = "nvidia.com/gpu"


@dataclass(frozen=True)
class Scenario:
    """`pods`, `pools` and `daemons` are manifests."""

    name: str
    pools: list[Object]
    pods: list[Object]
    daemons: list[Object]
    types: tuple[InstanceType, ...]

    def pod_facts(self) -> list[PodFact]:
        return [_unschedulable_pod(one) for one in pods_of(Path(self.name), self.pods, AdmissionObjects())]

    def pool_facts(self) -> list[NodePoolFact]:
        return [nodepool_fact(_with_defaults(one)).model_copy(update={"ready": True}) for one in self.pools]

    def daemon_facts(self) -> list[DaemonSetFact]:
        return [daemonset_fact(_with_defaults(one)) for one in self.daemons]

    def cluster_state(self, settings: PlanSettings | None = None) -> ClusterState:
        """A planner's state with the NodePools, DaemonSets and instance types, without pods."""
        state = ClusterState(settings)
        state.set_catalogue(Catalogue(by_node_class={"default": self.types}))
        state.apply(Change(kind="pool", key=one.name, fact=one) for one in self.pool_facts())
        state.apply(Change(kind="daemonset", key=one.uid, fact=one) for one in self.daemon_facts())
        return state

    def write(self, directory: Path) -> None:
        """Write `nodepools.json`, `pods.json`, `daemonsets.json` and the portable `instance-types.json`."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, objects in (("nodepools", self.pools), ("pods", self.pods), ("daemonsets", self.daemons)):
            listed = {"apiVersion": "v1", "kind": "List", "items": objects}
            (directory / f"{name}.json").write_text(json.dumps(listed) + "\n")
        (directory / "instance-types.json").write_text(json.dumps([to_portable(one) for one in self.types]) + "\n")


def make_scenario(name: str, count: int, *, seed: int = 1, most_cpus: int = 96) -> Scenario:
    """One of `KINDS` with `count` pods; `most_cpus` is the size of the largest instance type in vCPUs."""
    pods, pools = KINDS[name]
    types = catalogue(most_cpus).by_node_class["default"]
    return Scenario(name, pools(), list(pods(count, random.Random(seed))), make_daemonsets(), types)


# Pods.


def plain_pods(count: int, dice: Dice) -> Iterator[Object]:
    """Services of eleven sizes."""
    sizes = dice.choices(SERVICES, [weight for weight, _, _ in SERVICES], k=count)
    for number, (_, cpu, memory) in enumerate(sizes):
        yield make_pod(f"plain-{number}", cpu, memory)


def equal_pods(count: int, _: Dice) -> Iterator[Object]:
    """Replicas of one Deployment: 1 CPU, 1 GiB."""
    return (make_pod(f"equal-{number}", 1000, 1024) for number in range(count))


def ragged_pods(count: int, dice: Dice) -> Iterator[Object]:
    """All pods have different requests, with a log-normal distribution."""
    for number, one in enumerate(plain_pods(count, dice)):
        cpu, memory = int(dice.lognormvariate(6, 1)), int(dice.lognormvariate(6.7, 1.1))
        yield make_pod(f"ragged-{number}", min(max(cpu, 10), 8000), min(max(memory, 16), 32768)) | {"kind": one["kind"]}


def diverse_pods(count: int, dice: Dice) -> Iterator[Object]:
    """A fifth each: plain, zone spread, hostname spread, zone affinity to their own kind, hostname anti-affinity."""
    for number in range(count):
        made = (_labeled, _zone_spread, _host_spread, _zone_affinity, _host_anti_affinity)[number % 5](dice)
        yield make_pod(f"diverse-{number}", dice.choice(CPUS), dice.choice(MEBIBYTES), **made)


def crossed_pods(count: int, dice: Dice) -> Iterator[Object]:
    """As `diverse`, but spread constraints select a random label, which is usually not that of the pod."""
    for number in range(count):
        makers = (_labeled, _cross_zone_spread, _cross_host_spread, _zone_affinity, _host_anti_affinity)
        yield make_pod(f"crossed-{number}", dice.choice(CPUS), dice.choice(MEBIBYTES), **makers[number % 5](dice))


def preference_pods(count: int, dice: Dice) -> Iterator[Object]:
    """All prefer one zone and separate nodes, which is possible, and separate zones, which is not."""
    zone = {"weight": 1, "preference": {"matchExpressions": [_in_expression(labels.ZONE, ZONES[0])]}}
    mine = {"app": "nginx"}
    anti_affinity = [
        {"weight": 10, "podAffinityTerm": _affinity_term(labels.ZONE, mine)},
        {"weight": 1, "podAffinityTerm": _affinity_term(labels.HOSTNAME, mine)},
    ]
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [zone]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": anti_affinity},
    }
    for number in range(count):
        name = f"preferences-{number}"
        yield make_pod(name, dice.choice(CPUS), dice.choice(MEBIBYTES), labels=mine, affinity=affinity)


def mixed_pods(count: int, dice: Dice) -> Iterator[Object]:
    """Services; some tolerate the batch pool's taint, some require a zone, an architecture or on-demand capacity."""
    variants: tuple[Object, ...] = (
        {},
        {},
        {},
        {"tolerations": [{"key": "batch", "operator": "Exists"}]},
        {"nodeSelector": {labels.CAPACITY_TYPE: labels.ON_DEMAND}},
        {"nodeSelector": {labels.ARCH: "arm64"}},
        {"nodeSelector": {labels.ARCH: "amd64", labels.ZONE: ZONES[1]}},
    )
    for one in plain_pods(count, dice):
        one["spec"] |= dice.choice(variants)
        yield one


def gpu_pods(count: int, dice: Dice) -> Iterator[Object]:
    """One pod in ten requests one to four GPUs and tolerates their taint; the others are services."""
    for number, one in enumerate(plain_pods(count, dice)):
        if number % 10:
            yield one
            continue
        tolerated = [{"key": GPU, "operator": "Exists"}]
        yield make_pod(f"gpu-{number}", 3000, 12288, gpus=dice.choice((1, 1, 1, 2, 4)), tolerations=tolerated)


def make_pod(
    name: str, cpu: int, memory: int, *, gpus: int = 0, labels: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    """`cpu` in millicores, `memory` in MiB."""
    requests: Object = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"} | ({GPU: str(gpus)} if gpus else {})
    resources = {"requests": requests} | ({"limits": {GPU: str(gpus)}} if gpus else {})
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    metadata = {"name": name, "namespace": "default", "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def _labeled(dice: Dice) -> Object:
    return {"labels": {"my-label": dice.choice(LETTERS)}}


def _zone_spread(dice: Dice) -> Object:
    mine = {"spread-zone": dice.choice(LETTERS)}
    return {"labels": mine, "topologySpreadConstraints": [_spread_constraint(labels.ZONE, mine)]}


def _host_spread(dice: Dice) -> Object:
    mine = {"spread-host": dice.choice(LETTERS)}
    return {"labels": mine, "topologySpreadConstraints": [_spread_constraint(labels.HOSTNAME, mine)]}


def _cross_zone_spread(dice: Dice) -> Object:
    others = {"my-label": dice.choice(LETTERS)}
    return _labeled(dice) | {"topologySpreadConstraints": [_spread_constraint(labels.ZONE, others)]}


def _cross_host_spread(dice: Dice) -> Object:
    others = {"my-label": dice.choice(LETTERS)}
    return _labeled(dice) | {"topologySpreadConstraints": [_spread_constraint(labels.HOSTNAME, others)]}


def _zone_affinity(dice: Dice) -> Object:
    mine = {"my-affinity": dice.choice(LETTERS)}
    term = {"requiredDuringSchedulingIgnoredDuringExecution": [_affinity_term(labels.ZONE, mine)]}
    return {"labels": mine, "affinity": {"podAffinity": term}}


def _host_anti_affinity(_: Dice) -> Object:
    mine = {"app": "nginx"}
    term = {"requiredDuringSchedulingIgnoredDuringExecution": [_affinity_term(labels.HOSTNAME, mine)]}
    return {"labels": mine, "affinity": {"podAntiAffinity": term}}


def _spread_constraint(key: str, selected: Mapping[str, str]) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _label_selector(selected),
    }


def _affinity_term(key: str, selected: Mapping[str, str]) -> Object:
    return {"topologyKey": key, "labelSelector": _label_selector(selected)}


def _label_selector(selected: Mapping[str, str]) -> Object:
    return {"matchLabels": dict(selected)}


# NodePools and DaemonSets.


def one_pool() -> list[Object]:
    """One NodePool for all types without GPUs."""
    return [make_pool("default")]


def gpu_pools() -> list[Object]:
    taint = {"key": GPU, "value": "true", "effect": "NoSchedule"}
    return [
        make_pool("default"),
        make_pool("gpu", [_in_expression(labels.INSTANCE_CATEGORY, "g", "p")], taints=[taint]),
    ]


def mixed_pools() -> list[Object]:
    """A small preferred NodePool, one with spot, one with on-demand, and a tainted one for batch work."""
    first_requirements = [
        _in_expression(labels.INSTANCE_CATEGORY, "m"),
        _in_expression(labels.ARCH, "amd64"),
        _in_expression(labels.CAPACITY_TYPE, "on-demand"),
    ]
    taint = {"key": "batch", "value": "true", "effect": "NoSchedule"}
    spot = _in_expression(labels.CAPACITY_TYPE, labels.SPOT)
    return [
        make_pool("first", first_requirements, weight=50, limits={"cpu": "200"}),
        make_pool("spot", [*_NO_GPUS, spot]),
        make_pool("steady", [*_NO_GPUS, _in_expression(labels.CAPACITY_TYPE, labels.ON_DEMAND)]),
        make_pool("batch", [*_NO_GPUS, spot], taints=[taint]),
    ]


def make_pool(name: str, requirements: list[Object] | None = None, *, taints: Any = (), **spec: Any) -> Object:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"nodeClassRef": reference, "requirements": requirements or _NO_GPUS, "taints": list(taints)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}, **spec},
    }


def make_daemonsets() -> list[Object]:
    """DaemonSets of every EKS node."""
    return [_make_daemonset(*one) for one in (("kube-proxy", 100, 0), ("aws-node", 50, 0), ("agent", 100, 200))]


def _make_daemonset(name: str, cpu: int, memory: int) -> Object:
    made = make_pod(name, cpu, memory, tolerations=[{"operator": "Exists"}])
    metadata = {"name": name, "namespace": "kube-system"}
    template = {"metadata": {"labels": {"app": name}}, "spec": made["spec"]}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def _in_expression(key: str, *values: str) -> Object:
    return {"key": key, "operator": "In", "values": list(values)}


_NO_GPUS: Final = [_in_expression(labels.INSTANCE_CATEGORY, "c", "m", "r", "x")]

KINDS: Final[Mapping[str, tuple[Callable[[int, Dice], Iterator[Object]], Callable[[], list[Object]]]]] = {
    "equal": (equal_pods, one_pool),
    "plain": (plain_pods, one_pool),
    "ragged": (ragged_pods, one_pool),
    "diverse": (diverse_pods, one_pool),
    "crossed": (crossed_pods, one_pool),
    "preferences": (preference_pods, one_pool),
    "mixed": (mixed_pods, mixed_pools),
    "gpu": (gpu_pods, gpu_pools),
}


def to_portable(one: InstanceType) -> Object:
    """Convert to the portable format of `tenure/cli/simulate/portable_types.py`, which other planners can read."""
    return {
        "name": one.name,
        "architecture": one.labels[labels.ARCH][0],
        "operatingSystems": list(one.labels[labels.OS]),
        "resources": _format_quantities(one.capacity),
        "overhead": _format_quantities(one.overhead),
        "offerings": [
            {
                "Price": offering.price,
                "Available": offering.available,
                "Requirements": [
                    _in_expression(labels.CAPACITY_TYPE, offering.capacity_type),
                    _in_expression(labels.ZONE, offering.zone),
                    _in_expression(labels.ZONE_ID, offering.zone_id),
                ],
            }
            for offering in one.offerings
        ],
    }


def _format_quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in amounts.items()}


def _with_defaults(one: Object) -> Object:
    """Add fields that an API server sets."""
    metadata = one["metadata"]
    known = {"uid": metadata["name"], "namespace": "default", "creationTimestamp": CREATED}
    return {**one, "metadata": {**known, **metadata}}


def _unschedulable_pod(one: Object) -> PodFact:
    return pod_fact(_with_defaults(one)).model_copy(update={"unschedulable": True})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("pods", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-cpus", type=int, default=96, help="size of the largest instance type, in vCPUs")
    parser.add_argument("--to", type=Path, default=Path(), help="directory to write the manifests to")
    options = parser.parse_args()
    make_scenario(options.kind, options.pods, seed=options.seed, most_cpus=options.most_cpus).write(options.to)


if __name__ == "__main__":
    main()
