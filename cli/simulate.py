"""`tenure simulate`: the planner on manifests, with no cluster, no AWS and no Temporal.

What is planned is what the worker would plan: the same code, the same settings.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli import buffers
from cli.exits import Refused
from cli.manifests import Object, of_kind, parsed, read_objects
from cli.portable_types import read_types
from cli.simulated import Simulation, as_json, as_table, simulation
from cli.workloads import KINDS, pods_of
from kube.facts import node_fact, overlay_fact, pool_fact
from kube.pod_facts import daemonset_fact, pod_fact
from model.catalogue import Catalogue, InstanceType
from model.facts import DaemonSetFact, NodeFact, PodFact, PoolFact
from model.overlays import OverlayFact, lay
from model.requirements import RequirementError, Requirements
from scheduling.overlays import Ground, judge, labels_of
from scheduling.state import Change, ClusterState, PlanSettings
from scheduling.typetable import TypeTable

app = typer.Typer()

NOW = datetime(2000, 1, 2, tzinfo=UTC)
"""After everything in the manifests; plans ask no clock."""

Manifests = Annotated[Path, typer.Option(help="Manifests in YAML or JSON.")]
Pools = Annotated[Path, typer.Option(help="Manifests in YAML or JSON; NodeOverlays among them count.")]
Wanted = Annotated[Path, typer.Option(help="Manifests in YAML or JSON; CapacityBuffers among them want room.")]
Maybe = Annotated[Path | None, typer.Option(help="Manifests in YAML or JSON.")]
Types = Annotated[Path, typer.Option(help="Exported by Tenure, or in the portable form.")]
Policy = Annotated[str, typer.Option(help="Respect or Ignore.")]
Output = Annotated[str, typer.Option("--output", "-o", help="table or json.")]


@app.command()
def simulate(
    nodepools: Pools,
    pods: Wanted,
    instance_types: Types,
    daemonsets: Maybe = None,
    nodes: Maybe = None,
    preference_policy: Policy = "Respect",
    planner: Annotated[str, typer.Option(envvar="PLANNER", help="greedy or priced.")] = PlanSettings().planner,
    node_cost: Annotated[float, typer.Option(envvar="NODE_COST", min=0)] = PlanSettings().node_cost,
    output: Output = "table",
) -> None:
    """Say which nodes would be bought for these pods, what they would cost, and which pods find no place and why."""
    if output not in ("table", "json"):
        raise Refused(f"simulate: --output {output}: write table or json")
    if preference_policy not in ("Respect", "Ignore"):
        raise Refused(f"simulate: --preference-policy {preference_policy}: write Respect or Ignore")
    if planner not in ("greedy", "priced"):
        raise Refused(f"simulate: --planner {planner}: write greedy or priced")
    settings = PlanSettings.model_validate(
        {"preference_policy": preference_policy, "node_cost": node_cost, "planner": planner}
    )
    types = read_types(instance_types)
    given = of_kind(nodepools, read_objects(nodepools), "NodePool", "NodeOverlay")
    chosen = [one for one in given if one["kind"] == "NodePool"]
    pools = [parsed(nodepools, one, _pool) for one in of_kind(nodepools, chosen, "NodePool")]
    _sold(nodepools, pools, instance_types, types)
    wanted = of_kind(pods, read_objects(pods), *KINDS, *buffers.KINDS)
    running = [one for one in wanted if one["kind"] not in buffers.KINDS]
    found = run(
        pools=pools,
        overlays=_heeded(nodepools, [one for one in given if one["kind"] == "NodeOverlay"], pools, types),
        pods=[
            *(parsed(pods, one, _pod) for one in pods_of(pods, running)),
            *buffers.room_of(pods, wanted),
        ],
        types=types,
        daemons=_facts(daemonsets, daemonset_fact, "DaemonSet") if daemonsets else [],
        nodes=_facts(nodes, _node, "Node") if nodes else [],
        settings=settings,
    )
    if output == "json":
        typer.echo(json.dumps(as_json(found), indent=2))
    else:
        Console().print(as_table(found))


def run(
    *,
    pools: list[PoolFact],
    overlays: Sequence[OverlayFact] = (),
    pods: list[PodFact],
    types: tuple[InstanceType, ...],
    daemons: list[DaemonSetFact],
    nodes: list[NodeFact],
    settings: PlanSettings,
) -> Simulation:
    """The plan, with how long planning itself took."""
    state = ClusterState(settings)
    state.set_catalogue(Catalogue(by_node_class={pool.node_class: types for pool in pools}))
    state.apply(
        [
            *(Change(kind="pool", key=one.name, fact=one) for one in pools),
            *(Change(kind="overlay", key=one.name, fact=one) for one in overlays),
            *(Change(kind="node", key=one.name, fact=one) for one in nodes),
            *(Change(kind="daemonset", key=one.uid, fact=one) for one in daemons),
            *(Change(kind="pod", key=one.uid, fact=one) for one in pods),
        ]
    )
    began = time.perf_counter()
    plan = state.provision(now=NOW)
    seconds = time.perf_counter() - began
    laid = {pool.name: {one.name: one for one in lay(types, overlays, labels_of(pool))} for pool in pools}
    return simulation(plan, {one.uid: one for one in pods}, laid, seconds)


def _facts(path: Path, read: Callable[[Mapping[str, Any]], Any], kind: str) -> list[Any]:
    return [parsed(path, one, read) for one in of_kind(path, read_objects(path), kind)]


def _pool(raw: Mapping[str, Any]) -> PoolFact:
    """Ready, as nobody has said otherwise. Raises ValueError for requirements that mean nothing."""
    found = pool_fact(raw).model_copy(update={"ready": True})
    try:
        Requirements.of(found.requirements)
    except RequirementError as error:
        raise ValueError(f"spec.template.spec.requirements: {error}") from error
    return found


def _heeded(
    path: Path, given: list[Object], pools: list[PoolFact], types: tuple[InstanceType, ...]
) -> tuple[OverlayFact, ...]:
    """A worker would leave out what it does not heed, and say so on the object. Raises `Refused`."""
    facts = [parsed(path, one, overlay_fact) for one in given]
    judged = judge(facts, [Ground(labels_of(pool), types) for pool in pools])
    for name, verdict in judged.verdicts.items():
        if verdict.reason:
            raise Refused(f"{path}: NodeOverlay {name}: {verdict.message}")
    return judged.heeded


def _sold(path: Path, pools: list[PoolFact], source: Path, types: tuple[InstanceType, ...]) -> None:
    """A pool that no type satisfies is never meant. Raises `Refused`."""
    table = TypeTable(types)
    for pool in pools:
        wanted = Requirements.of(pool.requirements)
        if not table.types_with(wanted).any():
            field = "spec.template.spec.requirements"
            raise Refused(f"{path}: NodePool {pool.name}: {field}: no instance type in {source} satisfies {wanted}")


def _node(raw: Mapping[str, Any]) -> NodeFact:
    found = node_fact(raw)
    conditions = (raw.get("status") or {}).get("conditions")
    return found if conditions else found.model_copy(update={"ready": True})


def _pod(raw: Object | Mapping[str, Any]) -> PodFact:
    """One that is bound nowhere waits for a node."""
    found = pod_fact(raw)
    return found if found.node_name else found.model_copy(update={"unschedulable": True})
