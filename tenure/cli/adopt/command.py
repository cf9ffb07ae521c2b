"""`tenure adopt`: take over a cluster that Karpenter runs; look first with --dry-run, and hand back with --back.

`foreseen.py` reads and judges, `handover.py` acts. It runs with a person's rights: the worker's may scale nothing.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import structlog
import typer
from temporalio.client import Client

from tenure.apis.durations import DurationError, parse_duration
from tenure.cli.adopt.handover import Handover, HandoverResult
from tenure.cli.adopt.preview import (
    AdoptionReport,
    DeploymentReference,
    as_json,
    as_tables,
    connect_cluster,
    format_verdict,
    inspect_controllers,
    preview_adoption,
)
from tenure.cli.console import print_renderables, summarize_findings
from tenure.cli.exit_codes import CommandFailed, UsageError
from tenure.cli.output import Output, print_result
from tenure.cli.temporal_client import Connection
from tenure.model.errors import Fault
from tenure.settings import Settings
from worker import temporal_security

app = typer.Typer(add_completion=False)

Karpenter = Annotated[str, typer.Option(help="Karpenter's Deployment, as namespace/name.")]
Tenure = Annotated[str, typer.Option(help="Tenure's Deployment, as namespace/name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Look and report; write nothing anywhere.")]
Back = Annotated[bool, typer.Option("--back", help="Hand the cluster back to Karpenter.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Deadline = Annotated[str, typer.Option("--within", help="How long to wait for all of it together, such as 10m.")]
Settle = Annotated[str, typer.Option(help="How long to watch for drift at the end, such as 30s.")]
_CONFIRM_ADOPTION: Final = "Scale Deployment {karpenter} to zero and let Tenure take over its NodeClaims?"
_CONFIRM_HAND_BACK: Final = "Scale Deployment {tenure} to zero and let Karpenter run the cluster again?"


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def adopt(
    context: typer.Context,
    dry_run: DryRun = False,
    back: Back = False,
    yes: Yes = False,
    karpenter: Karpenter = "kube-system/karpenter",
    tenure: Tenure = "tenure/tenure",
    within: Deadline = "10m",
    settle: Settle = "30s",
    output: Output = "table",
) -> int:
    """Take over a cluster that Karpenter runs. Exit code 1 when something stands in the way, or did not come true.

    Settings come from flags and the environment, as for `tenure worker`, and else from both Deployments.
    """
    if dry_run and back:
        raise UsageError("adopt: --dry-run and --back: give one; going back needs no look ahead")
    # What the worker's own code logs is for a worker's log.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    karpenter_reference, tenure_reference = (
        _parse_deployment_reference("--karpenter", karpenter),
        _parse_deployment_reference("--tenure", tenure),
    )
    seconds = (_parse_seconds("--within", within), _parse_seconds("--settle", settle))
    if dry_run:
        found = asyncio.run(_preview_adoption(context.args, karpenter_reference, tenure_reference))
        print_renderables(output, as_json(found), *as_tables(found))
        return int(not found.is_ready)
    result = asyncio.run(
        _run_handover(context.args, karpenter_reference, tenure_reference, seconds, back=back, yes=yes)
    )
    data = {"message": result.message, "nodeClaims": result.nodeclaims, "left": list(result.unfinished)}
    print_result(output, data, result.message)
    return 0


async def _preview_adoption(
    flags: Sequence[str], karpenter: DeploymentReference, tenure: DeploymentReference
) -> AdoptionReport:
    cluster = await connect_cluster(flags)
    try:
        return await preview_adoption(cluster, flags, karpenter, tenure)
    finally:
        await cluster.close()


async def _run_handover(
    flags: Sequence[str],
    karpenter: DeploymentReference,
    tenure: DeploymentReference,
    seconds: tuple[float, float],
    *,
    back: bool,
    yes: bool,
) -> HandoverResult:
    cluster = await connect_cluster(flags)
    try:
        found = await (inspect_controllers if back else preview_adoption)(cluster, flags, karpenter, tenure)
        if found.karpenter is not None:
            karpenter = DeploymentReference(found.karpenter.namespace, found.karpenter.name)
        _check_preconditions(found, karpenter, back=back)
        handover = Handover(
            cluster=cluster,
            temporal=await _connect_temporal(found.settings, needed=not back),
            settings=found.settings,
            karpenter=karpenter,
            tenure=tenure,
            report_progress=_print_progress,
            deadline=seconds[0],
            settle=seconds[1],
        )
        _confirm(
            (_CONFIRM_HAND_BACK if back else _CONFIRM_ADOPTION).format(karpenter=karpenter.path, tenure=tenure.path),
            yes,
        )
        return await (handover.hand_back() if back else handover.take_over())
    except Fault as fault:
        raise CommandFailed(f"adopt: {fault.message}; mend that and run the same again") from fault
    finally:
        await cluster.close()


def _check_preconditions(found: AdoptionReport, karpenter: DeploymentReference, *, back: bool) -> None:
    """Raises `Refused` where there is nobody to hand back to, `CommandFailed` where something stands in the way."""
    if back:
        if found.karpenter is None:
            raise UsageError(
                f"adopt --back: there is no Deployment {karpenter.path}; name it: --karpenter NAMESPACE/NAME"
            )
        return
    if not found.is_ready:
        bad = [one for one in found.findings if one.level == "problem"]
        lines = [f"{one.subject}: {one.message}; {one.todo}" for one in bad]
        raise CommandFailed("\n".join(["adopt: nothing was done, since something stands in the way:", *lines]))
    _print_progress(summarize_findings(found.findings))
    _print_progress(format_verdict(found))


async def _connect_temporal(settings: Settings, *, needed: bool) -> Client | None:
    """None where it does not answer and is not needed: without it no workflow acts anyhow. Raises `Refused`."""
    connection = Connection(
        settings.temporal_address, settings.temporal_namespace, settings.cluster_name, temporal_security(settings)
    )
    try:
        return await connection.connect()
    except UsageError as error:
        if needed:
            raise
        _print_progress(f"{error}: what is under way is not known")
        return None


def _confirm(question: str, yes: bool) -> None:
    """Raises `Refused` for no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("adopt: nobody is there to be asked; give --yes")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise UsageError("adopt: nothing was done")


def _print_progress(line: str) -> None:
    """On stderr, so that what scripts read is the outcome alone."""
    print(f"adopt: {line}", file=sys.stderr, flush=True)


def _parse_deployment_reference(option: str, text: str) -> DeploymentReference:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise UsageError(f"adopt: {option} {text}: write namespace/name, such as kube-system/karpenter")
    return DeploymentReference(namespace, name)


def _parse_seconds(option: str, text: str) -> float:
    try:
        length = parse_duration(text)
    except DurationError as error:
        raise UsageError(f"adopt: {option}: {error}") from error
    if length is None or length.total_seconds() < 0:
        raise UsageError(f"adopt: {option} {text}: write a time such as 10m")
    return length.total_seconds()
