"""A cluster of thousands of existing nodes: idle cost, and time to decisions, after a failover and after a restart.

    python -m benchmarks.existing_nodes [--nodes 5000] [--pods 10] [--minutes 1] [--json FILE]

Tenure launches one node with its pods. While the worker is stopped, copies of the instance, the NodeClaim, the Node and
the pods are written directly into the AWS stand-in and the API server. A new worker then starts a workflow for each
NodeClaim, as after the loss of Temporal's database. Kwok renews each Lease only a few times per hour.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import boto3
import typer

from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.idle import TYPE, Idle, create_idle_nodes, print_idle, watch_idle
from benchmarks.recovery import count_claims
from benchmarks.report import describe_machine
from benchmarks.scale import DEPLOYMENT, process_usage, sandbox_plan
from tenure.apis import labels
from tenure.cli.demo.script import NAME
from tenure.cli.exit_codes import exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.worker_process import service_account
from tenure.kube.client.resources import NODE_CLAIMS, NODE_POOLS, NODES
from tenure.kube.leader_election import LEADER_LEASE
from tenure.model.nodeclaim.history import Phase
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.nodes.instance_source import Ec2
from tenure.sandbox.nodes.instances import Instance
from tenure.sandbox.supervisor import ACCESS_KEY

CPU: Final = 900
"""Millicores, shared by the pods of a node: less than half of its CPU, so that consolidation finds savings."""
LARGE: Final = "1500m"
"""CPU of a pod that fits on none of the nodes."""
LEASE_SECONDS: Final = 3600
"""The Lease of a Node is renewed four times in this time."""
SPARE_WORKFLOWS: Final = 500
AT_ONCE: Final = 32
REPETITIONS: Final = 3
TIMEOUT: Final = 600.0
CONTROLLER_MANAGER: Final = "kube-controller-manager"
NAMESPACED: Final = "/api/v1/namespaces/default/pods"
OF_THE_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "generateName")
"""Metadata fields that a copy must not contain."""
POD_UID: Final = "f0a3c1de-2f3b-4a5e-8a55-7f0c2f6f9b10"
"""Of the pod whose container restarts."""
Object = dict[str, Any]
app = benchmark_app()


@dataclass(frozen=True)
class Durations:
    """Seconds. Those of a list were measured one after the other."""

    written: float
    """Until the objects were written."""
    recovered: float
    """From the start of the first worker until the workflows of all NodeClaims were Ready."""
    verdicts: list[float]
    """From the creation of a pod that fits no NodePool to the event with Tenure's verdict."""
    decisions: list[float]
    """From the creation of a pod that needs a node to its NodeClaim."""
    hosted: float
    """From the kill of the host until the other replica held the Lease."""
    decided: float
    """From the kill of the host to the NodeClaim of a pod that was created at that time."""
    restarted: float
    """From the kill of all workers, and the restart of one, to the launch of an instance for a new pod."""
    command: float
    """From the change of the NodePool's consolidation policy to the start of the first command."""
    megabytes: float
    """Most memory of worker and planner at the end of these steps, without those of another replica."""
    load: float
    """Load average of the machine over 15 minutes, with the sandbox."""


