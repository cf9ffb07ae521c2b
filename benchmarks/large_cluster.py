"""Parts of the worker with 5,000 nodes and 50,000 pods, without a sandbox: CPU seconds and memory.

    python -m benchmarks.large_cluster [--nodes 5000] [--pods 50000] [--pending 10000]

The watch reads the objects and signals all workflows, which records the signals. The planner plans and decides over a
generated cluster of the same size. CPU seconds do not depend on the load of the machine, apart from shared caches.
"""

import gc
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from benchmarks.generators.cluster import NOW, generate_cluster
from benchmarks.generators.workloads import SERVICES
from benchmarks.harness import benchmark_app, measure_usage, run
from benchmarks.report import describe_machine
from tenure.apis import labels
from tenure.cli.exit_codes import exit_process
from tenure.controller.disruption.controller import make_disruption_settings
from tenure.kube.client.list_watch import PAGE
from tenure.model.disruption.decision import DisruptionRequest
from tenure.model.facts import PodFact
from tenure.scheduling.snapshot import Change
from tests.support.controller.builders import claim, node, pod
from tests.unit.controller.signals.notifier_harness import NotifierHarness, build_notifier

RUNS: Final = 3
"""The minimum of repeated passes counts."""
NEW_POOL: Final = "new"
Object = dict[str, Any]
app = benchmark_app()


@app.command()
def large_cluster(
    nodes: Annotated[int, typer.Option(min=1)] = 5000,
    pods: Annotated[int, typer.Option(min=1)] = 50_000,
    pending: Annotated[int, typer.Option(min=1, help="Pods that need nodes at once.")] = 10_000,
) -> None:
    """Measure the parts and print a line for each."""
    print(f"Measured on {describe_machine()}: {nodes} nodes, {pods} pods", flush=True)
    measure_watch(nodes, pods)
    measure_planner(nodes, pending)


def measure_watch(nodes: int, pods: int) -> None:
    harness = build_notifier()
    harness.numbers = itertools.count(1)
    node_labels = {labels.NODEPOOL: "general", labels.INSTANCE_TYPE: "m6i.large"} | {
        f"label-{number}.example/key": str(number) for number in range(20)
    }
    _read(harness, "nodeclaims", nodes, lambda n: claim(f"c{n}", phase="Initialized", labels=node_labels))
    _read(harness, "nodes", nodes, lambda n: node(f"n{n}", of=f"c{n}", labels=node_labels))
    _read(harness, "pods", pods, lambda n: _make_pod(n, nodes))
    _measure("signals of the first pass", harness.notify)
    _measure("snapshot for the planner", harness.cache.snapshot_changes)
    harness.apply_objects("pods", _make_pod(0, nodes))
    _measure("one changed pod", harness.notify)


def _read(harness: NotifierHarness, kind: str, count: int, make: Callable[[int], Object]) -> None:
    """The objects arrive in pages. Making them does not count."""
    cpu = 0.0
    for first in range(0, count, PAGE):
        page = [make(number) for number in range(first, min(count, first + PAGE))]
        began = time.process_time()
        harness.apply_objects(kind, *page)
        cpu += time.process_time() - began
    _print(f"{count} {kind}", cpu)


def _make_pod(number: int, nodes: int) -> Object:
    return pod(f"p{number}", on=f"n{number % nodes}", metadata={"labels": {"app": f"a{number // PAGE}"}})


def measure_planner(nodes: int, pending: int) -> None:
    cluster = generate_cluster(nodes, seed=1)
    state = cluster.state()
    _print(f"generated cluster with {sum(map(len, cluster.pods.values()))} pods", 0.0)
    settings = make_disruption_settings(())
    _measure("disruption pass", lambda: state.disrupt(DisruptionRequest(now=NOW, settings=settings)), RUNS)
    state.apply(_pending_pods(1))
    _measure("plan of one pod", lambda: state.provision(now=NOW), RUNS)
    pool = cluster.pools[0].model_copy(update={"name": NEW_POOL, "uid": NEW_POOL})
    state.apply([Change(kind="pool", key=NEW_POOL, fact=pool), *_pending_pods(pending)])
    plan = _measure(f"plan of {pending} pods", lambda: state.provision(now=NOW), RUNS)
    print(f"  {len(plan.claims)} new nodes, {len(plan.unschedulable)} pods without a node", flush=True)


def _pending_pods(count: int) -> Iterator[Change]:
    """Pods that fit on no existing node."""
    dice = random.Random(1)
    for number in range(count):
        _, cpu, mebibytes = dice.choices(SERVICES, [percent for percent, _, _ in SERVICES])[0]
        fact = PodFact(
            uid=f"pending-{number}",
            namespace="default",
            name=f"pending-{number}",
            requests={"cpu": cpu, "memory": mebibytes << 20, "pods": 1},
            created=NOW - timedelta(seconds=5),
            node_selector={labels.NODEPOOL: NEW_POOL},
            phase="Pending",
            unschedulable=True,
        )
        yield Change(kind="pod", key=fact.uid, fact=fact)


def _measure(what: str, work: Callable[[], Any], runs: int = 1) -> Any:
    """Returns the result of the last run."""
    found, cpu = None, list[float]()
    for _ in range(runs):
        gc.collect()
        began = time.process_time()
        found = work()
        cpu.append(time.process_time() - began)
    _print(what, min(cpu))
    return found


def _print(what: str, cpu: float) -> None:
    print(f"  {what:<40} {cpu:7.2f} CPU s, {_resident() / 1e6:5.0f} MB resident", flush=True)


def _resident() -> int:
    return measure_usage({"self": [os.getpid()]})["self"].rss


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.large_cluster"))
