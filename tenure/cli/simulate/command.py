"""`tenure simulate`: the planner on manifests, with no cluster, no AWS and no Temporal.

What is planned is what the worker would plan: the same code, the same settings.
"""

import gc
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.console import print_renderables
from tenure.cli.exit_codes import UsageError
from tenure.cli.output import Output
from tenure.cli.simulate.inputs import SimulationInputs, check_nodepools_satisfiable, read_inputs
from tenure.cli.simulate.portable_types import read_types
from tenure.cli.simulate.results import Simulation, as_json, as_table, build_simulation
from tenure.model.instance_types import Catalogue, ReservationHeadroom
from tenure.scheduling.cluster_state import Change, ClusterState
from tenure.scheduling.settings import PlanSettings

app = typer.Typer(add_completion=False)

_STORAGE = "PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes may stand in any of the files."
_PODS = f"Pods, workloads, CapacityBuffers, Namespaces and PriorityClasses. {_STORAGE}"
Pools = Annotated[Path, typer.Option(help="NodePools and NodeOverlays in YAML or JSON.")]
Pods = Annotated[Path, typer.Option(help=_PODS)]
Daemons = Annotated[Path | None, typer.Option(help="DaemonSets in YAML or JSON.")]
Nodes = Annotated[Path | None, typer.Option(help="What stands: Nodes, NodeClaims, Pods, Namespaces.")]
Types = Annotated[Path, typer.Option(help="Exported by Tenure, or in the portable form.")]
Preferences = Annotated[str, typer.Option(envvar="PREFERENCE_POLICY", help="Respect or Ignore.")]
MinValues = Annotated[str, typer.Option(envvar="MIN_VALUES_POLICY", help="Strict or BestEffort.")]


@app.command()
def simulate(
    nodepools: Pools,
    pods: Pods,
    instance_types: Types,
    daemonsets: Daemons = None,
    nodes: Nodes = None,
    preference_policy: Preferences = "Respect",
    min_values_policy: MinValues = "Strict",
    node_cost: Annotated[float, typer.Option(envvar="NODE_COST", min=0)] = PlanSettings().node_cost,
    output: Output = "table",
) -> None:
    """Say which nodes would be bought for these pods, what they would cost, and which pods find no place and why."""
    _check_choice("--preference-policy", preference_policy, "Respect", "Ignore")
    _check_choice("--min-values-policy", min_values_policy, "Strict", "BestEffort")
    settings = PlanSettings.model_validate(
        {
            "preference_policy": preference_policy,
            "min_values_policy": min_values_policy,
            "node_cost": node_cost,
        }
    )
    types, reservations = read_types(instance_types)
    inputs = read_inputs(nodepools, pods, types, daemonsets, nodes)
    check_nodepools_satisfiable(nodepools, inputs.pools, instance_types, types)
    found = plan_simulation(inputs, settings, reservations)
    print_renderables(output, as_json(found), as_table(found))


def plan_simulation(inputs: SimulationInputs, settings: PlanSettings, reservations: Mapping[str, int]) -> Simulation:
    """The plan, with how long planning itself took. `reservations`: how many nodes each has room for."""
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
            *(Change(kind="pod", key=one.uid, fact=one) for one in inputs.pods),
        ]
    )
    headroom = {key: ReservationHeadroom(available=number, at=now) for key, number in reservations.items()}
    # What is read stays until the end: no need to look through it for garbage.
    gc.freeze()
    began = time.perf_counter()
    plan = state.provision(now=now, reservations=headroom)
    seconds = time.perf_counter() - began
    offered_types = {one.name: {kind.name: kind for kind in inputs.types_offered_to(one)} for one in inputs.pools}
    return build_simulation(plan, {one.uid: one for one in inputs.pods}, offered_types, seconds)


def _check_choice(option: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise UsageError(f"simulate: {option} {value}: write {' or '.join(choices)}")