@app.command()
def existing_nodes(
    nodes: Annotated[int, typer.Option(min=2)] = 5000,
    pods: Annotated[int, typer.Option(min=1, max=14, help="Pods per node.")] = 10,
    minutes: Annotated[float, typer.Option(min=1, help="Duration of the idle measurement.")] = 1,
    calm: Annotated[float, typer.Option(min=0, help="Seconds to wait before it.")] = 120,
    file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    """Write the nodes, and measure."""
    print(f"Measured on {describe_machine()}", flush=True)
    plan = replace(sandbox_plan(), lease_seconds=LEASE_SECONDS)
    idle, durations = in_sandbox(plan, partial(_run, nodes, pods, minutes * 60, calm))
    for name, seconds in asdict(durations).items():
        print(f"  {name:<10} {seconds}")
    if file:
        figures = {"machine": describe_machine(), "idle": asdict(idle), "durations": asdict(durations)}
        file.write_text(json.dumps(figures, indent=2) + "\n")


async def _run(nodes: int, pods: int, seconds: float, calm: float, sandbox: Sandbox) -> tuple[Idle, Durations]:
    settings = {"WORKFLOW_CACHE_SIZE": str(nodes + SPARE_WORKFLOWS)}
    async with SandboxSession(sandbox, deployment=DEPLOYMENT, settings=settings) as session:
        await create_idle_nodes(session, 1, pods, CPU)
        session.kill_worker()
        written = await measure("objects written", _write_copies(session, nodes, pods))
        await measure("pods Ready", _wait_until_pods_ready(session, nodes * pods))
        await (await session.replace_worker()).start()
        recovered = await measure("workflows Ready", _wait_until_ready(session, nodes))
        await asyncio.sleep(calm)
        idle = await watch_idle(session, nodes * pods, seconds)
        print_idle(idle)
        memory = [sum(idle.megabytes[name] for name in ("worker", "planner"))]
        verdicts = [await measure("verdict", _wait_for_verdict(session)) for _ in range(REPETITIONS)]
        decisions = [await measure("NodeClaim", _wait_for_decision(session)) for _ in range(REPETITIONS)]
        memory.append(_megabytes(session))
        hosted, decided = await _fail_over(session)
        memory.append(_megabytes(session))
        session.kill_worker()
        restarted = await measure("instance launched", _restart(session))
        await asyncio.sleep(calm)
        memory.append(_megabytes(session))
        command = await measure("first command", _consolidate(session))
        memory.append(_megabytes(session))
        durations = Durations(
            written=written,
            recovered=recovered,
            verdicts=verdicts,
            decisions=decisions,
            hosted=hosted,
            decided=decided,
            restarted=restarted,
            command=command,
            megabytes=round(max(memory)),
            load=round(os.getloadavg()[2], 1),
        )
        return idle, durations


async def measure(what: str, work: Awaitable[None]) -> float:
    """Seconds until `work` has ended."""
    began = time.monotonic()
    await work
    took = round(time.monotonic() - began, 2)
    print(f"  {what}: {took} s", file=sys.stderr, flush=True)
    return took


def _megabytes(session: SandboxSession) -> float:
    usage = process_usage(session)
    return (usage["worker"].rss + usage["planner"].rss) / 1e6


# --- copies ---


async def _write_copies(session: SandboxSession, nodes: int, pods: int) -> None:
    """The node simulator starts after the Nodes exist and adopts them; the ReplicaSet adopts its pods likewise."""
    sandbox, kube = session.sandbox, session.kube
    for part in ("nodes", CONTROLLER_MANAGER):
        await asyncio.to_thread(sandbox.stop_part, part)
    claim, node = [(await kube.request("GET", one.path()))["items"][0] for one in (NODE_CLAIMS, NODES)]
    pod = (await kube.request("GET", NAMESPACED))["items"][0]
    first, copies = await asyncio.to_thread(_launch_copies, sandbox, nodes - 1)

    async def write(number: int, instance: Instance) -> None:
        replaced = _replacements(first, instance) | {claim["metadata"]["name"]: f"copy-{number}"}
        uid = await write_nodeclaim(session, copy_object(claim, replaced))
        await kube.request("POST", NODES.path(), copy_object(node, replaced | {claim["metadata"]["uid"]: uid}))
        for one in range(pods):
            names = {pod["metadata"]["name"]: f"{number}-{one}"}
            await kube.request("POST", NAMESPACED, copy_object(pod, replaced | names))

    await run_at_once(partial(write, number, instance) for number, instance in enumerate(copies))
    owner = pod["metadata"]["ownerReferences"][0]["name"]
    for path in (f"deployments/{DEPLOYMENT}", f"replicasets/{owner}"):
        body = {"spec": {"replicas": nodes * pods}}
        await kube.request("PATCH", f"/apis/apps/v1/namespaces/default/{path}", body, "application/merge-patch+json")
    for part in (CONTROLLER_MANAGER, "nodes"):
        await asyncio.to_thread(sandbox.start_part, part)


async def _wait_until_pods_ready(session: SandboxSession, pods: int) -> None:
    """The node simulator reports the status of each pod, and uses all CPU meanwhile. No worker runs."""
    path = f"/apis/apps/v1/namespaces/default/deployments/{DEPLOYMENT}"

    async def find_others() -> str:
        ready = int((await session.kube.request("GET", path))["status"].get("readyReplicas", 0))
        return "" if ready == pods else f"{ready} of {pods} pods are Ready"

    await session.wait_until_resolved(find_others, what="all pods Ready", seconds=TIMEOUT + pods / 25)


async def write_nodeclaim(session: SandboxSession, claim: Object) -> str:
    """Returns the UID."""
    claim["metadata"]["annotations"] |= dict.fromkeys((labels.TAGGED, labels.CLUSTER_NAME_TAGGED), "true")
    created = await session.kube.request("POST", NODE_CLAIMS.path(), claim)
    path = f"{NODE_CLAIMS.path(claim['metadata']['name'])}/status"
    await session.kube.request("PATCH", path, {"status": claim["status"]}, "application/merge-patch+json")
    return str(created["metadata"]["uid"])


def copy_object(original: Object, replaced: dict[str, str]) -> Object:
    """`replaced` may be part of any text of the object, such as of a provider ID."""
    copied = deepcopy(original)
    for name in OF_THE_SERVER:
        copied["metadata"].pop(name, None)
    for name in ("podCIDR", "podCIDRs"):
        copied["spec"].pop(name, None)
    text = json.dumps(copied)
    for old, new in replaced.items():
        text = text.replace(old, new)
    copy: Object = json.loads(text)
    return copy


def _replacements(first: Instance, instance: Instance) -> dict[str, str]:
    names = ("id", "node_name", "private_ip", "zone_id", "zone")
    return {getattr(first, name): getattr(instance, name) for name in names}


def _launch_copies(sandbox: Sandbox, count: int) -> tuple[Instance, list[Instance]]:
    """The running instance and its copies, from its launch template and evenly in all subnets of the cluster."""
    ec2 = boto3.client(
        "ec2",
        endpoint_url=sandbox.aws_endpoint,
        region_name=sandbox.plan.region,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=ACCESS_KEY,
    )
    (first,) = _list_instances(sandbox)
    discovery: Any = {"Name": "tag:karpenter.sh/discovery", "Values": [sandbox.plan.cluster_name]}
    subnets = [one["SubnetId"] for one in ec2.describe_subnets(Filters=[discovery])["Subnets"]]
    template: Any = {"LaunchTemplateId": first.tags["aws:ec2launchtemplate:id"], "Version": "$Latest"}
    tags: Any = [{"Key": key, "Value": value} for key, value in first.tags.items() if not key.startswith("aws:")]
    for number, subnet in enumerate(subnets):
        overrides: Any = [{"InstanceType": TYPE, "SubnetId": subnet}]
        if share := len(range(number, count, len(subnets))):
            ec2.create_fleet(
                Type="instant",
                LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template, "Overrides": overrides}],
                TargetCapacitySpecification={"TotalTargetCapacity": share, "DefaultTargetCapacityType": "on-demand"},
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            )
    return first, [one for one in _list_instances(sandbox) if one.id != first.id]


