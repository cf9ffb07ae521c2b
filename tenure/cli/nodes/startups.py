"""`tenure startups`: how long nodes took to launch, register and initialize, slowest first, from the NodeClaims.

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
from tenure.cli.console import draw
from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.durations import span
from tenure.cli.output import Output
from tenure.kube.client.client import connect
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.kube.facts.objects import claim_fact
from tenure.model.errors import Fault
from tenure.model.facts import ClaimFact

app = typer.Typer(add_completion=False)

Kubeconfig = Annotated[str, typer.Option("--kubeconfig", envvar="KUBECONFIG", help="The current context's cluster.")]
Pool = Annotated[str, typer.Option("--nodepool", help="Of this NodePool alone.")]
Most = Annotated[int, typer.Option("--most", min=1, help="So many of the slowest.")]


@dataclass(frozen=True)
class Times:
    """Of one NodeClaim: None for a phase that has not begun; `running` is the one that is under way."""

    claim: ClaimFact
    launch: timedelta | None
    registration: timedelta | None
    initialization: timedelta | None
    running: str = ""

    @property
    def total(self) -> timedelta:
        return sum((one for one in (self.launch, self.registration, self.initialization) if one), timedelta(0))


@app.command()
def startups(kubeconfig: Kubeconfig = "", nodepool: Pool = "", most: Most = 20, output: Output = "table") -> None:
    """Say how long nodes took for each phase of their start-up, slowest first."""
    try:
        claims = asyncio.run(read(kubeconfig))
    except Fault as fault:
        raise Refused(f"startups: {fault.message}") from fault
    found = slowest((one for one in claims if nodepool in ("", one.pool)), datetime.now(UTC))
    shown = table(found[:most]) if found else "There is no NodeClaim; `tenure plan` says what would be done."
    draw(output, [as_json(one) for one in found[:most]], shown)


async def read(kubeconfig: str) -> list[ClaimFact]:
    """Raises Fault where no API server answers."""
    client = await connect(kubeconfig)
    try:
        return [claim_fact(one) for one in await Objects(client, NODE_CLAIMS).list()]
    finally:
        await client.close()


def slowest(claims: Iterable[ClaimFact], now: datetime) -> list[Times]:
    """Those that are going before they were ready are left out."""
    found = [times(one, now) for one in claims if one.initialized or not one.deleting]
    return sorted(found, key=lambda one: (one.total, one.claim.name), reverse=True)


def times(claim: ClaimFact, now: datetime) -> Times:
    ends = (claim.created, claim.launched_at, claim.registered_at, claim.initialized_at)
    spans: list[timedelta | None] = []
    running = ""
    for phase, began, ended in zip(("launch", "registration", "initialization"), ends, ends[1:], strict=False):
        spans.append(max((ended or now) - began, timedelta(0)) if began else None)
        running = phase if began and not ended else running
    launch, registration, initialization = spans
    return Times(claim, launch, registration, initialization, running)


def as_json(one: Times) -> dict[str, Any]:
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


def table(found: Sequence[Times]) -> Table:
    shown = Table(expand=False)
    for name in ("NodeClaim", "NodePool", "type", "launch", "registration", "initialization", "total"):
        shown.add_column(name, no_wrap=True)
    for one in found:
        claim = one.claim
        cells = [_cell(one, phase) for phase in ("launch", "registration", "initialization")]
        total = span(one.total) + (" so far" if one.running else "")
        shown.add_row(claim.name, claim.pool or "-", claim.labels.get(INSTANCE_TYPE, "-"), *cells, total)
    return shown


def _cell(one: Times, phase: str) -> str:
    took: timedelta | None = getattr(one, phase)
    if took is None:
        return "-"
    return span(took) + (" so far" if one.running == phase else "")
