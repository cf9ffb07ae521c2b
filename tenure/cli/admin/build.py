"""`tenure build`: which build of the worker gets the cluster's tasks. The chart's Job runs `tenure build promote`."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from tenure.cli.command import CommandGroup, Kubeconfig, parse_length
from tenure.cli.exit_codes import CommandFailed, UsageError
from tenure.cli.output import Result, format_columns, message_result
from tenure.cli.temporal_client import Connection, temporal_command
from tenure.clock import utc_now
from tenure.controller.temporal.errors import format_rpc_error
from tenure.controller.temporal.promotion import (
    Promotion,
    PromotionDeferred,
    PromotionFailed,
    PromotionSettings,
    find_rollback_target,
)
from tenure.controller.temporal.worker_versioning import Builds, read_builds, set_ramping_build
from tenure.kube.adapters.cluster import KubeLeases
from tenure.kube.client.client import connect
from tenure.model.errors import Fault
from tenure.settings import Settings

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Build = Annotated[str, typer.Option("--build", envvar="TEMPORAL_WORKER_BUILD_ID", help="Build ID of the workers.")]
Target = Annotated[str, typer.Option("--build", help="Build ID (default: the previous build that has workers).")]
Percentage = Annotated[float, typer.Option(min=0, max=100, help="Share of the workflows during the ramp; 0: no ramp.")]
Ramp = Annotated[str, typer.Option("--ramp-duration", help="Duration of the ramp, e.g. 5m.")]
LeaseName = Annotated[
    str,
    typer.Option(
        "--leader-election-name", envvar="LEADER_ELECTION_NAME", help="Karpenter's Lease; empty: not checked."
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", help="How long to wait for workers of the build.")]
_LEASE: Final[str] = Settings.model_fields["leader_election_name"].default
_HEADERS: Final = ("build", "workers", "state")


@app.callback()
def build() -> None:
    """Show, promote and roll back the build of the worker that gets the cluster's tasks."""


@app.command()
@temporal_command
async def status(connection: Connection) -> Result:
    """List the builds that have workers or tasks."""
    builds = await read_builds(await connection.connect(), connection.cluster)
    rows = [_as_json(builds, one) for one in _names(builds)]
    if not rows:
        return Result([], [f"No worker of {connection.cluster} has a build ID."])
    return Result(rows, [format_columns(_HEADERS, [[str(row[name]) for name in _HEADERS] for row in rows])])


@app.command()
@temporal_command
async def promote(
    connection: Connection,
    build: Build = "",
    ramp_percentage: Percentage = PromotionSettings.ramp_percentage,
    ramp_duration: Ramp = "1m",
    timeout: Timeout = "10m",
    leader_election_name: LeaseName = _LEASE,
    kubeconfig: Kubeconfig = "",
) -> Result:
    """Make a build the current one: wait for its workers, run a canary workflow on them, then ramp. Safe to repeat.
    If the canary or a workflow of the ramp fails, the current build stays, and the exit code is 1. While Karpenter
    leads, workers wait: the command ends, and the first worker makes the build current."""
    if not build:
        raise UsageError("build promote: --build: required, set it or TEMPORAL_WORKER_BUILD_ID, e.g. --build 0.3.0")
    settings = PromotionSettings(
        timeout=parse_length("build promote: --timeout", timeout, "10m"),
        ramp_percentage=ramp_percentage,
        ramp_duration=parse_length("build promote: --ramp-duration", ramp_duration, "5m"),
    )
    find_karpenter = partial(_find_karpenter, kubeconfig, leader_election_name)
    return await _promote(connection, await connection.connect(), build, settings, find_karpenter)


@app.command()
@temporal_command
async def rollback(
    connection: Connection,
    build: Target = "",
    timeout: Timeout = "1m",
    leader_election_name: LeaseName = _LEASE,
    kubeconfig: Kubeconfig = "",
) -> Result:
    """Make a previous build the current one, also an older one, after a canary workflow and without a ramp. During a
    ramp, end it instead, unless --build names a build."""
    temporal, cluster = await connection.connect(), connection.cluster
    try:
        builds = await read_builds(temporal, cluster)
        if builds.ramping:
            await set_ramping_build(temporal, cluster, "", 0, builds)
    except RPCError as error:
        raise _retryable_error(connection, "build rollback", error) from error
    if builds.ramping and build in ("", builds.current):
        message = f"The ramp of {builds.ramping} ended, and {builds.current} stays current."
        return message_result(message, build=builds.current)
    target = build or find_rollback_target(builds)
    if not target:
        raise UsageError(
            "build rollback: no other build has workers; deploy one first, e.g. `helm rollback tenure -n tenure`"
        )
    limit = parse_length("build rollback: --timeout", timeout, "5m")
    settings = PromotionSettings(timeout=limit, ramp_duration=timedelta(0), allows_older=True)
    find_karpenter = partial(_find_karpenter, kubeconfig, leader_election_name)
    return await _promote(connection, temporal, target, settings, find_karpenter)


async def _find_karpenter(kubeconfig: str, lease: str) -> str:
    """The holder of Karpenter's lease; empty without one, and if the cluster cannot be read."""
    if not lease:
        return ""
    try:
        client = await connect(kubeconfig)
    except Fault:
        return ""
    try:
        return await KubeLeases(client).find_holder("", lease, now=utc_now())
    except Fault:
        return ""
    finally:
        await client.close()


async def _promote(
    connection: Connection,
    temporal: Client,
    build: str,
    settings: PromotionSettings,
    find_karpenter: Callable[[], Awaitable[str]],
) -> Result:
    """The chart's Job repeats the command after a `UsageError`, not after `CommandFailed`."""
    try:
        await Promotion(temporal, connection.cluster, build, settings, _print_step, find_karpenter).promote()
    except PromotionDeferred as deferred:
        return message_result(str(deferred), build=build)
    except PromotionFailed as failed:
        raise CommandFailed(f"build {build} was not promoted: {failed}") from failed
    except RPCError as error:
        raise _retryable_error(connection, f"build {build} was not promoted", error) from error
    return message_result(f"Build {build} is current.", build=build)


def _retryable_error(connection: Connection, about: str, error: RPCError) -> UsageError:
    return UsageError(f"{about}: {format_rpc_error(error, namespace=connection.namespace, address=connection.address)}")


def _print_step(step: str) -> None:
    typer.echo(step, err=True)


def _names(builds: Builds) -> Iterable[str]:
    """The current build, the ramping one, then the others."""
    return [one for one in dict.fromkeys((builds.current, builds.ramping, *sorted(builds.workers))) if one]


def _as_json(builds: Builds, build: str) -> dict[str, Any]:
    state = "waiting"
    if build == builds.current:
        state = "current"
    elif build == builds.ramping:
        state = f"ramping {builds.ramp_percentage:g} %"
    return {"build": build, "workers": builds.workers.get(build, 0), "state": state}
