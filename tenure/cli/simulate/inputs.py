"""What a simulation is given: manifests as the planner's facts, checked as an API server would check them.

`simulate.py` plans on these. Whatever is wrong is `Refused`, and nothing is planned.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from tenure.apis.nodepool import NodePool
from tenure.cli.exit_codes import Refused
from tenure.cli.simulate import workloads
from tenure.cli.simulate.manifests import Object, of_kind, parsed, read_objects
from tenure.cli.simulate.pod_admission import EFFECTS, admitted, check_pod
from tenure.cli.simulate.workloads import KINDS, Volumes, claims_of_sets, ephemeral_claims, pods_of
from tenure.kube.facts.objects import claim_fact, node_fact, overlay_fact, pool_fact
from tenure.kube.facts.pods import daemonset_fact, pod_fact
from tenure.model.facts import ClaimFact, DaemonSetFact, NamespaceFact, NodeFact, PodFact, PoolFact, Taint
from tenure.model.instance_types import InstanceType
from tenure.model.nodeoverlays import OverlayFact, lay
from tenure.model.requirements import BOUNDS, IN, Requirements
from tenure.policy.nodepool import validate_node_pool
from tenure.scheduling.instance_type_table import TypeTable
from tenure.scheduling.nodeoverlays import Ground, judge, labels_of

T = TypeVar("T")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_REQUIREMENTS: Final = "spec.template.spec.requirements"
_AROUND: Final = ("Namespace", "PriorityClass")
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_STANDING: Final = ("Node", "NodeClaim", "Pod", *_AROUND)


@dataclass
class Given:
    """A cluster on paper."""

    pools: list[PoolFact]
    pods: list[PodFact]
    types: tuple[InstanceType, ...]
    daemons: list[DaemonSetFact] = field(default_factory=list)
    nodes: list[NodeFact] = field(default_factory=list)
    claims: list[ClaimFact] = field(default_factory=list)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of namespaces, by name."""
    priorities: dict[str, int] = field(default_factory=lambda: dict(_BUILT_IN))
    """Of priority classes by name; that of the empty name is the default."""
    overlays: tuple[OverlayFact, ...] = ()
    volumes: Volumes = field(default_factory=Volumes)

    def sold_by(self, pool: PoolFact) -> Iterable[InstanceType]:
        """The instance types as its NodeOverlays make them."""
        return lay(self.types, self.overlays, labels_of(pool)) if self.overlays else self.types

    def namespaces(self) -> Iterator[NamespaceFact]:
        """Those that are given and those that pods are in, with the label that each has by itself."""
        for name in sorted({*self.labels, *(pod.namespace for pod in self.pods)}):
            yield NamespaceFact(name=name, labels={_NAMESPACE_NAME: name, **self.labels.get(name, {})})


def given(
    nodepools: Path, pods: Path, types: tuple[InstanceType, ...], daemonsets: Path | None, nodes: Path | None
) -> Given:
    """Raises `Refused`."""
    volumes = Volumes()
    objects = _read(volumes, nodepools, "NodePool", "NodeOverlay")
    chosen = of_kind(nodepools, [one for one in objects if one["kind"] == "NodePool"], "NodePool")
    found = Given(pools=_facts(nodepools, chosen, pool), pods=[], types=types, volumes=volumes)
    found.overlays = _heeded(nodepools, [one for one in objects if one["kind"] == "NodeOverlay"], found)
    wanted = _read(volumes, pods, *KINDS, *_AROUND, *workloads.BUFFERS_KINDS)
    _take(found, pods, [one for one in wanted if one["kind"] not in workloads.BUFFERS_KINDS])
    found.pods += workloads.room_of(pods, wanted)
    if daemonsets:
        found.daemons = _facts(daemonsets, _read(volumes, daemonsets, "DaemonSet"), _daemonset)
    if nodes:
        _take(found, nodes, _read(volumes, nodes, *_STANDING))
    found.pods = [one if one.priority else _prioritised(one, found.priorities) for one in found.pods]
    return found