def _list_instances(sandbox: Sandbox) -> list[Instance]:
    return list(asyncio.run(Ec2(sandbox.aws_endpoint, sandbox.plan.region).list_instances()).values())


async def run_at_once(works: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Run them, AT_ONCE at a time."""
    waiting = iter(works)

    async def run_some() -> None:
        for work in waiting:
            await work()

    await asyncio.gather(*(run_some() for _ in range(AT_ONCE)))


# --- measured steps ---


async def _wait_until_ready(session: SandboxSession, nodes: int) -> None:
    async def find_others() -> str:
        query = f"WorkflowType = 'NodeClaim' AND ExecutionStatus = 'Running' AND TenurePhase = '{Phase.READY}'"
        found = (await session.temporal.count_workflows(query)).count
        return "" if found == nodes else f"{found} of {nodes} NodeClaims are Ready"

    await session.wait_until_resolved(find_others, what="all NodeClaims Ready", seconds=300 + nodes)


async def _wait_for_verdict(session: SandboxSession) -> None:
    """Until the event about a new pod that fits no NodePool."""
    name = await create_pod(session, {"nodeSelector": {labels.NODEPOOL: "none"}})
    query = f"?fieldSelector=involvedObject.name={name},reason=FailedScheduling"

    async def is_published() -> bool:
        events = (await session.kube.request("GET", f"/api/v1/namespaces/default/events{query}"))["items"]
        return any(one["message"].startswith("Failed to schedule pod, ") for one in events)

    await _wait_for(session, is_published, "a verdict")
    await session.delete(f"{NAMESPACED}/{name}")


async def _wait_for_decision(session: SandboxSession) -> None:
    """Until the NodeClaim for a new pod that fits on no node."""
    known = await count_claims(session)
    await _create_large_pod(session)

    async def is_created() -> bool:
        return await count_claims(session) > known

    await _wait_for(session, is_created, "a NodeClaim")


async def _fail_over(session: SandboxSession) -> tuple[float, float]:
    """Kill the host while another replica runs. Seconds until that one holds the Lease, and to its first decision."""
    host, (namespace, _) = session.worker, service_account()
    await (await session.replace_worker(POD_UID=POD_UID)).start()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEADER_LEASE}"

    async def read_holder() -> str:
        return str((await session.kube.request("GET", path))["spec"].get("holderIdentity"))

    before = await read_holder()
    host.kill()

    async def is_taken_over() -> bool:
        return await read_holder() != before

    both = await asyncio.gather(
        measure("failover", _wait_for(session, is_taken_over, "another holder")),
        measure("NodeClaim after the failover", _wait_for_decision(session)),
    )
    return both[0], both[1]


async def _restart(session: SandboxSession) -> None:
    """Start the last worker again after all were killed, as a kubelet restarts its container, until it launches an
    instance for a new pod."""
    launched = (await session.aws.count_instances()).launched
    starting = asyncio.create_task((await session.replace_worker(POD_UID=POD_UID)).start())
    await _create_large_pod(session)

    async def is_launched() -> bool:
        return (await session.aws.count_instances()).launched > launched

    await _wait_for(session, is_launched, "an instance")
    await starting


async def _consolidate(session: SandboxSession) -> None:
    """Allow consolidation, until its first command starts."""
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "10%"}]}
    body = {"spec": {"disruption": disruption}}
    await session.kube.request("PATCH", NODE_POOLS.path(NAME), body, "application/merge-patch+json")

    async def is_disrupted() -> bool:
        return (await session.temporal.count_workflows("WorkflowType = 'Disruption'")).count > 0

    await _wait_for(session, is_disrupted, "a disruption command")


async def _create_large_pod(session: SandboxSession) -> str:
    """It fits on no node of the benchmark, and leaves no space for another one on its own."""
    return await create_pod(session, {}, cpu=LARGE)


async def create_pod(session: SandboxSession, spec: Object, *, cpu: str = "10m") -> str:
    """Returns the name."""
    container = {"name": "pause", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    body = {"metadata": {"generateName": "new-"}, "spec": {"containers": [container], **spec}}
    return str((await session.kube.request("POST", NAMESPACED, body))["metadata"]["name"])


async def _wait_for(session: SandboxSession, is_done: Callable[[], Awaitable[bool]], what: str) -> None:
    async def find_problem() -> str:
        return "" if await is_done() else "still waiting"

    await session.wait_until_resolved(find_problem, what=what, seconds=TIMEOUT)


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.existing_nodes"))
