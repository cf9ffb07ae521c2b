"""What is paused: asked of visibility, and of the workflows for who, until when and why. For `stuck`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from rich.table import Table
from temporalio.client import Client
from temporalio.service import RPCError

from model.base import Message
from model.messages import Pause
from policy.pauses import words

ASKED = 50
"""Workflows that are asked who paused them."""
_PATIENCE = timedelta(seconds=2)


@dataclass(frozen=True)
class Paused:
    what: str
    pause: Pause | None = None
    """None: its workflow did not answer."""


class _Held(Message):
    """The part of any state that says so."""

    pause: Pause | None = None


async def all_paused(client: Client, cluster: str) -> list[Paused]:
    """The cluster, NodePools and nodes that people paused."""
    query = f"TenurePaused = true AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{cluster}/'"
    found = sorted([one.id async for one in client.list_workflows(query, page_size=1000)])
    held = await asyncio.gather(*(_held(client, one) for one in found[:ASKED]))
    answers = [*held, *([None] * (len(found) - len(held)))]
    return [Paused(name_of(one, cluster), pause) for one, pause in zip(found, answers, strict=True)]


async def _held(client: Client, workflow_id: str) -> Pause | None:
    handle = client.get_workflow_handle(workflow_id)
    try:
        held: _Held = await handle.query("state", result_type=_Held, rpc_timeout=_PATIENCE)
    except RPCError:
        return None
    return held.pause


def name_of(workflow_id: str, cluster: str) -> str:
    """`NodePool gpu` for `demo/nodepool/gpu`."""
    kind, _, rest = workflow_id.removeprefix(f"{cluster}/").partition("/")
    name = rest.partition("/")[0]
    return {"nodepool": f"NodePool {name}", "nodeclaim": f"NodeClaim {name}", "cluster": "the cluster"}.get(kind, kind)


def table_of(paused: Sequence[Paused]) -> Table:
    table = Table(title="Paused", title_justify="left", expand=False)
    table.add_column("what", no_wrap=True)
    table.add_column("why", overflow="fold")
    for one in paused:
        table.add_row(one.what, words(one.pause) if one.pause else "its workflow does not answer")
    return table