def pool(raw: Mapping[str, Any]) -> PoolFact:
    """Ready, as nobody has said otherwise. Raises ValueError for what an API server or the worker would refuse."""
    found = pool_fact(raw).model_copy(update={"ready": True})
    wanted = Requirements.of(found.requirements)
    for one in found.requirements:
        if one.operator in BOUNDS and int(one.values[0]) < 0:
            raise ValueError(f"{_REQUIREMENTS}: {one.key} {one.operator}: {one.values[0]!r}; write 0 or more")
        if one.min_values is not None and not 1 <= one.min_values <= 50:
            raise ValueError(f"{_REQUIREMENTS}: {one.key}: minValues: {one.min_values}; write 1 to 50")
        if one.min_values is not None and one.operator == IN and len(one.values) < one.min_values:
            raise ValueError(
                f"{_REQUIREMENTS}: {one.key}: minValues: {one.min_values} of {len(one.values)} values; list more"
            )
    for key, met in wanted.items():
        if met.present and not met.complement and not met.values:
            raise ValueError(f"{_REQUIREMENTS}: those on {key} exclude each other, so that no node satisfies them")
    for name, amount in found.limits.items():
        if amount < 0:
            raise ValueError(f"spec.limits.{name}: {raw['spec']['limits'][name]!r} is below zero; write 0 or more")
    if not 0 <= found.weight <= 100:
        raise ValueError(f"spec.weight: {found.weight}; write 1 to 100")
    _check_taints((*found.taints, *found.startup_taints), "spec.template.spec")
    wrong = validate_node_pool(NodePool.from_object(raw))
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def check_sold(path: Path, pools: Iterable[PoolFact], source: Path, types: tuple[InstanceType, ...]) -> None:
    """A pool that no type satisfies is never meant. Raises `Refused`."""
    table = TypeTable(types)
    for one in pools:
        wanted = Requirements.of(one.requirements)
        fitting = table.types_with(wanted)
        if not (fitting & table.rows_of(table.offerings_with(wanted))).any():
            raise Refused(
                f"{path}: NodePool {one.name}: {_REQUIREMENTS}: no instance type in {source} satisfies {wanted}"
            )


def _heeded(path: Path, objects: list[Object], found: Given) -> tuple[OverlayFact, ...]:
    """A worker would leave out what it does not heed, and say so on the object. Raises `Refused`."""
    judged = judge(_facts(path, objects, overlay_fact), [Ground(labels_of(one), found.types) for one in found.pools])
    for name, verdict in judged.verdicts.items():
        if verdict.reason:
            raise Refused(f"{path}: NodeOverlay {name}: {verdict.message}")
    return judged.heeded


def _take(found: Given, path: Path, objects: list[Object]) -> None:
    """Pods, and what they are to be seen among."""
    by_kind: dict[str, list[Object]] = {}
    for one in objects:
        by_kind.setdefault(one["kind"], []).append(one)
    found.nodes += _facts(path, by_kind.pop("Node", []), _node)
    found.claims += _facts(path, by_kind.pop("NodeClaim", []), claim_fact)
    for fact in _facts(path, by_kind.pop("Namespace", []), _namespace):
        found.labels[fact.name] = fact.labels
    for name, value, default in _facts(path, by_kind.pop("PriorityClass", []), _priority):
        found.priorities |= {name: value, "": value} if default else {name: value}
    workloads = [one for kind in by_kind.values() for one in kind]
    pods = list(pods_of(path, workloads))
    found.pods += _facts(path, pods, _pod)
    found.volumes.make_up(path, chain(claims_of_sets(workloads), ephemeral_claims(pods)))


def _read(volumes: Volumes, path: Path, *kinds: str) -> list[Object]:
    return of_kind(path, volumes.taken_out(path, read_objects(path)), *kinds)


def _facts(path: Path, objects: Iterable[Object], read: Callable[[Mapping[str, Any]], T]) -> list[T]:
    return [parsed(path, one, read) for one in objects]


def _daemonset(raw: Mapping[str, Any]) -> DaemonSetFact:
    admitted(raw["spec"]["template"]["spec"], "spec.template.spec")
    found = daemonset_fact(raw)
    check_pod(found.pod)
    return found


def _node(raw: Mapping[str, Any]) -> NodeFact:
    found = node_fact(raw)
    _check_taints(found.taints, "spec")
    conditions = (raw.get("status") or {}).get("conditions")
    return found if conditions else found.model_copy(update={"ready": True})


def _namespace(raw: Mapping[str, Any]) -> NamespaceFact:
    metadata = raw["metadata"]
    return NamespaceFact(name=metadata["name"], labels=metadata.get("labels", {}))


def _pod(raw: Mapping[str, Any]) -> PodFact:
    """One that is bound nowhere waits for a node, unless gates hold it back."""
    found = pod_fact(raw)
    check_pod(found)
    waits = not found.node_name and not raw["spec"].get("schedulingGates")
    return found.model_copy(update={"unschedulable": True}) if waits else found


def _priority(raw: Mapping[str, Any]) -> tuple[str, int, bool]:
    value = raw["value"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"value: {value!r}; write a whole number")
    return raw["metadata"]["name"], value, bool(raw.get("globalDefault"))


def _prioritised(pod: PodFact, priorities: Mapping[str, int]) -> PodFact:
    """A class that is not given counts for nothing."""
    value = priorities.get(pod.priority_class, 0)
    return pod.model_copy(update={"priority": value}) if value else pod


def _check_taints(taints: Iterable[Taint], where: str) -> None:
    for one in taints:
        if one.effect not in EFFECTS:
            raise ValueError(f"{where}: taint {one.key}: effect: {one.effect!r}; write {', '.join(EFFECTS)}")
