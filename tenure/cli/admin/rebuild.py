"""`tenure rebuild`: start what a cluster should have in Temporal and has not, after Temporal's database was lost or set
back.

It takes the worker's own settings, since what it starts is told them; best run where a worker runs.
"""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import structlog
import typer
from rich.table import Table
from temporalio.service import RPCError

import tenure.kube.adapters.build
from tenure.cli.console import print_renderables
from tenure.cli.exit_codes import DONE, FAILED, CommandFailed, UsageError
from tenure.cli.output import Output
from tenure.cli.temporal_client import Connection
from tenure.controller.rebuild import Discrepancy, Rebuild, list_running_workflows, read
from tenure.controller.temporal.errors import format_rpc_error
from tenure.model.errors import BadInput, Fault
from tenure.settings import Settings, SettingsError, load
from worker import batch_window, host_settings, temporal_security

app = typer.Typer(add_completion=False)
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what is missing.")]
_MISSING: Final = {
    "SearchAttribute": "not registered",
    "Cluster": "no open workflow",
    "Schedule": "not there",
}
_AFTER: Final = "Workers take it on from here; `tenure doctor` and `tenure stuck` say how it goes."


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def rebuild(context: typer.Context, dry_run: DryRun = False, output: Output = "table") -> int:
    """Start the workflows and Schedules that Temporal lacks, from the objects in the cluster. With --dry-run the exit
    code is 1 when something is missing.

    Settings come from the environment and flags, as for `tenure worker`.
    """
    try:
        settings = load(list(context.args))
    except SettingsError as error:
        raise UsageError(f"rebuild: {error}") from error
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    found = asyncio.run(rebuild_workflows(settings, dry_run=dry_run))
    listed = [as_json(one, dry_run) for one in found]
    print_renderables(
        output,
        listed,
        *([findings_table(found, settings, dry_run)] if found else []),
        summarize_rebuild(found, dry_run),
    )
    return FAILED if found and dry_run else DONE


async def rebuild_workflows(settings: Settings, *, dry_run: bool) -> list[Discrepancy]:
    """What was found, and, but for a dry run, mended. Raises `Refused` and `CommandFailed`."""
    connection = Connection(
        settings.temporal_address, settings.temporal_namespace, settings.cluster_name, temporal_security(settings)
    )
    temporal = await connection.connect()
    try:
        cluster = await tenure.kube.adapters.build.connect_all(settings.kubeconfig)
    except Fault as fault:
        raise UsageError(f"rebuild: {fault.message}; set KUBECONFIG") from fault
    try:
        running_workflows = await list_running_workflows(temporal, settings.cluster_name)
        snapshot = await read(cluster, host_settings(settings), datetime.now(UTC))
        rebuild = Rebuild(temporal, snapshot, running_workflows)
        found = await rebuild.find_discrepancies()
        if found and not dry_run:
            await _apply_rebuild(rebuild, found, settings)
    except RPCError as error:
        reason = format_rpc_error(error, namespace=settings.temporal_namespace, address=settings.temporal_address)
        raise UsageError(f"rebuild: {reason}") from error
    except Fault as fault:
        raise UsageError(
            f"rebuild: the API server: {fault.message}; see whether KUBECONFIG names the right one"
        ) from fault
    finally:
        await cluster.close()
    return found


async def _apply_rebuild(rebuild: Rebuild, found: Sequence[Discrepancy], settings: Settings) -> None:
    try:
        await rebuild.repair(found, batch_window(settings), events=settings.interruption_queue)
    except BadInput as invalid:
        raise UsageError(f"rebuild: {invalid.message}") from invalid
    except Fault as fault:
        hint = "what was started stays started: run it again for the rest"
        raise CommandFailed(f"rebuild: {fault.message}; {hint}") from fault


def as_json(one: Discrepancy, dry_run: bool) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "workflow": one.workflow or None,
        "found": _describe_finding(one),
        "done": None if dry_run else _describe_action(one),
    }


def findings_table(found: Sequence[Discrepancy], settings: Settings, dry_run: bool) -> Table:
    table = Table(expand=False)
    for name in ("kind", "name"):
        table.add_column(name, no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("would be" if dry_run else "done", overflow="fold")
    for one in found:
        table.add_row(
            one.kind, one.name, _describe_finding(one), f"{_describe_action(one)}{_describe_queue(one, settings)}"
        )
    return table


def summarize_rebuild(found: Sequence[Discrepancy], dry_run: bool) -> str:
    """`3 NodeClaim, 1 Cluster started. ...`: what there was, and what to do next."""
    if not found:
        return "Nothing is missing in Temporal, and nothing runs there without its object."
    counts = Counter("told that their object is gone" if one.is_orphaned else "started" for one in found)
    counted = ", ".join(f"{number} {what}" for what, number in counts.items())
    if dry_run:
        return f"Would be: {counted}. To do it, run this without --dry-run."
    return f"{counted[0].upper()}{counted[1:]}. {_AFTER}"


def _describe_finding(one: Discrepancy) -> str:
    return "its object is gone" if one.is_orphaned else _MISSING.get(one.kind, "no open workflow")


def _describe_action(one: Discrepancy) -> str:
    if one.is_orphaned:
        return "told; it looks for itself, then ends"
    return "registered" if one.kind == "SearchAttribute" else "started"


def _describe_queue(one: Discrepancy, settings: Settings) -> str:
    """What AWS says is read by this one; a queue that only the worker knows is named at the worker's next start."""
    if (one.kind, one.name) != ("Cluster", "interruption"):
        return ""
    queue = settings.interruption_queue
    return f", to read {queue}" if queue else ", with no queue: INTERRUPTION_QUEUE is not set here"
