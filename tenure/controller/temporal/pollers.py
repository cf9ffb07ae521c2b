"""The workers that poll a task queue. It imports little, because commands import it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

_POLLER_TTL: Final = timedelta(seconds=70)
"""A running worker polls at least once a minute."""


async def list_pollers(
    temporal: Client, queue: str, kind: "TaskQueueType.ValueType", *, retry: bool = False
) -> Sequence[PollerInfo]:
    """Pollers of the last minutes. Raises RPCError."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    return (await temporal.workflow_service.describe_task_queue(request, retry=retry)).pollers


def count_live_pollers(pollers: Iterable[PollerInfo], now: datetime) -> int:
    return max(1, len({one.identity for one in pollers if is_alive(one, now)}))


async def is_unpolled(temporal: Client, queue: str, now: datetime) -> bool:
    """Whether no worker polls this activity queue, although Temporal responds."""
    try:
        pollers = await list_pollers(temporal, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    except RPCError:
        return False
    return not any(is_alive(one, now) for one in pollers)


def is_alive(poller: PollerInfo, now: datetime) -> bool:
    return now - poller.last_access_time.ToDatetime(UTC) < _POLLER_TTL
