"""A whole NodePool drifts under a budget: time until every node is replaced, and the effect on its pods.

    python -m benchmarks.drift [--nodes 100] [--pods 6] [--budget 10%] [--broken 0] [--json FILE]

Pods are in 20 Deployments, each with a PodDisruptionBudget of 10 %. `--broken` adds a second NodePool with that many
nodes, which drifts at the same time and whose instance type has no capacity left.
"""

import asyncio
import json
import math
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.observers import PART, Claim, ClusterObserver
from benchmarks.report import describe_machine
from benchmarks.scale import node_pool, sandbox_plan
from tenure.apis import labels
from tenure.cli.demo.script import MANIFESTS_FOLDER, NAME
from tenure.cli.exit_codes import CommandFailed, UsageError, exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.kube.client.client import connect
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_POOLS
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.environment import Sandbox

HEALTHY, BROKEN = "healthy", "broken"
TYPES = {HEALTHY: "m6i.large", BROKEN: "c5.large"}
"""Instance types with two CPUs."""
PARTS = 20
MAX_UNAVAILABLE = 10
"""Percent of a Deployment's pods that its PodDisruptionBudget allows to be unavailable."""
CALM = 15.0
AFTER = 60.0
"""Minimum seconds for which the broken pool is observed after the other one is replaced."""
app = benchmark_app()
Object = dict[str, Any]


@dataclass(frozen=True)
class Drift:
    """Durations are in seconds. Without a broken pool, its fields are zero or empty."""

    nodes: int
    pods: int
    budget: str
    waves: int
    """Minimum number of waves that the budget allows."""
    seconds: float
    """From the change of the template until the last old NodeClaim was deleted."""
    boot: float
    """Median time of a replacement from creation to Initialized."""
    termination: float
    """Median time of an old NodeClaim from the deletion request until it was deleted."""
    max_disrupted: int
    """Maximum number of nodes with the disruption taint at one time."""
    launched: int
    """Number of new NodeClaims; equal to the number of old ones if no launch was unnecessary."""
    breaches: dict[str, int]
    """Minimum number of ready pods, by workload that fell below its PodDisruptionBudget."""
    broken_tries: list[float]
    """Creation of each replacement of the broken pool, in seconds since the change of its template."""
    broken_at_once: int
    """Maximum number of these replacements at one time."""
    broken_in_service: int
    """Number of old nodes of the broken pool that remained in service."""


