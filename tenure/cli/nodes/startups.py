"""`tenure startup-times`: how long nodes took to launch, register and initialize, slowest first, from the NodeClaims.

An unfinished startup counts with its time so far. Deleted nodes are only in the worker's histogram.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Annotated, Any, Final

import typer

from tenure.apis.labels import INSTANCE_TYPE
from tenure.cli.command import Kubeconfig, NodePoolName, command, log_to_stderr
from tenure.cli.console import PrintableTable, make_table, unwrapped
from tenure.cli.nodes.workflows import format_span
from tenure.cli.output import Result
from tenure.kube.client.client import connect
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.kube.facts.objects import nodeclaim_fact
from tenure.model.facts import NodeClaimFact

MaxRows = Annotated[int, typer.Option("--most", min=1, help="Maximum number of NodeClaims.")]
PHASES: Final = ("launch", "registration", "initialization")


@dataclass(frozen=True)
class StartupTimes:
    claim: NodeClaimFact
    lengths: Mapping[str, timedelta]
    """Durations by phase, of phases that have begun."""
    running: str
    """The current phase; empty for an initialized node."""

    @property
    def total(self) -> timedelta:
        return sum(self.lengths.values(), timedelta(0))


@command
async def startup_times(kubeconfig: Kubeconfig = "", nodepool: NodePoolName = "", most: MaxRows = 20) -> Result:
    """List how long nodes took for each phase of their startup, slowest first."""
    log_to_stderr()
    claims = [one for one in await read(kubeconfig) if nodepool in ("", one.pool)]
    found = sort_slowest_first(claims, datetime.now(UTC))[:most]
    nothing = "No NodeClaims found. `tenure doctor` checks the installation."
    return Result([as_json(one) for one in found], [startup_times_table(found) if found else nothing])


async def read(kubeconfig: str) -> list[NodeClaimFact]:
    """Without NodeClaims that cannot be read, which are logged. Raises `Fault` if the API server does not respond."""
    client = await connect(kubeconfig)
    try:
        return await Objects(client, NODE_CLAIMS).read_each(nodeclaim_fact)
    finally:
        await client.close()


def sort_slowest_first(claims: Iterable[NodeClaimFact], now: datetime) -> list[StartupTimes]:
    """Omits NodeClaims that are deleted before they are initialized."""
    found = [measure_startup(one, now) for one in claims if one.initialized or not one.deleting]
    return sorted(found, key=lambda one: (one.total, one.claim.name), reverse=True)


def measure_startup(claim: NodeClaimFact, now: datetime) -> StartupTimes:
    times = (claim.created, claim.launched_at, claim.registered_at, claim.initialized_at)
    lengths: dict[str, timedelta] = {}
    running = ""
    for phase, (began, ended) in zip(PHASES, pairwise(times), strict=True):
        if began:
            lengths[phase] = max((ended or now) - began, timedelta(0))
            running = running if ended else phase
    return StartupTimes(claim, lengths, running)


def as_json(one: StartupTimes) -> dict[str, Any]:
    """Seconds, null for a phase that has not begun."""
    return {
        "nodeClaim": one.claim.name,
        "nodePool": one.claim.pool,
        "instanceType": one.claim.labels.get(INSTANCE_TYPE, ""),
        **{f"{phase}Seconds": one.lengths[phase].total_seconds() if phase in one.lengths else None for phase in PHASES},
        "totalSeconds": one.total.total_seconds(),
        "running": one.running,
    }


def startup_times_table(found: Sequence[StartupTimes]) -> PrintableTable:
    rows = (
        (
            one.claim.name,
            one.claim.pool or "-",
            one.claim.labels.get(INSTANCE_TYPE, "-"),
            *(_format_length(one.lengths.get(phase), one.running == phase) for phase in PHASES),
            _format_length(one.total, bool(one.running)),
        )
        for one in found
    )
    return make_table(*unwrapped("NodeClaim", "NodePool", "type", *PHASES, "total"), rows=rows)


def _format_length(length: timedelta | None, running: bool) -> str:
    return "-" if length is None else format_span(length) + (" so far" if running else "")
