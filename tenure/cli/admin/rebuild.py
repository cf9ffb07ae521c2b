"""`tenure rebuild`: start the workflows that Temporal lacks after its database was lost or restored.

It takes the worker's settings because it passes them to the workflows that it starts.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from temporalio.service import RPCError

import tenure.kube.adapters.build
from tenure.cli.command import log_to_stderr
from tenure.cli.console import PrintableTable, folded, make_table, unwrapped
from tenure.cli.exit_codes import DONE, FAILED, CommandFailed, UsageError
from tenure.cli.output import Result
from tenure.cli.worker_settings import settings_command, temporal_connection
from tenure.controller.rebuild import Discrepancy, Rebuild, list_running_workflows, read
from tenure.controller.temporal.client import Installation, require_cluster
from tenure.controller.temporal.errors import format_rpc_error
from tenure.model.errors import BadInput, Fault
from tenure.progress import report_progress
from tenure.settings import Settings
from tenure.worker.settings import host_settings, installation_of

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report missing workflows.")]
_MISSING: Final = {"SearchAttribute": "not registered", "Cluster": "no open workflow"}
_AFTER: Final = "Workers continue from here; `tenure doctor` and `tenure stuck` show the progress."


@settings_command
async def rebuild(settings: Settings, dry_run: DryRun = False) -> Result:
    """Start the workflows that Temporal lacks, from the objects in the cluster. With --dry-run, the exit code is
    1 if something is missing.

    Settings come from the environment and flags, as for `tenure worker`.
    """
    log_to_stderr(logging.ERROR)
    found = await rebuild_workflows(settings, dry_run=dry_run)
    parts = [*([findings_table(found, settings, dry_run)] if found else []), summarize_rebuild(found, dry_run)]
    return Result([as_json(one, dry_run) for one in found], parts, FAILED if found and dry_run else DONE)


async def rebuild_workflows(settings: Settings, *, dry_run: bool) -> list[Discrepancy]:
    """Repair workflows and report; a dry run only reports. Raises `UsageError` and `CommandFailed`."""
    temporal = await temporal_connection(settings).connect()
    try:
        cluster = await tenure.kube.adapters.build.connect_all(settings.kubeconfig)
    except Fault as fault:
        raise UsageError(f"rebuild: {fault.message}; set KUBECONFIG") from fault
    try:
        installation = await installation_of(settings, cluster)
        await require_cluster(temporal, installation)
        running_workflows = await list_running_workflows(temporal, settings.cluster_name)
        snapshot = await read(cluster, host_settings(settings), datetime.now(UTC))
        rebuild = Rebuild(temporal, snapshot, running_workflows)
        found = await rebuild.find_discrepancies()
        if found and not dry_run:
            await _apply_rebuild(rebuild, found, installation)
    except RPCError as error:
        reason = format_rpc_error(error, namespace=settings.temporal_namespace, address=settings.temporal_address)
        raise UsageError(f"rebuild: {reason}") from error
    except BadInput as invalid:
        raise UsageError(f"rebuild: {invalid.message}; check that KUBECONFIG names the right cluster") from invalid
    except Fault as fault:
        todo = "check that KUBECONFIG names the right cluster"
        raise UsageError(f"rebuild: the API server: {fault.message}; {todo}") from fault
    finally:
        await cluster.close()
    return found


async def _apply_rebuild(rebuild: Rebuild, found: Sequence[Discrepancy], installation: Installation) -> None:
    try:
        with report_progress() as progress:
            progress.step("rebuild: workflows", len(found))
            await rebuild.repair(found, installation, progress.advance)
            progress.advance(len(found))
    except BadInput as invalid:
        raise UsageError(f"rebuild: {invalid.message}") from invalid
    except Fault as fault:
        hint = "workflows that were started keep running; run the command again for the others"
        raise CommandFailed(f"rebuild: {fault.message}; {hint}") from fault


def as_json(one: Discrepancy, dry_run: bool) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "workflow": one.workflow or None,
        "found": _describe_finding(one),
        "done": None if dry_run else _describe_action(one),
    }


def findings_table(found: Sequence[Discrepancy], settings: Settings, dry_run: bool) -> PrintableTable:
    return make_table(
        *unwrapped("kind", "name"),
        *folded("found", "would be" if dry_run else "done"),
        rows=(
            (one.kind, one.name, _describe_finding(one), f"{_describe_action(one)}{_describe_queue(one, settings)}")
            for one in found
        ),
    )


def summarize_rebuild(found: Sequence[Discrepancy], dry_run: bool) -> str:
    """`3 started.`, and the next step."""
    if not found:
        return "No workflow or Schedule is missing, and no workflow runs without its object."
    counts = Counter("notified that their object is deleted" if one.is_orphaned else "started" for one in found)
    counted = ", ".join(f"{number} {what}" for what, number in counts.items())
    if dry_run:
        return f"Would be: {counted}. To apply this, run without --dry-run."
    return f"{counted[0].upper()}{counted[1:]}. {_AFTER}"


def _describe_finding(one: Discrepancy) -> str:
    return "object is deleted" if one.is_orphaned else _MISSING.get(one.kind, "no open workflow")


def _describe_action(one: Discrepancy) -> str:
    if one.is_orphaned:
        return "notified; it checks the object, then ends"
    return "registered" if one.kind == "SearchAttribute" else "started"


def _describe_queue(one: Discrepancy, settings: Settings) -> str:
    """The queue of the Interruption workflow. Without INTERRUPTION_QUEUE here, the worker sets it at its next start."""
    if (one.kind, one.name) != ("Cluster", "interruption"):
        return ""
    queue = settings.interruption_queue
    return f", with queue {queue}" if queue else ", without a queue: INTERRUPTION_QUEUE is not set here"