@app.command()
def drift(
    nodes: Annotated[int, typer.Option(min=2, max=1000, help="Number of nodes in the pool.")] = 100,
    pods: Annotated[int, typer.Option(min=1, max=20, help="Pods per node.")] = 6,
    budget: Annotated[str, typer.Option(help="Disruption budget: nodes that may be disrupted at one time.")] = "10%",
    broken: Annotated[int, typer.Option(min=0, max=100, help="Number of nodes of a pool that cannot be replaced.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> int:
    """Drift a NodePool and print the result."""
    found = in_sandbox(sandbox_plan(), partial(_run, nodes=nodes, pods=pods, budget=budget, broken=broken))
    _print_result(found)
    if json_file:
        json_file.write_text(json.dumps({"machine": describe_machine(), "drift": asdict(found)}, indent=2) + "\n")
    return 1 if found.breaches or found.broken_in_service != broken else 0


async def _run(sandbox: Sandbox, nodes: int, pods: int, budget: str, broken: int) -> Drift:
    async with SandboxSession(sandbox, deployment=HEALTHY) as session:
        client = await connect(str(sandbox.kubeconfig))
        try:
            async with ClusterObserver(client) as observer:
                return await Bench(session, observer, nodes, pods, budget, broken).run()
        finally:
            await client.close()


class Bench:
    def __init__(
        self, session: SandboxSession, observer: ClusterObserver, nodes: int, pods: int, budget: str, broken: int
    ) -> None:
        self._session, self._observer = session, observer
        self._nodes, self._each, self._budget, self._broken = nodes, pods, budget, broken
        self._pods = nodes * pods

    async def run(self) -> Drift:
        """Raises `CommandFailed` if the nodes are not replaced in time."""
        session, observations = self._session, self._observer.observations
        await self._create_nodes()
        old = {pool: {*observations.claims_of(pool)} for pool in TYPES}
        self._observer.start_counting()
        began = time.monotonic()
        await self._change_templates()
        timeout = 120 + 30 * _count_waves(self._nodes, self._budget)
        try:
            await session.wait_until_resolved(
                partial(self._why_not_replaced, old[HEALTHY]), what="every node replaced", seconds=timeout
            )
        except CommandFailed as failed:
            remaining = [one for one in await session.nodeclaims.list_running() if one.name in old[HEALTHY]]
            details = "; ".join(f"{one.name} in {one.phase}: {one.blocked_by}" for one in remaining[:5])
            raise CommandFailed(f"{failed}; {details}") from failed
        seconds = time.monotonic() - began
        print(f"replaced after {seconds:.0f} s ...", file=sys.stderr, flush=True)
        await session.wait_until_resolved(self._why_pods_not_ready, what="all pods Running", seconds=120)
        if self._broken:
            await asyncio.sleep(max(AFTER, 2 * AFTER - seconds))
        return self._summarize(old, began, seconds)

    async def _create_nodes(self) -> None:
        session = self._session
        await session.apply(MANIFESTS_FOLDER / "ec2nodeclass.yaml")
        await session.wait_until_resolved(
            partial(session.why_not_ready, EC2_NODE_CLASSES.path(NAME)), what="EC2NodeClass", seconds=60
        )
        for pool in (HEALTHY, BROKEN) if self._broken else (HEALTHY,):
            await session.kube.apply(_make_pool(pool, self._budget))
            await session.wait_until_resolved(
                partial(session.why_not_ready, NODE_POOLS.path(pool)), what=f"NodePool {pool}", seconds=60
            )
        print(f"{self._nodes} nodes with {self._pods} pods ...", file=sys.stderr, flush=True)
        for manifest in _make_workloads(self._pods, self._each):
            await session.kube.apply(manifest)
        if self._broken:
            await session.kube.apply(_make_deployment(BROKEN, BROKEN, self._broken, cpu="1500m"))
        await session.wait_until_resolved(self._why_pods_not_ready, what="all pods Running", seconds=120 + self._nodes)
        await asyncio.sleep(CALM)

    async def _change_templates(self) -> None:
        """Change the templates, and remove the capacity for the broken pool."""
        if self._broken:
            set_pool = AwsControl(self._session.sandbox.aws_endpoint).set_pool
            await asyncio.to_thread(set_pool, 0, instance_type=TYPES[BROKEN])
        for pool in (BROKEN, HEALTHY) if self._broken else (HEALTHY,):
            body = {"spec": {"template": {"metadata": {"labels": {"release": "2"}}}}}
            await self._session.kube.request("PATCH", NODE_POOLS.path(pool), body, "application/merge-patch+json")

    async def _why_pods_not_ready(self) -> str:
        expected, ready = self._pods + self._broken, sum(self._observer.observations.ready.values())
        return "" if ready == expected else f"{ready} of {expected} pods are ready"

    async def _why_not_replaced(self, old: set[str]) -> str:
        remaining = [
            name
            for name, one in self._observer.observations.claims_of(HEALTHY).items()
            if name in old and one.deleted_at is None
        ]
        return f"{len(remaining)} nodes remain, such as {remaining[0]}" if remaining else ""

    def _summarize(self, old: dict[str, set[str]], began: float, seconds: float) -> Drift:
        observations = self._observer.observations
        healthy, broken = observations.claims_of(HEALTHY), observations.claims_of(BROKEN)
        new = [one for name, one in healthy.items() if name not in old[HEALTHY]]
        terminations = [
            one.deleted_at - one.deleting_at
            for name, one in healthy.items()
            if name in old[HEALTHY] and one.deleted_at and one.deleting_at
        ]
        tries = [one for name, one in broken.items() if name not in old[BROKEN]]
        expected = {HEALTHY: self._pods // PARTS, BROKEN: self._broken}
        floor = {part: _min_ready(expected.get(part, expected[HEALTHY])) for part in observations.least}
        return Drift(
            nodes=len(old[HEALTHY]),
            pods=self._pods,
            budget=self._budget,
            waves=_count_waves(len(old[HEALTHY]), self._budget),
            seconds=round(seconds, 1),
            boot=statistics.median(one.boot for one in new if one.boot is not None),
            termination=round(statistics.median(terminations), 1),
            max_disrupted=observations.max_disrupted[HEALTHY],
            launched=len(new),
            breaches={part: least for part, least in observations.least.items() if least < floor[part]},
            broken_tries=[round(one.created_at - began, 1) for one in tries],
            broken_at_once=_max_concurrent(tries),
            broken_in_service=sum(one.deleting_at is None for name, one in broken.items() if name in old[BROKEN]),
        )


def _min_ready(pods: int) -> int:
    """Minimum ready pods of the PodDisruptionBudget: `maxUnavailable` in percent is rounded up."""
    return pods - math.ceil(pods * MAX_UNAVAILABLE / 100)


def _count_waves(nodes: int, budget: str) -> int:
    """Minimum number of waves: a budget in percent is rounded up (Karpenter's rule)."""
    at_once = math.ceil(nodes * int(budget.removesuffix("%")) / 100) if budget.endswith("%") else int(budget)
    return math.ceil(nodes / max(1, at_once))


def _max_concurrent(claims: list[Claim]) -> int:
    events = sorted(
        [(one.created_at, 1) for one in claims] + [(one.deleted_at, -1) for one in claims if one.deleted_at is not None]
    )
    most = count = 0
    for _, change in events:
        count += change
        most = max(most, count)
    return most


def _make_pool(name: str, budget: str) -> Object:
    pool = node_pool()
    pool["metadata"]["name"] = name
    pool["spec"]["disruption"]["budgets"] = [{"nodes": budget}]
    one_type = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [TYPES[name]]}
    pool["spec"]["template"]["spec"]["requirements"].append(one_type)
    return pool


def _make_workloads(pods: int, each: int) -> list[Object]:
    """Deployments with equal shares of the pods, each with its PodDisruptionBudget."""
    if pods % PARTS:
        raise UsageError(f"{pods} pods are not divisible by {PARTS} Deployments: choose other --nodes and --pods")
    cpu = f"{1800 // each}m"
    found = []
    for number in range(PARTS):
        name = f"{HEALTHY}-{number:02}"
        found += [_make_pdb(name), _make_deployment(name, HEALTHY, pods // PARTS, cpu=cpu)]
    return found


def _make_pdb(name: str) -> Object:
    spec = {"maxUnavailable": f"{MAX_UNAVAILABLE}%", "selector": {"matchLabels": {PART: name}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def _make_deployment(name: str, pool: str, replicas: int, *, cpu: str) -> Object:
    container = {
        "name": "pause",
        "image": "public.ecr.aws/eks-distro/kubernetes/pause:3.10",
        "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
    }
    pod = {
        "nodeSelector": {labels.NODEPOOL: pool},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {PART: name}},
            "template": {"metadata": {"labels": {PART: name}}, "spec": pod},
        },
    }


def _print_result(one: Drift) -> None:
    bound = one.waves * (one.boot + one.termination)
    print(
        f"{one.nodes} nodes with {one.pods} pods, budget {one.budget}: all replaced after {one.seconds:.0f} s; "
        f"{one.waves} waves of boot ({one.boot:.0f} s) and drain ({one.termination:.1f} s) are {bound:.0f} s"
    )
    print(
        f"  at most {one.max_disrupted} nodes at a time, {one.launched} launched; "
        f"violated PodDisruptionBudgets: {one.breaches or 'none'}"
    )
    if one.broken_tries:
        pauses = [round(after - before) for before, after in pairwise(one.broken_tries)]
        print(f"  broken pool: {one.broken_in_service} nodes in service; {len(one.broken_tries)} launches, at most")
        print(f"  {one.broken_at_once} at a time, with intervals of {pauses} s")


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.drift"))
