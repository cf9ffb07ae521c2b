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
from tenure.cli.adopt.handover import Handed, Handover
from tenure.cli.adopt.preview import Place, Report, as_json, as_tables, connected, look_around, report, verdict
from tenure.cli.console import draw, summary
from tenure.cli.exit_codes import Failed, Refused
from tenure.cli.output import Output, answer
from tenure.cli.temporal_client import Connection
from tenure.model.errors import Fault
from tenure.settings import Settings
from worker import security

app = typer.Typer(add_completion=False)

Karpenter = Annotated[str, typer.Option(help="Karpenter's Deployment, as namespace/name.")]
Tenure = Annotated[str, typer.Option(help="Tenure's Deployment, as namespace/name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Look and report; write nothing anywhere.")]
Back = Annotated[bool, typer.Option("--back", help="Hand the cluster back to Karpenter.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Deadline = Annotated[str, typer.Option("--within", help="How long to wait for all of it together, such as 10m.")]
Settle = Annotated[str, typer.Option(help="How long to watch for drift at the end, such as 30s.")]
_ASKED: Final = "Scale Deployment {karpenter} to zero and let Tenure take over its NodeClaims?"
_ASKED_BACK: Final = "Scale Deployment {tenure} to zero and let Karpenter run the cluster again?"


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
        raise Refused("adopt: --dry-run and --back: give one; going back needs no look ahead")
    # What the worker's own code logs is for a worker's log.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    theirs, ours = _place("--karpenter", karpenter), _place("--tenure", tenure)
    seconds = (_seconds("--within", within), _seconds("--settle", settle))
    if dry_run:
        found = asyncio.run(_look(context.args, theirs, ours))
        draw(output, as_json(found), *as_tables(found))
        return int(not found.ready)
    handed = asyncio.run(_hand(context.args, theirs, ours, seconds, back=back, yes=yes))
    shown = {"message": handed.message, "nodeClaims": handed.claims, "left": list(handed.left)}
    answer(output, shown, handed.message)
    return 0


async def _look(given: Sequence[str], karpenter: Place, tenure: Place) -> Report:
    cluster = await connected(given)
    try:
        return await report(cluster, given, karpenter, tenure)
    finally:
        await cluster.close()


async def _hand(
    given: Sequence[str], karpenter: Place, tenure: Place, seconds: tuple[float, float], *, back: bool, yes: bool
) -> Handed:
    cluster = await connected(given)
    try:
        found = await (look_around if back else report)(cluster, given, karpenter, tenure)
        if found.karpenter is not None:
            karpenter = Place(found.karpenter.namespace, found.karpenter.name)
        _check(found, karpenter, back=back)
        handover = Handover(
            cluster=cluster,
            temporal=await _temporal(found.settings, needed=not back),
            settings=found.settings,
            karpenter=karpenter,
            tenure=tenure,
            say=_say,
            deadline=seconds[0],
            settle=seconds[1],
        )
        _ask((_ASKED_BACK if back else _ASKED).format(karpenter=karpenter.path, tenure=tenure.path), yes)
        return await (handover.back() if back else handover.take())
    except Fault as fault:
        raise Failed(f"adopt: {fault.message}; mend that and run the same again") from fault
    finally:
        await cluster.close()


def _check(found: Report, karpenter: Place, *, back: bool) -> None:
    """Raises `Refused` where there is nobody to hand back to, `Failed` where something stands in the way."""
    if back:
        if found.karpenter is None:
            raise Refused(f"adopt --back: there is no Deployment {karpenter.path}; name it: --karpenter NAMESPACE/NAME")
        return
    if not found.ready:
        bad = [one for one in found.findings if one.level == "problem"]
        lines = [f"{one.subject}: {one.said}; {one.todo}" for one in bad]
        raise Failed("\n".join(["adopt: nothing was done, since something stands in the way:", *lines]))
    _say(summary(found.findings))
    _say(verdict(found))


async def _temporal(settings: Settings, *, needed: bool) -> Client | None:
    """None where it does not answer and is not needed: without it no workflow acts anyhow. Raises `Refused`."""
    where = Connection(
        settings.temporal_address, settings.temporal_namespace, settings.cluster_name, security(settings)
    )
    try:
        return await where.client()
    except Refused as refused:
        if needed:
            raise
        _say(f"{refused}: what is under way is not known")
        return None


def _ask(question: str, yes: bool) -> None:
    """Raises `Refused` for no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("adopt: nobody is there to be asked; give --yes")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise Refused("adopt: nothing was done")


def _say(line: str) -> None:
    """On stderr, so that what scripts read is the outcome alone."""
    print(f"adopt: {line}", file=sys.stderr, flush=True)


def _place(option: str, said: str) -> Place:
    namespace, slash, name = said.partition("/")
    if not (namespace and slash and name):
        raise Refused(f"adopt: {option} {said}: write namespace/name, such as kube-system/karpenter")
    return Place(namespace, name)


def _seconds(option: str, said: str) -> float:
    try:
        length = parse_duration(said)
    except DurationError as error:
        raise Refused(f"adopt: {option}: {error}") from error
    if length is None or length.total_seconds() < 0:
        raise Refused(f"adopt: {option} {said}: write a time such as 10m")
    return length.total_seconds()
