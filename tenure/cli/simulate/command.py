"""`tenure simulate`: the worker's planner and settings, applied to manifests. Needs no cluster, AWS or Temporal."""

import gc
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from tenure.apis.scheduler_config import parse_default_constraints
from tenure.cli.command import command
from tenure.cli.exit_codes import UsageError
from tenure.cli.output import Result
from tenure.cli.simulate.inputs import SimulationInputs, find_unsatisfiable_pools, read_inputs
from tenure.cli.simulate.manifests import format_kinds
from tenure.cli.simulate.portable_types import read_types
from tenure.cli.simulate.results import Simulation, as_json, build_simulation, format_simulation
from tenure.model.instance_types import Catalogue, ReservationHeadroom
from tenure.scheduling.cluster_state import Change, ClusterState
from tenure.scheduling.settings import PlanSettings

_DEFAULTS: Final = PlanSettings()
_STORAGE: Final = "PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes may be in any file."
_PODS: Final = f"Pods, workloads, CapacityBuffers, Namespaces and PriorityClasses. {_STORAGE}"
Pools = Annotated[Path, typer.Option(help="NodePools and NodeOverlays in YAML or JSON.")]
Pods = Annotated[Path, typer.Option(help=_PODS)]
Daemons = Annotated[Path | None, typer.Option(help="DaemonSets in YAML or JSON.")]
Nodes = Annotated[Path | None, typer.Option(help="Existing Nodes, NodeClaims, Pods and Namespaces.")]
Types = Annotated[Path, typer.Option(help="Instance types, exported by Tenure or in the portable format.")]
Preferences = Annotated[
    Literal["Respect", "Ignore"],
    typer.Option(envvar="PREFERENCE_POLICY", help="Respect or ignore preferred affinities and topology spread."),
]
MinValues = Annotated[
    Literal["Strict", "BestEffort"],
    typer.Option(envvar="MIN_VALUES_POLICY", help="Whether minValues of requirements are binding."),
]
NodeCost = Annotated[float, typer.Option(envvar="NODE_COST", min=0, help="USD/h added to the price of each node.")]

SchedulerConfig = Annotated[
    str, typer.Option(envvar="SCHEDULER_CONFIG", help="YAML or JSON with default topology spread constraints.")
]


@command
def simulate(
    nodepools: Pools,
    pods: Pods,
    instance_types: Types,
    daemonsets: Daemons = None,
    nodes: Nodes = None,
    preference_policy: Preferences = "Respect",
    min_values_policy: MinValues = "Strict",
    node_cost: NodeCost = _DEFAULTS.node_cost,
    scheduler_config: SchedulerConfig = "",
) -> Result:
    """List the nodes that would be launched for these pods, their prices, and the unschedulable pods with reasons."""
    settings = PlanSettings(
        preference_policy=preference_policy, min_values_policy=min_values_policy, node_cost=node_cost
    )
    types, reservations = read_types(instance_types)
    inputs = read_inputs(nodepools, pods, types, daemonsets, nodes, _read_constraints(scheduler_config))
    unsatisfiable = find_unsatisfiable_pools(inputs, instance_types)
    if len(unsatisfiable) == len(inputs.pools):
        pool, reason = next(iter(unsatisfiable.items()))
        raise UsageError(f"{nodepools}: NodePool {pool}: {reason}")
    if inputs.skipped:
        typer.echo(f"skipped kinds that do not affect the plan: {format_kinds(inputs.skipped)}", err=True)
    found = plan_simulation(inputs, settings, reservations)
    notes = {
        "unsatisfiableNodePools": unsatisfiable,
        "withoutReplicas": inputs.unscaled,
        "rejectedDaemonSets": inputs.rejected_daemonsets,
    }
    lines = [
        *(f"NodePool {pool} launches no nodes: {reason}" for pool, reason in unsatisfiable.items()),
        *(f"{one} has no replicas" for one in inputs.unscaled),
        *(f"DaemonSet {name} has no pods: {reason}" for name, reason in inputs.rejected_daemonsets.items()),
    ]
    return Result(as_json(found) | notes, [*format_simulation(found), *lines])


def _read_constraints(text: str) -> list[Mapping[str, Any]]:
    try:
        return parse_default_constraints(text)
    except ValueError as error:
        raise UsageError(f"--scheduler-config: {error}") from error


def plan_simulation(inputs: SimulationInputs, settings: PlanSettings, reservations: Mapping[str, int]) -> Simulation:
    """The plan and its duration. `reservations`: number of free nodes by capacity reservation."""
    now = datetime.now(UTC)
    state = ClusterState(settings)
    state.set_catalogue(Catalogue(by_node_class={pool.node_class: inputs.types for pool in inputs.pools}))
    state.apply(
        [
            *inputs.volumes.to_changes(),
            *(Change(kind="pool", key=one.name, fact=one) for one in inputs.pools),
            *(Change(kind="overlay", key=one.name, fact=one) for one in inputs.overlays),
            *(Change(kind="node", key=one.name, fact=one) for one in inputs.nodes),
            *(Change(kind="claim", key=one.name, fact=one) for one in inputs.claims),
            *(Change(kind="daemonset", key=one.uid, fact=one) for one in inputs.daemons),
            *(Change(kind="namespace", key=one.name, fact=one) for one in inputs.list_namespaces()),
            *(Change(kind="pod_budget", key=one.key, fact=one) for one in inputs.pod_budgets),
            *(Change(kind="pod", key=one.uid, fact=one) for one in inputs.pods),
        ]
    )
    headroom = {key: ReservationHeadroom(available=number, at=now) for key, number in reservations.items()}
    # The inputs live until the end, so garbage collection does not need to scan them.
    gc.freeze()
    began = time.perf_counter()
    plan = state.provision(now=now, reservations=headroom)
    seconds = time.perf_counter() - began
    offered_types = {one.name: {kind.name: kind for kind in inputs.types_offered_to(one)} for one in inputs.pools}
    return build_simulation(plan, {one.uid: one for one in inputs.pods}, offered_types, seconds)
