"""How many workers are at work in this cluster, as Temporal knows it: each takes its share of AWS's rates."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

log = structlog.get_logger(__name__)

_EVERY: Final = 10.0
_LIVES: Final = timedelta(seconds=70)
"""A worker that is there asks for tasks at least once a minute."""


@asynccontextmanager
async def counted(temporal: Client, queue: str, tell: Callable[[int], None]) -> AsyncIterator[None]:
    """Meanwhile `tell` hears of every change of the number; of none while the service does not answer."""
    task = asyncio.create_task(_count(temporal, queue, tell), name="replicas")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _count(temporal: Client, queue: str, tell: Callable[[int], None]) -> None:
    known = 1
    while True:
        try:
            number = await replicas_of(temporal, queue)
        except RPCError as error:
            log.warning("workers cannot be counted", error=str(error))
        else:
            if number != known:
                log.info("workers share the rates of AWS", workers=number)
                known = number
            tell(number)
        await asyncio.sleep(_EVERY)


async def replicas_of(temporal: Client, queue: str) -> int:
    """Workers that lately asked this queue for activities; at least one, who asks."""
    answer = await temporal.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=temporal.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
    )
    return living(answer.pollers, datetime.now(UTC))


def living(pollers: Iterable[PollerInfo], now: datetime) -> int:
    return max(1, len({one.identity for one in pollers if is_alive(one, now)}))


def is_alive(poller: PollerInfo, now: datetime) -> bool:
    return now - poller.last_access_time.ToDatetime(UTC) < _LIVES
