"""`tenure startup-times`: how long nodes took to launch, register and initialize, slowest first, from the NodeClaims.

Those under way are in it with the time so far. What is gone is in the worker's histogram alone.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table

from tenure.apis.labels import INSTANCE_TYPE
from tenure.cli.console import print_renderables
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.durations import format_span
from tenure.cli.output import Output
from tenure.kube.client.client import connect
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.kube.facts.objects import nodeclaim_fact
from tenure.model.errors import Fault
from tenure.model.facts import NodeClaimFact

app = typer.Typer(add_completion=False)

Kubeconfig = Annotated[str, typer.Option("--kubeconfig", envvar="KUBECONFIG", help="The current context's cluster.")]
Pool = Annotated[str, typer.Option("--nodepool", help="Of this NodePool alone.")]
Most = Annotated[int, typer.Option("--most", min=1, help="So many of the slowest.")]


@dataclass(frozen=True)
class StartupTimes:
    """Of one NodeClaim: None for a phase that has not begun; `running` is the one that is under way."""

    claim: NodeClaimFact
    launch: timedelta | None
    registration: timedelta | None
    initialization: timedelta | None
    running: str = ""

    @property
    def total(self) -> timedelta:
        return sum((one for one in (self.launch, self.registration, self.initialization) if one), timedelta(0))


@app.command()
def list_startup_times(
    kubeconfig: Kubeconfig = "", nodepool: Pool = "", most: Most = 20, output: Output = "table"
) -> None:
    """Say how long nodes took for each phase of their start-up, slowest first."""
    try:
        claims = asyncio.run(read(kubeconfig))
    except Fault as fault:
        raise UsageError(f"startup-times: {fault.message}") from fault
    found = sort_slowest_first((one for one in claims if nodepool in ("", one.pool)), datetime.now(UTC))
    rendered = (
        startup_times_table(found[:most]) if found else "There is no NodeClaim; `tenure plan` says what would be done."
    )
    print_renderables(output, [as_json(one) for one in found[:most]], rendered)


async def read(kubeconfig: str) -> list[NodeClaimFact]:
    """Raises Fault where no API server answers."""
    client = await connect(kubeconfig)
    try:
        return [nodeclaim_fact(one) for one in await Objects(client, NODE_CLAIMS).list()]
    finally:
        await client.close()


def sort_slowest_first(claims: Iterable[NodeClaimFact], now: datetime) -> list[StartupTimes]:
    """Those that are going before they were ready are left out."""
    found = [measure_startup(one, now) for one in claims if one.initialized or not one.deleting]
    return sorted(found, key=lambda one: (one.total, one.claim.name), reverse=True)


def measure_startup(claim: NodeClaimFact, now: datetime) -> StartupTimes:
    ends = (claim.created, claim.launched_at, claim.registered_at, claim.initialized_at)
    spans: list[timedelta | None] = []
    running = ""
    for phase, began, ended in zip(("launch", "registration", "initialization"), ends, ends[1:], strict=False):
        spans.append(max((ended or now) - began, timedelta(0)) if began else None)
        running = phase if began and not ended else running
    launch, registration, initialization = spans
    return StartupTimes(claim, launch, registration, initialization, running)


def as_json(one: StartupTimes) -> dict[str, Any]:
    """For scripts; seconds, null for a phase that has not begun. `running`: the phase that is under way."""
    spans = {name: getattr(one, name) for name in ("launch", "registration", "initialization")}
    return {
        "nodeClaim": one.claim.name,
        "nodePool": one.claim.pool,
        "instanceType": one.claim.labels.get(INSTANCE_TYPE, ""),
        **{f"{name}Seconds": took.total_seconds() if took else None for name, took in spans.items()},
        "totalSeconds": one.total.total_seconds(),
        "running": one.running,
    }


def startup_times_table(found: Sequence[StartupTimes]) -> Table:
    result = Table(expand=False)
    for name in ("NodeClaim", "NodePool", "type", "launch", "registration", "initialization", "total"):
        result.add_column(name, no_wrap=True)
    for one in found:
        claim = one.claim
        cells = [_format_phase(one, phase) for phase in ("launch", "registration", "initialization")]
        total = format_span(one.total) + (" so far" if one.running else "")
        result.add_row(claim.name, claim.pool or "-", claim.labels.get(INSTANCE_TYPE, "-"), *cells, total)
    return result


def _format_phase(one: StartupTimes, phase: str) -> str:
    took: timedelta | None = getattr(one, phase)
    if took is None:
        return "-"
    return format_span(took) + (" so far" if one.running == phase else "")
