"""`tenure adopt`: take over a cluster from Karpenter; preview with --dry-run, and hand back with --back.

It runs with the user's permissions: the worker may not scale Deployments.
"""

import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from tenure.cli.adopt.handover import Handover, HandoverResult
from tenure.cli.adopt.preview import (
    AdoptionReport,
    DeploymentReference,
    as_json,
    connect_cluster,
    format_conclusion,
    format_report,
    inspect_controllers,
    preview_adoption,
)
from tenure.cli.command import WORKER_FLAGS, command, log_to_stderr, parse_length
from tenure.cli.console import summarize_findings
from tenure.cli.exit_codes import DONE, FAILED, CommandFailed, UsageError
from tenure.cli.output import Result
from tenure.cli.worker_settings import temporal_connection
from tenure.controller.temporal.client import require_cluster
from tenure.controller.temporal.errors import format_rpc_error
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.errors import Fault
from tenure.progress import report_progress
from tenure.settings import Settings
from tenure.worker.settings import installation_of

Karpenter = Annotated[str, typer.Option(help="Karpenter's Deployment (namespace/name).")]
Tenure = Annotated[str, typer.Option(help="Tenure's Deployment (namespace/name).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report without changing anything.")]
Back = Annotated[bool, typer.Option("--back", help="Hand the cluster back to Karpenter.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Deadline = Annotated[str, typer.Option("--within", help="Total time limit, e.g. 10m.")]
Settle = Annotated[str, typer.Option(help="How long to watch for drift at the end, e.g. 30s.")]
_CONFIRM_ADOPTION: Final = "Scale Deployment {karpenter} to zero and let Tenure take over its NodeClaims?"
_CONFIRM_HAND_BACK: Final = "Scale Deployment {tenure} to zero and let Karpenter run the cluster again?"


@command
async def adopt(
    context: typer.Context,
    dry_run: DryRun = False,
    back: Back = False,
    yes: Yes = False,
    karpenter: Karpenter = "kube-system/karpenter",
    tenure: Tenure = "tenure/tenure",
    within: Deadline = "10m",
    settle: Settle = "30s",
) -> Result:
    """Take over a cluster from Karpenter. Exit code 1 if something blocks it or it does not complete.

    Settings come from flags and the environment, as for `tenure worker`, and else from both Deployments.
    """
    if dry_run and back:
        raise UsageError("adopt: --dry-run and --back exclude each other")
    # This calls code of the worker, whose logs belong to a worker.
    log_to_stderr(logging.CRITICAL)
    references = (
        _parse_deployment_reference("--karpenter", karpenter),
        _parse_deployment_reference("--tenure", tenure),
    )
    seconds = (
        parse_length("adopt: --within", within, "10m").total_seconds(),
        parse_length("adopt: --settle", settle, "30s").total_seconds(),
    )
    cluster = await connect_cluster(context.args)
    try:
        if dry_run:
            found = await preview_adoption(cluster, context.args, *references)
            return Result(as_json(found), format_report(found), DONE if found.is_ready else FAILED)
        result = await _run_handover(cluster, context.args, *references, seconds, back=back, yes=yes)
    finally:
        await cluster.close()
    data = {"message": result.message, "nodeClaims": result.nodeclaims, "left": list(result.unfinished)}
    return Result(data, [result.message])


adopt.context_settings = WORKER_FLAGS  # type: ignore[attr-defined]


async def _run_handover(
    cluster: KubeAdapters,
    flags: Sequence[str],
    karpenter: DeploymentReference,
    tenure: DeploymentReference,
    seconds: tuple[float, float],
    *,
    back: bool,
    yes: bool,
) -> HandoverResult:
    try:
        found = await (inspect_controllers if back else preview_adoption)(cluster, flags, karpenter, tenure)
        karpenter, tenure = karpenter.of(found.karpenter), tenure.of(found.tenure)
        _check_preconditions(found, karpenter, back=back)
        temporal = await connect_temporal(cluster, found.settings, needed=not back)
        question = _CONFIRM_HAND_BACK if back else _CONFIRM_ADOPTION
        _confirm(question.format(karpenter=karpenter.path, tenure=tenure.path), yes)
        with report_progress() as progress:
            handover = Handover(
                cluster=cluster,
                temporal=temporal,
                settings=found.settings,
                karpenter=karpenter,
                tenure=tenure,
                progress=progress,
                deadline=seconds[0],
                settle=seconds[1],
            )
            return await (handover.hand_back() if back else handover.take_over())
    except Fault as fault:
        raise CommandFailed(f"adopt: {fault.message}; fix the cause and run the command again") from fault


def _check_preconditions(found: AdoptionReport, karpenter: DeploymentReference, *, back: bool) -> None:
    """Raises `UsageError` without a Karpenter to hand back to, and `CommandFailed` for problems."""
    if back:
        if found.karpenter is None:
            raise UsageError(
                f"adopt --back: Deployment {karpenter.path} not found; name it: --karpenter NAMESPACE/NAME"
            )
        return
    if not found.is_ready:
        bad = [one for one in found.findings if one.level == "problem"]
        lines = [f"{one.subject}: {one.message}; {one.todo}" for one in bad]
        raise CommandFailed("\n".join(["adopt: nothing was changed, because of these problems:", *lines]))
    _print_progress(summarize_findings(found.findings))
    _print_progress(format_conclusion(found))


async def connect_temporal(cluster: KubeAdapters, settings: Settings, *, needed: bool) -> Client | None:
    """None if Temporal does not respond and is not needed: without it, no workflow acts.

    Raises `UsageError`, and `Fault` if the worker would not start because another cluster uses its workflows."""
    try:
        temporal = await temporal_connection(settings).connect()
        if needed:
            await require_cluster(temporal, await installation_of(settings, cluster))
    except RPCError as error:
        reason = format_rpc_error(error, namespace=settings.temporal_namespace, address=settings.temporal_address)
        raise UsageError(f"adopt: {reason}") from error
    except UsageError as error:
        if needed:
            raise
        _print_progress(f"{error}: unfinished launches and drains are unknown")
        return None
    return temporal


def _confirm(question: str, yes: bool) -> None:
    """Raises `UsageError` if the user declines."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("adopt: --yes is required without a terminal")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise UsageError("adopt: nothing was changed")


def _print_progress(line: str) -> None:
    """On stderr, so that stdout has only the result."""
    print(f"adopt: {line}", file=sys.stderr, flush=True)


def _parse_deployment_reference(option: str, text: str) -> DeploymentReference:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise UsageError(
            f"adopt: {option}: invalid reference {text!r}, expected namespace/name, e.g. kube-system/karpenter"
        )
    return DeploymentReference(namespace, name)
