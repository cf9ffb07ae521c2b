"""`tenure rebuild` after the loss of Temporal's database: seconds and memory of the command.

    python -m benchmarks.rebuild [--nodeclaims 100000] [--temporal postgres] [--json FILE]

Tenure launches one node. While no worker runs, copies of its NodeClaim are written into the API server. Then the
database of Temporal is replaced by an empty one, and the command starts all workflows. Copies have no Node. The API
server has no watch cache, which would need about 30 GB for 100,000 NodeClaims.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.existing_nodes import copy_object, measure, run_at_once, write_nodeclaim
from benchmarks.harness import benchmark_app, in_sandbox, read_stat, run
from benchmarks.idle import create_idle_nodes
from benchmarks.report import describe_machine
from benchmarks.scale import DEPLOYMENT, sandbox_plan, store_size
from tenure.cli.exit_codes import CommandFailed, exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.worker_process import clean_environment
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Temporals

TIMEOUT_SECONDS: Final = 3600.0
app = benchmark_app()


@dataclass(frozen=True)
class Result:
    nodeclaims: int
    written: float
    """Seconds until the NodeClaims were written."""
    rebuilt: float
    """Seconds of the command."""
    started: int
    """Number of workflows that the command reports as started."""
    open: int
    """Number of open NodeClaim workflows afterwards, by visibility."""
    megabytes: float
    """Most memory of the command."""
    store_megabytes: float
    """Growth of the databases; 0 with the dev server."""
    load: float
    """Load average of the machine over 15 minutes."""


@app.command()
def rebuild(
    nodeclaims: Annotated[int, typer.Option(min=2)] = 100_000,
    temporal: Annotated[Temporals, typer.Option(help="Dev server, or server with PostgreSQL.")] = "postgres",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")] = None,
) -> int:
    """Measure the command and print the result. Exit code 1 if a workflow is missing."""
    print(f"Measured on {describe_machine()}", flush=True)
    plan = replace(sandbox_plan(temporal), watch_cache=False)
    found = in_sandbox(plan, partial(_run, nodeclaims))
    for name, value in asdict(found).items():
        print(f"  {name:<16} {value}")
    if json_file:
        json_file.write_text(json.dumps({"machine": describe_machine()} | asdict(found), indent=2) + "\n")
    return int(found.open != nodeclaims)


async def _run(nodeclaims: int, sandbox: Sandbox) -> Result:
    async with SandboxSession(sandbox, deployment=DEPLOYMENT) as session:
        await create_idle_nodes(session, 1, 1)
        session.kill_worker()
        written = await measure("NodeClaims written", _write_nodeclaims(session, nodeclaims - 1))
        await asyncio.to_thread(sandbox.lose_temporal_data)
        before, began = store_size(sandbox), time.monotonic()
        started, megabytes = await _rebuild(sandbox)
        rebuilt = round(time.monotonic() - began, 1)
        client = await sandbox.temporal_client()
        query = "WorkflowType = 'NodeClaim' AND ExecutionStatus = 'Running'"
        return Result(
            nodeclaims=nodeclaims,
            written=written,
            rebuilt=rebuilt,
            started=started,
            open=(await client.count_workflows(query)).count,
            megabytes=megabytes,
            store_megabytes=round((store_size(sandbox) - before) / 1e6),
            load=round(os.getloadavg()[2], 1),
        )


async def _write_nodeclaims(session: SandboxSession, count: int) -> None:
    original = (await session.kube.request("GET", NODE_CLAIMS.path()))["items"][0]
    name, status = original["metadata"]["name"], original["status"]
    instance = status["providerID"].rpartition("/")[2]

    async def write(number: int) -> None:
        replaced = {name: f"copy-{number}", status["nodeName"]: f"node-{number}", instance: f"i-{number:017x}"}
        await write_nodeclaim(session, copy_object(original, replaced))

    await run_at_once(partial(write, number) for number in range(count))


async def _rebuild(sandbox: Sandbox) -> tuple[int, float]:
    """The number of workflows that the command started, and its memory in MB."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure", "rebuild", "-o", "json"),
        env=clean_environment() | sandbox.environment() | {"KUBECONFIG": str(sandbox.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
    )
    peak = asyncio.create_task(_watch_memory(process.pid))
    output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    if process.returncode:
        raise CommandFailed(f"tenure rebuild ended with {process.returncode}")
    found: list[dict[str, Any]] = json.loads(output)
    return sum(one["done"] == "started" for one in found), await peak


async def _watch_memory(pid: int) -> float:
    """The most memory of the process in MB, once it has ended."""
    most = 0
    while stat := read_stat(pid):
        most = max(most, stat.rss)
        await asyncio.sleep(1.0)
    return round(most / 1e6)


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.rebuild"))
