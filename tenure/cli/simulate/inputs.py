"""The inputs of a simulation: manifests as facts for the planner, validated as by an API server."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from tenure.apis.nodepool import NodePool
from tenure.cli.exit_codes import UsageError
from tenure.cli.simulate import workloads
from tenure.cli.simulate.manifests import Object, of_kind, parse_object, read_objects
from tenure.cli.simulate.pod_admission import EFFECTS, admit_pod_spec, check_pod
from tenure.cli.simulate.workloads import KINDS, StorageObjects, claims_of_sets, ephemeral_claims, pods_of
from tenure.kube.facts.objects import node_fact, nodeclaim_fact, nodepool_fact, overlay_fact
from tenure.kube.facts.pods import daemonset_fact, pod_fact
from tenure.model.facts import DaemonSetFact, NamespaceFact, NodeClaimFact, NodeFact, NodePoolFact, PodFact, Taint
from tenure.model.instance_types import InstanceType
from tenure.model.nodeoverlays import OverlayFact, apply_overlays
from tenure.model.requirements import BOUNDS, IN, Requirements
from tenure.policy.nodepool import validate_nodepool
from tenure.scheduling.instance_type_table import InstanceTypeTable
from tenure.scheduling.nodeoverlays import OverlayTarget, evaluate_overlays, nodepool_labels

T = TypeVar("T")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_REQUIREMENTS: Final = "spec.template.spec.requirements"
_CONTEXT_KINDS: Final = ("Namespace", "PriorityClass")
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_EXISTING_KINDS: Final = ("Node", "NodeClaim", "Pod", *_CONTEXT_KINDS)


@dataclass
class SimulationInputs:
    pools: list[NodePoolFact]
    pods: list[PodFact]
    types: tuple[InstanceType, ...]
    daemons: list[DaemonSetFact] = field(default_factory=list)
    nodes: list[NodeFact] = field(default_factory=list)
    claims: list[NodeClaimFact] = field(default_factory=list)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Labels by namespace."""
    priorities: dict[str, int] = field(default_factory=lambda: dict(_BUILT_IN))
    """Values by PriorityClass; the empty name is the default class."""
    overlays: tuple[OverlayFact, ...] = ()
    volumes: StorageObjects = field(default_factory=StorageObjects)

    def types_offered_to(self, pool: NodePoolFact) -> Iterable[InstanceType]:
        """Instance types with the NodeOverlays of `pool` applied."""
        return apply_overlays(self.types, self.overlays, nodepool_labels(pool)) if self.overlays else self.types

    def list_namespaces(self) -> Iterator[NamespaceFact]:
        """Namespaces of the files and of the pods, with the label that the API server adds."""
        for name in sorted({*self.labels, *(pod.namespace for pod in self.pods)}):
            yield NamespaceFact(name=name, labels={_NAMESPACE_NAME: name, **self.labels.get(name, {})})


def read_inputs(
    nodepools: Path, pods: Path, types: tuple[InstanceType, ...], daemonsets: Path | None, nodes: Path | None
) -> SimulationInputs:
    volumes = StorageObjects()
    objects = _read(volumes, nodepools, "NodePool", "NodeOverlay")
    chosen = of_kind(nodepools, [one for one in objects if one["kind"] == "NodePool"], "NodePool")
    found = SimulationInputs(
        pools=_parse_facts(nodepools, chosen, read_nodepool), pods=[], types=types, volumes=volumes
    )
    found.overlays = _accepted_overlays(nodepools, [one for one in objects if one["kind"] == "NodeOverlay"], found)
    pod_objects = _read(volumes, pods, *KINDS, *_CONTEXT_KINDS, *workloads.BUFFERS_KINDS)
    _add_objects(found, pods, [one for one in pod_objects if one["kind"] not in workloads.BUFFERS_KINDS])
    found.pods += workloads.read_buffer_pods(pods, pod_objects)
    if daemonsets:
        found.daemons = _parse_facts(daemonsets, _read(volumes, daemonsets, "DaemonSet"), _read_daemonset)
    if nodes:
        _add_objects(found, nodes, _read(volumes, nodes, *_EXISTING_KINDS))
    found.pods = [one if one.priority else _with_priority(one, found.priorities) for one in found.pods]
    return found


def read_nodepool(raw: Mapping[str, Any]) -> NodePoolFact:
    """Ready by default. Raises ValueError for an object that an API server or the worker would reject."""
    found = nodepool_fact(raw).model_copy(update={"ready": True})
    requirements = Requirements.from_expressions(found.requirements)
    for one in found.requirements:
        if one.operator in BOUNDS and int(one.values[0]) < 0:
            raise ValueError(f"{_REQUIREMENTS}: {one.key} {one.operator}: {one.values[0]!r}; write 0 or more")
        if one.min_values is not None and not 1 <= one.min_values <= 50:
            raise ValueError(f"{_REQUIREMENTS}: {one.key}: minValues: {one.min_values}; write 1 to 50")
        if one.min_values is not None and one.operator == IN and len(one.values) < one.min_values:
            raise ValueError(
                f"{_REQUIREMENTS}: {one.key}: minValues: {one.min_values} of {len(one.values)} values; list more"
            )
    for key, met in requirements.items():
        if met.present and not met.complement and not met.values:
            raise ValueError(
                f"{_REQUIREMENTS}: the requirements for {key} exclude each other, so no node satisfies them"
            )
    for name, amount in found.limits.items():
        if amount < 0:
            raise ValueError(f"spec.limits.{name}: {raw['spec']['limits'][name]!r} is negative; write 0 or more")
    if not 0 <= found.weight <= 100:
        raise ValueError(f"spec.weight: {found.weight}; write 1 to 100")
    _check_taints((*found.taints, *found.startup_taints), "spec.template.spec")
    violations = validate_nodepool(NodePool.from_object(raw))
    if violations:
        raise ValueError("; ".join(violations))
    return found


