"""What a person says to a workflow, as an update: its answer, or why there is none. For `pause`, `approve` and such."""

import asyncio
from datetime import timedelta

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from tenure.cli.exit_codes import Refused
from tenure.controller.temporal.errors import lacks_namespace
from tenure.model.base import Message
from tenure.model.signals import Verdict

ANSWER_WITHIN = timedelta(seconds=20)
"""A task may wait 15 s for a worker that is gone."""
_LATE = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


class Unanswered(Exception):
    """No worker answered in time."""

    def __str__(self) -> str:
        return f"within {ANSWER_WITHIN.total_seconds():g} s"


class Unknown(Exception):
    """No workflow of this id runs."""


async def told(handle: WorkflowHandle[object, object], verb: str, said: Message, *, about: str) -> Verdict:
    """What the workflow answers. Raises `Unanswered`, `Unknown`, `Refused`, which begins with `about`, where it says
    no, and RPCError where Temporal does."""
    try:
        answer = handle.execute_update(verb, said, result_type=Verdict, rpc_timeout=ANSWER_WITHIN)
        verdict: Verdict = await asyncio.wait_for(answer, ANSWER_WITHIN.total_seconds())
    except WorkflowUpdateFailedError as refused:
        raise Refused(f"{about}: {getattr(refused.cause, 'message', refused.cause)}") from refused
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as late:
        raise Unanswered from late
    except RPCError as error:
        if error.status in _LATE:
            raise Unanswered from error
        if error.status is RPCStatusCode.NOT_FOUND and not lacks_namespace(error):
            raise Unknown from error
        raise
    return verdict


async def answered(handle: WorkflowHandle[object, object], verb: str, said: Message, *, about: str, absent: str) -> str:
    """The message of the answer. Raises `Refused`, which begins with `about`, where it is no, or there is none;
    `absent`: what it means that there is no such workflow."""
    try:
        answer = await told(handle, verb, said, about=about)
    except Unanswered as late:
        todo = "`tenure doctor` says whether one runs; then say it again"
        raise Refused(f"{about}: no worker answered {late}, so nothing is said; {todo}") from None
    except Unknown as unknown:
        raise Refused(f"{about}: {absent}") from unknown
    if not answer.accepted:
        raise Refused(f"{about}: {answer.message}")
    return answer.message
