"""`tenure approve PLAN`, `tenure reject PLAN`: what a person says of a wave of a roll-out, or of one that has halted.

The plan's name begins with that of its NodePool, whose workflow is told by an update: it answers, or says why not.
"""

import asyncio
from typing import Annotated, Final

import typer
from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from cli.connection import Address, ClusterName, Connection, Namespace
from cli.exits import Refused
from model.messages import Verdict
from model.rollouts import ApproveRollout, RejectRollout
from workflows import ids

app = typer.Typer()
rejecting = typer.Typer()

SECONDS: Final = 10.0
Plan = Annotated[str, typer.Argument(help="As an event of the NodePool names it, such as web-3f2a9c.")]
By = Annotated[str, typer.Option("--by", envvar="USER", help="Who says so.")]
Reason = Annotated[str, typer.Option("--reason", help="Written down with it.")]


@app.command()
def approve(
    plan: Plan,
    by: By = "",
    reason: Reason = "",
    address: Address = "127.0.0.1:7233",
    namespace: Namespace = "default",
    cluster_name: ClusterName = "",
) -> None:
    """Let a wave of a roll-out begin, or one that has halted go on."""
    said = ApproveRollout(plan=plan, by=by, reason=reason)
    typer.echo(asyncio.run(_connected(Connection(address, namespace, cluster_name), said)))


@rejecting.command()
def reject(
    plan: Plan,
    by: By = "",
    reason: Reason = "",
    roll_back: Annotated[bool, typer.Option("--roll-back", help="Take the last good image again.")] = False,
    address: Address = "127.0.0.1:7233",
    namespace: Namespace = "default",
    cluster_name: ClusterName = "",
) -> None:
    """Stop a roll-out: nodes that are on their way arrive, and no further one goes."""
    said = RejectRollout(plan=plan, by=by, reason=reason, roll_back=roll_back)
    typer.echo(asyncio.run(_connected(Connection(address, namespace, cluster_name), said)))


async def _connected(connection: Connection, said: ApproveRollout | RejectRollout) -> str:
    return await tell(await connection.client(), connection.cluster, said)


async def tell(client: Client, cluster: str, said: ApproveRollout | RejectRollout) -> str:
    """What the NodePool's workflow answers. Raises `Refused` with its reason, or where there is none."""
    verb = "approve" if isinstance(said, ApproveRollout) else "reject"
    pool, dash, _ = said.plan.rpartition("-")
    if not dash:
        raise Refused(f"{verb} {said.plan}: that is no plan; write its whole name, such as web-3f2a9c")
    handle = client.get_workflow_handle(ids.nodepool(cluster, pool))
    try:
        answer: Verdict = await asyncio.wait_for(handle.execute_update(verb, said, result_type=Verdict), SECONDS)
    except WorkflowUpdateFailedError as refused:
        raise Refused(f"{verb} {said.plan}: {getattr(refused.cause, 'message', refused.cause)}") from refused
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        raise Refused(f"{verb} {said.plan}: no worker answered within {SECONDS:g} s, so nothing is said") from None
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise Refused(f"{verb} {said.plan}: there is no NodePool {pool} in cluster {cluster}") from error
        raise Refused(f"{verb} {said.plan}: {error.message}") from error
    if not answer.accepted:
        raise Refused(f"{verb} {said.plan}: {answer.message}")
    return answer.message
