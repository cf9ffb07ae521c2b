"""`tenure simulate`: the planner on manifests, with no cluster, no AWS and no Temporal.

What is planned is what the worker would plan: the same code, the same settings.
"""

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.exits import Refused
from cli.manifests import Object, of_kind, parsed, read_objects
from cli.portable_types import read_types
from cli.simulated import Simulation, as_json, as_table, simulation
from cli.volumes import Volumes, claims_of_sets, ephemeral_claims
from cli.workloads import KINDS, pods_of
from kube.facts import node_fact, pool_fact
from kube.pod_facts import daemonset_fact, pod_fact
from model.catalogue import Catalogue, InstanceType
from model.facts import DaemonSetFact, NodeFact, PodFact, PoolFact
from model.requirements import RequirementError, Requirements
from scheduling.state import Change, ClusterState, PlanSettings
from scheduling.typetable import TypeTable

app = typer.Typer()

NOW = datetime(2000, 1, 2, tzinfo=UTC)
"""After everything in the manifests; plans ask no clock."""

_HELP = "Manifests in YAML or JSON; objects of storage, such as PersistentVolumeClaims, may stand in any of them."
Manifests = Annotated[Path, typer.Option(help=_HELP)]
Maybe = Annotated[Path | None, typer.Option(help=_HELP)]
Types = Annotated[Path, typer.Option(help="Exported by Tenure, or in the portable form.")]
Policy = Annotated[str, typer.Option(help="Respect or Ignore.")]
Output = Annotated[str, typer.Option("--output", "-o", help="table or json.")]


@app.command()
def simulate(
    nodepools: Manifests,
    pods: Manifests,
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
    types, volumes = read_types(instance_types), Volumes()
    pools = _facts(nodepools, _pool, "NodePool", volumes)
    _sold(nodepools, pools, instance_types, types)
    daemons = _facts(daemonsets, daemonset_fact, "DaemonSet", volumes) if daemonsets else []
    standing = _facts(nodes, _node, "Node", volumes) if nodes else []
    waiting = _pods(pods, volumes)
    found = run(
        pools=pools,
        pods=waiting,
        types=types,
        daemons=daemons,
        nodes=standing,
        storage=volumes.changes(),
        settings=settings,
    )
    if output == "json":
        typer.echo(json.dumps(as_json(found), indent=2))
    else:
        Console().print(as_table(found))


def run(
    *,
    pools: list[PoolFact],
    pods: list[PodFact],
    types: tuple[InstanceType, ...],
    daemons: list[DaemonSetFact],
    nodes: list[NodeFact],
    storage: list[Change],
    settings: PlanSettings,
) -> Simulation:
    """The plan, with how long planning itself took."""
    state = ClusterState(settings)
    state.set_catalogue(Catalogue(by_node_class={pool.node_class: types for pool in pools}))
    state.apply(
        [
            *storage,
            *(Change(kind="pool", key=one.name, fact=one) for one in pools),
            *(Change(kind="node", key=one.name, fact=one) for one in nodes),
            *(Change(kind="daemonset", key=one.uid, fact=one) for one in daemons),
            *(Change(kind="pod", key=one.uid, fact=one) for one in pods),
        ]
    )
    began = time.perf_counter()
    plan = state.provision(now=NOW)
    seconds = time.perf_counter() - began
    return simulation(plan, {one.uid: one for one in pods}, {one.name: one for one in types}, seconds)


def _facts(path: Path, read: Callable[[Mapping[str, Any]], Any], kind: str, volumes: Volumes) -> list[Any]:
    return [parsed(path, one, read) for one in of_kind(path, volumes.taken_out(path, read_objects(path)), kind)]


def _pods(path: Path, volumes: Volumes) -> list[PodFact]:
    workloads = of_kind(path, volumes.taken_out(path, read_objects(path)), *KINDS)
    found = list(pods_of(path, workloads))
    facts = [parsed(path, one, _pod) for one in found]
    volumes.make_up(path, chain(claims_of_sets(workloads), ephemeral_claims(found)))
    return facts


def _pool(raw: Mapping[str, Any]) -> PoolFact:
    """Ready, as nobody has said otherwise. Raises ValueError for requirements that mean nothing."""
    found = pool_fact(raw).model_copy(update={"ready": True})
    try:
        Requirements.of(found.requirements)
    except RequirementError as error:
        raise ValueError(f"spec.template.spec.requirements: {error}") from error
    return found


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
