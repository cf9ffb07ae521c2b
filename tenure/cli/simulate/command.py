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

from tenure.cli.console import draw
from tenure.cli.exit_codes import Refused
from tenure.cli.output import Output
from tenure.cli.simulate.inputs import Given, check_sold, given
from tenure.cli.simulate.portable_types import read_types
from tenure.cli.simulate.results import Simulation, as_json, as_table, simulation
from tenure.model.instance_types import Catalogue, ReservationRoom
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
    _one_of("--preference-policy", preference_policy, "Respect", "Ignore")
    _one_of("--min-values-policy", min_values_policy, "Strict", "BestEffort")
    settings = PlanSettings.model_validate(
        {
            "preference_policy": preference_policy,
            "min_values_policy": min_values_policy,
            "node_cost": node_cost,
        }
    )
    types, reservations = read_types(instance_types)
    world = given(nodepools, pods, types, daemonsets, nodes)
    check_sold(nodepools, world.pools, instance_types, types)
    found = run(world, settings, reservations)
    draw(output, as_json(found), as_table(found))


def run(world: Given, settings: PlanSettings, reservations: Mapping[str, int]) -> Simulation:
    """The plan, with how long planning itself took. `reservations`: how many nodes each has room for."""
    now = datetime.now(UTC)
    state = ClusterState(settings)
    state.set_catalogue(Catalogue(by_node_class={pool.node_class: world.types for pool in world.pools}))
    state.apply(
        [
            *world.volumes.changes(),
            *(Change(kind="pool", key=one.name, fact=one) for one in world.pools),
            *(Change(kind="overlay", key=one.name, fact=one) for one in world.overlays),
            *(Change(kind="node", key=one.name, fact=one) for one in world.nodes),
            *(Change(kind="claim", key=one.name, fact=one) for one in world.claims),
            *(Change(kind="daemonset", key=one.uid, fact=one) for one in world.daemons),
            *(Change(kind="namespace", key=one.name, fact=one) for one in world.namespaces()),
            *(Change(kind="pod", key=one.uid, fact=one) for one in world.pods),
        ]
    )
    rooms = {key: ReservationRoom(available=number, at=now) for key, number in reservations.items()}
    # What is read stays until the end: no need to look through it for garbage.
    gc.freeze()
    began = time.perf_counter()
    plan = state.provision(now=now, reservations=rooms)
    seconds = time.perf_counter() - began
    laid = {one.name: {kind.name: kind for kind in world.sold_by(one)} for one in world.pools}
    return simulation(plan, {one.uid: one for one in world.pods}, laid, seconds)


def _one_of(option: str, said: str, *choices: str) -> None:
    if said not in choices:
        raise Refused(f"simulate: {option} {said}: write {' or '.join(choices)}")
