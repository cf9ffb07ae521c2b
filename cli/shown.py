"""What the worker says of voluntary disruption, asked for `tenure plan` and `tenure why`, and written as text."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from model.disruption import NodeVerdict
from model.showing import ShowAsked, Shown, ShownCommand
from workflows import ids

PATIENCE: Final = timedelta(seconds=30)
_NAMED: Final = 3
HOURS_A_MONTH: Final = 730


async def ask(client: Client, cluster: str, name: str = "") -> Shown:
    """`blocked` says why there is no answer."""
    try:
        answer: Shown = await client.execute_workflow(
            "ShowWorkflow",
            ShowAsked(cluster=cluster, name=name),
            id=ids.show(cluster, uuid.uuid4().hex[:8]),
            task_queue=ids.task_queue(cluster),
            execution_timeout=PATIENCE,
            result_type=Shown,
        )
    except (WorkflowFailureError, RPCError) as error:
        cause = error.cause if isinstance(error, WorkflowFailureError) else error
        return Shown(blocked=f"no worker answers: {getattr(cause, 'cause', None) or cause}")
    return answer


def lines_of(found: Shown) -> list[str]:
    """What keeps a node or a pod where it is, or what would become of it."""
    if found.blocked:
        return [f"not known now: {found.blocked}"]
    return [*found.said, *_would(found), *(line for one in found.verdicts for line in _verdict(one))]


def _would(found: Shown) -> Iterator[str]:
    for one in found.commands:
        yield f"would go now ({one.reason}): {one.why}"


def _verdict(one: NodeVerdict) -> Iterator[str]:
    """All that keeps it, so that whoever removes one obstacle knows the next."""
    for said in one.excluded:
        yield f"stays ({said.cause}; not for {', '.join(said.methods)}): {said.words}"
    if one.eligible:
        yield f"could go as {', '.join(one.eligible)}"
    yield from (f"stays all the same: {words}" for words in one.rejected)


def as_json(found: Shown) -> dict[str, Any]:
    return found.model_dump(mode="json", exclude_defaults=True)


def as_table(found: Shown) -> Group | str:
    """What would be done, command by command, and one line that sums it up."""
    if found.blocked:
        return f"nothing can be said now: {found.blocked}"
    parts: list[Any] = [_commands(found.commands)] if found.commands else []
    if found.more:
        parts.append(f"and {found.more} more")
    kept = ", ".join(f"{cause} {number}" for cause, number in found.kept.items())
    parts.append(f"{found.nodes} nodes, {found.eligible} could go" + (f"; kept by {kept}" if kept else ""))
    parts.append(_sum(found))
    return Group(*parts)


def _commands(commands: tuple[ShownCommand, ...]) -> Table:
    table = Table("reason", "nodes", "replaced by", "pods move")
    for name in ("$/h now", "$/h then", "saves $/h"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in commands:
        more = f" and {len(one.nodes) - _NAMED} more" if len(one.nodes) > _NAMED else ""
        table.add_row(
            one.reason,
            ", ".join(one.nodes[:_NAMED]) + more,
            "; ".join(one.replacements) or "nothing",
            str(one.pods),
            f"{one.price_before:.4f}",
            f"{one.price_after:.4f}",
            f"{one.price_before - one.price_after:.4f}",
        )
    return table


def _sum(found: Shown) -> str:
    if not found.commands:
        return "Nothing would be done now."
    saved = sum(one.price_before - one.price_after for one in found.commands)
    nodes = sum(len(one.nodes) for one in found.commands)
    bought = sum(len(one.replacements) for one in found.commands)
    return f"{nodes} nodes would go and {bought} come: {saved:.4g} $/h saved, {saved * HOURS_A_MONTH:,.0f} $ a month."
