"""The inputs of a simulation: manifests as facts for the planner, validated as by an API server."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from tenure.cli.exit_codes import UsageError
from tenure.cli.simulate import workloads
from tenure.cli.simulate.manifest_files import ManifestFiles, read_files
from tenure.cli.simulate.manifests import Object, describe_object, parse_object, raising_usage_error, read_metadata
from tenure.cli.simulate.pod_admission import ADMISSION_KINDS, EFFECTS, AdmissionObjects, check_pod
from tenure.cli.simulate.workloads import StorageObjects
from tenure.kube.client.resources import SERVICES
from tenure.kube.facts.default_spread import DefaultSpread
from tenure.kube.facts.objects import (
    namespace_fact,
    node_fact,
    nodeclaim_fact,
    nodepool_fact,
    overlay_fact,
    pod_budget_fact,
)
from tenure.kube.facts.pods import daemonset_fact, pod_fact
from tenure.model.facts import (
    DaemonSetFact,
    NamespaceFact,
    NodeClaimFact,
    NodeFact,
    NodePoolFact,
    PodDisruptionBudgetFact,
    PodFact,
    Taint,
)
from tenure.model.instance_types import InstanceType
from tenure.model.nodeoverlays import OverlayFact, apply_overlays
from tenure.model.requirements import Requirements
from tenure.scheduling.instance_type_table import InstanceTypeTable
from tenure.scheduling.nodeoverlays import OverlayTarget, evaluate_overlays
from tenure.scheduling.nodepool_requirements import nodepool_labels

T = TypeVar("T")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_REQUIREMENTS: Final = "spec.template.spec.requirements"
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POD_KINDS: Final = (*workloads.KINDS, *workloads.BUFFERS_KINDS)
_EXISTING_KINDS: Final = ("Node", "NodeClaim", "Pod")


@dataclass
class SimulationInputs:
    types: tuple[InstanceType, ...]
    skipped: Counter[str] = field(default_factory=Counter)
    """Number of objects of kinds that do not affect a plan."""
    pools: list[NodePoolFact] = field(default_factory=list)
    pods: list[PodFact] = field(default_factory=list)
    unscaled: list[str] = field(default_factory=list)
    """Workloads without replicas."""
    daemons: list[DaemonSetFact] = field(default_factory=list)
    rejected_daemonsets: dict[str, str] = field(default_factory=dict)
    """Names of DaemonSets without pods, with the API server's error."""
    nodes: list[NodeFact] = field(default_factory=list)
    claims: list[NodeClaimFact] = field(default_factory=list)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Labels by namespace."""
    priorities: dict[str, int] = field(default_factory=lambda: dict(_BUILT_IN))
    """Values by PriorityClass; the empty name is the default class."""
    overlays: tuple[OverlayFact, ...] = ()
    volumes: StorageObjects = field(default_factory=StorageObjects)
    admission: AdmissionObjects = field(default_factory=AdmissionObjects)
    pod_budgets: list[PodDisruptionBudgetFact] = field(default_factory=list)
    default_spread: DefaultSpread = field(default_factory=DefaultSpread)

    def types_offered_to(self, pool: NodePoolFact) -> Iterable[InstanceType]:
        """Instance types with the NodeOverlays of `pool` applied."""
        return apply_overlays(self.types, self.overlays, nodepool_labels(pool)) if self.overlays else self.types

    def list_namespaces(self) -> Iterator[NamespaceFact]:
        """Namespaces of the files and of the pods, with the label that the API server adds."""
        for name in sorted({*self.labels, *(pod.namespace for pod in self.pods)}):
            yield NamespaceFact(name=name, labels={_NAMESPACE_NAME: name, **self.labels.get(name, {})})

    def read_pod(self, raw: Mapping[str, Any]) -> PodFact:
        """An unbound pod without scheduling gates is unschedulable. Raises ValueError."""
        found = self.admission.device_classes.check_pod(pod_fact(raw))
        check_pod(found)
        if not raw.get("status") and (reason := self._rejection_reason(found, raw["spec"])):
            found = found.model_copy(update={"unplannable": reason})
        found = self.default_spread.apply(found)
        waits = not found.node_name and not raw["spec"].get("schedulingGates")
        return found.model_copy(update={"unschedulable": True}) if waits else found

    def _rejection_reason(self, pod: PodFact, spec: dict[str, Any]) -> str:
        missing = self.admission.missing_runtime_class(spec)
        return missing or self.admission.rules.explain_rejection(pod.name, spec, pod.namespace)

    def read_daemonset(self, raw: Mapping[str, Any]) -> DaemonSetFact | None:
        """None for a DaemonSet whose pods the API server rejects; the reason is noted. Raises ValueError."""
        template, where = raw["spec"]["template"], "spec.template.spec"
        read_metadata(template, "spec.template.metadata")
        if missing := self.admission.missing_runtime_class(template["spec"], where):
            raise ValueError(missing)
        name, namespace = raw["metadata"]["name"], raw["metadata"]["namespace"]
        spec = self.admission.admit(template["spec"], namespace, where)
        found = daemonset_fact(raw, spec)
        check_pod(found.pod)
        forbidden = self.admission.rules.explain_rejection(name, spec, namespace)
        if forbidden:
            self.rejected_daemonsets[name] = forbidden
        return None if forbidden else self.admission.device_classes.check_daemonset(found)


def read_inputs(
    nodepools: Path,
    pods: Path,
    types: tuple[InstanceType, ...],
    daemonsets: Path | None,
    nodes: Path | None,
    default_constraints: Iterable[Mapping[str, Any]] = (),
) -> SimulationInputs:
    """All files are one set of objects. Raises `UsageError` for invalid objects."""
    expected = ((nodepools, ("NodePool",)), (pods, _POD_KINDS), (daemonsets, ("DaemonSet",)), (nodes, _EXISTING_KINDS))
    files = read_files([(path, kinds) for path, kinds in expected if path])
    spread = DefaultSpread(default_constraints)
    unused = Counter(one["kind"] for _, one in files.of_kind(SERVICES.kind) if not spread.is_on)
    found = SimulationInputs(types=types, skipped=files.skipped + unused, default_spread=spread)
    found.pools = _parse_facts(files.of_kind("NodePool"), _read_nodepool)
    found.overlays = _accepted_overlays(files.of_kind("NodeOverlay"), found)
    _add_context(found, files)
    found.daemons = [one for one in _parse_facts(files.of_kind("DaemonSet"), found.read_daemonset) if one]
    for path, objects in files.by_path.items():
        _add_pods(found, path, objects)
    found.pods = [one if one.priority else _with_priority(one, found.priorities) for one in found.pods]
    return found


def _read_nodepool(raw: Mapping[str, Any]) -> NodePoolFact:
    """Ready by default. Raises ValueError for values that only the planner rejects."""
    found = nodepool_fact(raw).model_copy(update={"ready": True})
    for name, amount in found.limits.items():
        if amount < 0:
            raise ValueError(f"spec.limits.{name}: {raw['spec']['limits'][name]!r}: negative, expected 0 or more")
    return found


def find_unsatisfiable_pools(inputs: SimulationInputs, source: Path) -> dict[str, str]:
    """NodePools without a compatible instance type in the file `source`, with the reason."""
    table = InstanceTypeTable(inputs.types)
    reasons = {}
    for one in inputs.pools:
        requirements = Requirements.from_expressions(one.requirements)
        fitting = table.types_with(requirements)
        if not (fitting & table.rows_of(table.offerings_with(requirements))).any():
            reasons[one.name] = f"{_REQUIREMENTS}: no instance type in {source} satisfies {requirements}"
    return reasons


def _accepted_overlays(objects: list[tuple[Path, Object]], found: SimulationInputs) -> tuple[OverlayFact, ...]:
    """Raises `UsageError` for overlays that a worker would report as invalid on the object."""
    evaluation = evaluate_overlays(
        _parse_facts(objects, overlay_fact), [OverlayTarget(nodepool_labels(one), found.types) for one in found.pools]
    )
    paths = {one["metadata"]["name"]: path for path, one in objects}
    for name, validation in evaluation.validations.items():
        if validation.reason:
            raise UsageError(f"{paths[name]}: NodeOverlay {name}: {validation.message}")
    return evaluation.accepted


def _add_context(found: SimulationInputs, files: ManifestFiles) -> None:
    """Add all objects except pods and their owners. They may be in any file."""
    for path, objects in files.by_path.items():
        found.volumes.add_objects(path, objects)
    for path, one in files.of_kind(*ADMISSION_KINDS):
        with raising_usage_error(f"{path}: {describe_object(one)}"):
            found.admission.add_object(one)
    for path, one in files.of_kind(SERVICES.kind, *workloads.SPREAD_KINDS):
        with raising_usage_error(f"{path}: {describe_object(one)}"):
            found.default_spread.update(*workloads.spread_selector(one))
    found.nodes = _parse_facts(files.of_kind("Node"), _read_node)
    found.claims = _parse_facts(files.of_kind("NodeClaim"), nodeclaim_fact)
    found.pod_budgets = _parse_facts(files.of_kind("PodDisruptionBudget"), pod_budget_fact)
    found.labels = {one.name: one.labels for one in _parse_facts(files.of_kind("Namespace"), namespace_fact)}
    for name, value, default in _parse_facts(files.of_kind("PriorityClass"), _read_priority_class):
        found.priorities |= {name: value, "": value} if default else {name: value}


def _add_pods(found: SimulationInputs, path: Path, objects: Sequence[Object]) -> None:
    """Add the pods and the pods of workloads and CapacityBuffers of one file."""
    owners = [one for one in objects if one["kind"] in workloads.KINDS]
    pods = list(workloads.pods_of(path, owners, found.admission))
    found.pods += _parse_facts([(path, one) for one in pods], found.read_pod)
    found.pods += workloads.read_buffer_pods(path, objects, found.admission)
    found.unscaled += workloads.workloads_without_replicas(owners)
    claims = chain(workloads.claims_of_sets(owners), workloads.ephemeral_claims(pods))
    found.volumes.add_generated_claims(path, claims)


def _parse_facts(objects: Iterable[tuple[Path, Object]], read: Callable[[Mapping[str, Any]], T]) -> list[T]:
    return [parse_object(path, one, read) for path, one in objects]


def _read_node(raw: Mapping[str, Any]) -> NodeFact:
    found = node_fact(raw)
    _check_taints(found.taints, "spec")
    conditions = (raw.get("status") or {}).get("conditions")
    return found if conditions else found.model_copy(update={"ready": True})


def _read_priority_class(raw: Mapping[str, Any]) -> tuple[str, int, bool]:
    value = raw["value"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"value: {value!r}, expected a whole number, e.g. 1000")
    return raw["metadata"]["name"], value, bool(raw.get("globalDefault"))


def _with_priority(pod: PodFact, priorities: Mapping[str, int]) -> PodFact:
    """0 for an unknown class."""
    value = priorities.get(pod.priority_class, 0)
    return pod.model_copy(update={"priority": value}) if value else pod


def _check_taints(taints: Iterable[Taint], where: str) -> None:
    for one in taints:
        if one.effect not in EFFECTS:
            raise ValueError(f"{where}: taint {one.key}: effect: {one.effect!r}, expected one of {', '.join(EFFECTS)}")
