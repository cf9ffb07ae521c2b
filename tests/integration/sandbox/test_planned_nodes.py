"""The planner against the real kube-scheduler: once the planned nodes exist, pods of all kinds are bound.

kube-scheduler places pods one by one, in its own order and on its own choice of nodes; a plan only proves that a
placement exists. Pods with affinity or spread constraints are therefore nominated to their planned nodes, as the watch
does: without nominations, 3 to 5 % of the pods stayed unbound at first. kube-scheduler is stopped while the nodes are
created, which takes longer on a busy machine: it would fill the first nodes with pods that the plan has on others.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generators.workloads import Scenario, make_scenario
from tenure.apis.labels import HOSTNAME, ON_DEMAND, ZONE
from tenure.kube.adapters.pods import KubePods
from tenure.kube.client.client import connect
from tenure.kube.facts.objects import node_fact
from tenure.kube.facts.pods import pod_fact
from tenure.model.instance_types import Catalogue, InstanceType
from tenure.model.plan import Plan
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.kube_client import KubeApi
from tenure.scheduling.cluster_state import Change, ClusterState
from tests.integration.sandbox.builders import PODS
from tests.integration.sandbox.comparison_results import ComparisonResults
from tests.integration.sandbox.planned_nodes import SCHEDULER, gather_limited, own_control_plane
from tests.oracle.cluster_plan import NOW
from tests.oracle.manifests import node_manifest
from tests.oracle.plan import launch_outcomes
from tests.oracle.random_cluster import cluster_with_daemonset, generate_cluster
from tests.oracle.random_pods import REQUIRED
from tests.support.product.eventually import TIMEOUT_SECONDS

Object = dict[str, Any]
NominatePods = Callable[[Sequence[Object]], Awaitable[None]]
POD_COUNT = 300
MAX_UNBOUND_SHARE = 0.02
"""Share of pods not bound in the first round: 0 to 4 of 300 in 19 runs, and 15 without nominations."""
ROUNDS = 2
NODES = "/api/v1/nodes"
BATCH = 100
"""Random clusters that share an API server."""
MIN_BOUND_SHARE = 0.999
QUIET_SECONDS = 20.0
"""Seconds without a new binding after which kube-scheduler has tried all pods; its backoff ends at ten."""


@pytest.fixture
async def pods(cluster: Sandbox) -> AsyncIterator[KubePods]:
    client = await connect(str(cluster.kubeconfig))
    yield KubePods(client)
    await client.close()


async def test_kube_scheduler_binds_planned_pods(cluster: Sandbox, api: KubeApi, pods: KubePods) -> None:
    inputs = make_scenario("diverse", POD_COUNT)
    types = {one.name: one for one in inputs.types}
    for number, zone in enumerate(("us-west-2a", "us-west-2b")):
        offering = next(o for o in types["m7i.2xlarge"].offerings if (o.zone, o.capacity_type) == (zone, ON_DEMAND))
        await api.request("POST", NODES, node_manifest(f"standing-{number}", types["m7i.2xlarge"], offering, {}, []))
    await gather_limited(api.request("POST", PODS, one) for one in inputs.pods)
    await _wait_for_unbound_pods(api)

    price, nodes, unbound_by_round, target_nodes = 0.0, list[int](), list[list[str]](), dict[str, str]()
    for number in range(ROUNDS):
        plan = await _plan(api, inputs)
        assert not plan.unschedulable
        target_nodes |= plan.nominations
        target_nodes |= {uid: f"round-{number}-{at}" for at, claim in enumerate(plan.claims) for uid in claim.pods}
        nominate = partial(_nominate_pods, pods, target_nodes)
        await asyncio.to_thread(cluster.stop_part, SCHEDULER)
        try:
            price += await _carry_out(api, plan, types, f"round-{number}", nominate)
        finally:
            await asyncio.to_thread(cluster.start_part, SCHEDULER)
        nodes.append(len(plan.claims))
        async with _nominating(api, nominate):
            unbound_by_round.append(await _wait_for_unbound_pods(api, after_restart=True))
        if not unbound_by_round[-1]:
            break
    found = f"{nodes} nodes at {price:.3f} $/h, not bound after each round: {unbound_by_round}"
    print(found)
    assert len(unbound_by_round[0]) <= MAX_UNBOUND_SHARE * POD_COUNT, found
    assert unbound_by_round[-1] == [], found


@pytest.mark.timeout(4 * 3600)
async def test_kube_scheduler_binds_planned_pods_of_random_clusters(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> None:
    """`--random-clusters` and `--first-seed` select the clusters. Those in the file of `--results` are done."""
    first, count = pytestconfig.getoption("--first-seed"), pytestconfig.getoption("--random-clusters")
    results = ComparisonResults(pytestconfig.getoption("--results"))
    seeds = results.missing(range(first, first + count))
    for batch in (seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)):
        async with own_control_plane(tmp_path_factory.mktemp("compare")) as planned_nodes:
            found = await planned_nodes.compare([generate_cluster(seed, slot) for slot, seed in enumerate(batch)])
        for one in found:
            results.add(one)
            if one.stuck or one.elsewhere or one.unplanned:
                print(one.describe())
        print(results.summary(), flush=True)
    planned, stuck = results.count("planned"), results.count("stuck")
    assert planned - stuck >= MIN_BOUND_SHARE * planned > 0, results.summary()


async def test_kube_scheduler_counts_pods_of_daemonsets_as_planned(
    tmp_path: Path,
) -> None:
    """No node exists before, and each application has its own cluster."""
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["agent", "web"]}]}
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    near_agent = [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "agent"}}}]
    specs: list[Object] = [
        {"topologySpreadConstraints": [spread | {"topologyKey": HOSTNAME}]},
        {"topologySpreadConstraints": [spread | {"topologyKey": ZONE}]},
        {"affinity": {"podAffinity": {REQUIRED: near_agent}}},
    ]
    async with own_control_plane(tmp_path) as planned_nodes:
        found = await planned_nodes.compare([cluster_with_daemonset(slot, spec) for slot, spec in enumerate(specs)])
    report = [one.describe() for one in found]
    assert [len(one.plan.nodes) for one in found] == [3, 3, 1], report
    assert [(one.planned, one.stuck) for one in found] == [(3, ())] * 3, report


async def _plan(api: KubeApi, inputs: Scenario) -> Plan:
    """Plan for the nodes and pods of the API server."""
    state = ClusterState()
    state.set_catalogue(Catalogue(by_node_class={"default": inputs.types}))
    nodes, pods = await _items(api, "/api/v1/nodes"), await _items(api, PODS)
    state.apply(Change(kind="pool", key=one.name, fact=one) for one in inputs.pool_facts())
    state.apply(Change(kind="node", key=one["metadata"]["name"], fact=node_fact(one)) for one in nodes)
    state.apply(Change(kind="pod", key=one["metadata"]["uid"], fact=pod_fact(one)) for one in pods)
    return state.provision(now=NOW)


async def _carry_out(
    api: KubeApi, plan: Plan, types: Mapping[str, InstanceType], name: str, nominate: NominatePods
) -> float:
    """Create a Node of the cheapest type and offering for each NodeClaim, and nominate pods with pod-dependent
    constraints. Returns the total price of the nodes in USD/h.
    """
    chosen = [min(launch_outcomes(claim, types), key=lambda outcome: outcome[1].price) for claim in plan.claims]
    await gather_limited(
        api.request("POST", NODES, node_manifest(f"{name}-{number}", kind, offering, node_labels, []))
        for number, (kind, offering, node_labels) in enumerate(chosen)
    )
    await nominate(await _items(api, PODS))
    return sum(offering.price for _, offering, _ in chosen)


async def _nominate_pods(pods: KubePods, target_nodes: Mapping[str, str], found: Sequence[Object]) -> None:
    """Nominate pods with pod-dependent constraints, also those that lost their nomination in an early attempt."""
    facts = [pod_fact(one) for one in found if not one["spec"].get("nodeName")]
    due = [
        one
        for one in facts
        if one.has_pod_dependent_constraints
        and not one.nominated_node
        and one.expected_on != target_nodes.get(one.uid, one.expected_on)
    ]
    await gather_limited(pods.nominate(one, target_nodes[one.uid], now=NOW) for one in due)


@asynccontextmanager
async def _nominating(api: KubeApi, nominate: NominatePods) -> AsyncIterator[None]:
    """Repeat nominations as fast as the watch does: a lost nomination frees its place until the next one."""

    async def nominate_repeatedly() -> None:
        while True:
            await nominate(await _items(api, f"{PODS}?fieldSelector=spec.nodeName%3D"))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(nominate_repeatedly())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _wait_for_unbound_pods(api: KubeApi, *, after_restart: bool = False) -> list[str]:
    """The unbound pods, once kube-scheduler makes no more progress. `after_restart`: wait for a first binding, since
    its start takes longer than its pauses between attempts on a busy machine.
    """
    last, since, first = -1, 0.0, -1
    clock = asyncio.get_running_loop().time
    deadline = clock() + TIMEOUT_SECONDS
    while True:
        pods = await _items(api, PODS)
        unbound = [one["metadata"]["name"] for one in pods if not one["spec"].get("nodeName")]
        first = len(unbound) if first < 0 else first
        has_begun = not after_restart or len(unbound) < first or clock() > deadline
        all_attempted = all(one["spec"].get("nodeName") or _unschedulable(one) for one in pods)
        if not unbound or (has_begun and all_attempted and len(unbound) == last and clock() - since > QUIET_SECONDS):
            return unbound
        if len(unbound) != last:
            last, since = len(unbound), clock()
        await asyncio.sleep(0.5)


def _unschedulable(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


async def _items(api: KubeApi, path: str) -> list[Object]:
    found: list[Object] = (await api.request("GET", path))["items"]
    return found