def check_nodepools_satisfiable(
    path: Path, pools: Iterable[NodePoolFact], source: Path, types: tuple[InstanceType, ...]
) -> None:
    """Raises `UsageError` for a NodePool without a compatible instance type."""
    table = InstanceTypeTable(types)
    for one in pools:
        requirements = Requirements.from_expressions(one.requirements)
        fitting = table.types_with(requirements)
        if not (fitting & table.rows_of(table.offerings_with(requirements))).any():
            raise UsageError(
                f"{path}: NodePool {one.name}: {_REQUIREMENTS}: no instance type in {source} satisfies {requirements}"
            )


def _accepted_overlays(path: Path, objects: list[Object], found: SimulationInputs) -> tuple[OverlayFact, ...]:
    """Raises `UsageError` for overlays that a worker would report as invalid on the object."""
    evaluation = evaluate_overlays(
        _parse_facts(path, objects, overlay_fact),
        [OverlayTarget(nodepool_labels(one), found.types) for one in found.pools],
    )
    for name, validation in evaluation.validations.items():
        if validation.reason:
            raise UsageError(f"{path}: NodeOverlay {name}: {validation.message}")
    return evaluation.accepted


def _add_objects(found: SimulationInputs, path: Path, objects: list[Object]) -> None:
    """Add pods and the objects that exist alongside them."""
    by_kind: dict[str, list[Object]] = {}
    for one in objects:
        by_kind.setdefault(one["kind"], []).append(one)
    found.nodes += _parse_facts(path, by_kind.pop("Node", []), _read_node)
    found.claims += _parse_facts(path, by_kind.pop("NodeClaim", []), nodeclaim_fact)
    for fact in _parse_facts(path, by_kind.pop("Namespace", []), _read_namespace):
        found.labels[fact.name] = fact.labels
    for name, value, default in _parse_facts(path, by_kind.pop("PriorityClass", []), _read_priority_class):
        found.priorities |= {name: value, "": value} if default else {name: value}
    others = [one for kind in by_kind.values() for one in kind]
    pods = list(pods_of(path, others))
    found.pods += _parse_facts(path, pods, _read_pod)
    found.volumes.add_generated_claims(path, chain(claims_of_sets(others), ephemeral_claims(pods)))


def _read(volumes: StorageObjects, path: Path, *kinds: str) -> list[Object]:
    return of_kind(path, volumes.split_off_storage(path, read_objects(path)), *kinds)


def _parse_facts(path: Path, objects: Iterable[Object], read: Callable[[Mapping[str, Any]], T]) -> list[T]:
    return [parse_object(path, one, read) for one in objects]


def _read_daemonset(raw: Mapping[str, Any]) -> DaemonSetFact:
    admit_pod_spec(raw["spec"]["template"]["spec"], "spec.template.spec")
    found = daemonset_fact(raw)
    check_pod(found.pod)
    return found


def _read_node(raw: Mapping[str, Any]) -> NodeFact:
    found = node_fact(raw)
    _check_taints(found.taints, "spec")
    conditions = (raw.get("status") or {}).get("conditions")
    return found if conditions else found.model_copy(update={"ready": True})


def _read_namespace(raw: Mapping[str, Any]) -> NamespaceFact:
    metadata = raw["metadata"]
    return NamespaceFact(name=metadata["name"], labels=metadata.get("labels", {}))


def _read_pod(raw: Mapping[str, Any]) -> PodFact:
    """An unbound pod without scheduling gates is unschedulable."""
    found = pod_fact(raw)
    check_pod(found)
    waits = not found.node_name and not raw["spec"].get("schedulingGates")
    return found.model_copy(update={"unschedulable": True}) if waits else found


def _read_priority_class(raw: Mapping[str, Any]) -> tuple[str, int, bool]:
    value = raw["value"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"value: {value!r}; write a whole number")
    return raw["metadata"]["name"], value, bool(raw.get("globalDefault"))


def _with_priority(pod: PodFact, priorities: Mapping[str, int]) -> PodFact:
    """0 for an unknown class."""
    value = priorities.get(pod.priority_class, 0)
    return pod.model_copy(update={"priority": value}) if value else pod


def _check_taints(taints: Iterable[Taint], where: str) -> None:
    for one in taints:
        if one.effect not in EFFECTS:
            raise ValueError(f"{where}: taint {one.key}: effect: {one.effect!r}; write {', '.join(EFFECTS)}")
