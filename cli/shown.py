"""What the worker says of voluntary disruption, asked for `tenure plan` and `tenure why`, and told as text."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from controller.refusals import refusal
from model.showing import ShowAsked, Shown
from model.verdicts import NodeVerdict
from workflows import ids

PATIENCE: Final = timedelta(seconds=30)


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
    except WorkflowFailureError as error:
        cause = getattr(error.cause, "cause", None) or error.cause
        return Shown(blocked=f"no worker answers: {cause}; `tenure doctor` says whether one runs")
    except RPCError as error:
        address = client.service_client.config.target_host
        return Shown(blocked=refusal(error, namespace=client.namespace, address=address))
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
