"""The port `EventQueue`: the SQS queue with EC2's events.

The poll of a cancelled caller is kept for the next caller; otherwise its messages would stay hidden until the
visibility timeout.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from tenure.aws.client.client import AwsClients
from tenure.aws.interruption.parser import parse
from tenure.clock import utc_now
from tenure.model.errors import NotFound
from tenure.model.interruption.records import QueueMessage

MOST: Final = 10
"""Maximum number of messages that SQS returns or deletes in one call."""
DELETES: Final = 4
"""Concurrent delete calls of one caller."""
VISIBILITY: Final = 20
"""Visibility timeout of received messages, in seconds (reference 5.2)."""
_ATTRIBUTES: Final = ("SentTimestamp", "ApproximateFirstReceiveTimestamp")

_Poll = asyncio.Future[tuple[float, Sequence[QueueMessage]]]


class SqsQueue:
    """Raises model.faults: NotFound if the queue does not exist."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._urls: dict[str, str] = {}
        self._left: dict[str, list[_Poll]] = {}
        """Polls without a waiting caller, by queue."""

    async def receive(self, queue: str, *, wait: int) -> Sequence[QueueMessage]:
        """Up to ten messages; waits up to `wait` seconds, at most 20, for the first one."""
        left = self._left.get(queue)
        poll = left.pop() if left else asyncio.ensure_future(self._receive_messages(queue, wait))
        try:
            ended, found = await asyncio.shield(poll)
        except asyncio.CancelledError:
            poll.add_done_callback(_retrieve_exception)
            self._left.setdefault(queue, []).append(poll)
            raise
        return found if time.monotonic() - ended < VISIBILITY / 2 else ()

    async def delete(self, queue: str, receipts: Sequence[str]) -> int:
        """Returns the number of deleted messages; SQS delivers the others again."""
        url, semaphore = await self._queue_url(queue), asyncio.Semaphore(DELETES)
        sqs = self._clients.sqs

        async def delete_batch(batch: Sequence[str]) -> int:
            entries: Any = [{"Id": str(number), "ReceiptHandle": one} for number, one in enumerate(batch)]
            async with semaphore:
                response = await self._clients.call(sqs.delete_message_batch, QueueUrl=url, Entries=entries)
            return len(response.get("Successful", ()))

        batches = (receipts[start : start + MOST] for start in range(0, len(receipts), MOST))
        return sum(await asyncio.gather(*map(delete_batch, batches)))

    async def _receive_messages(self, queue: str, wait: int) -> tuple[float, Sequence[QueueMessage]]:
        url = await self._queue_url(queue)
        try:
            response = await self._clients.call(
                self._clients.sqs.receive_message,
                QueueUrl=url,
                MaxNumberOfMessages=MOST,
                VisibilityTimeout=VISIBILITY,
                WaitTimeSeconds=wait,
                MessageSystemAttributeNames=list(_ATTRIBUTES),
            )
        except NotFound:
            self._urls.pop(queue, None)
            raise
        now = utc_now()
        return time.monotonic(), tuple(_parse_message(one, now) for one in response.get("Messages", ()))

    async def _queue_url(self, queue: str) -> str:
        if queue not in self._urls:
            response = await self._clients.call(self._clients.sqs.get_queue_url, QueueName=queue)
            self._urls[queue] = response["QueueUrl"]
        return self._urls[queue]


def _retrieve_exception(poll: _Poll) -> None:
    """Mark the exception as retrieved, so that asyncio does not log it. The next caller of the poll still gets it."""
    if not poll.cancelled():
        poll.exception()


def _parse_message(raw: Mapping[str, Any], now: datetime) -> QueueMessage:
    attributes = raw.get("Attributes") or {}
    sent = _from_milliseconds(attributes.get("SentTimestamp")) or now
    return QueueMessage(
        id=raw.get("MessageId", ""),
        receipt=raw["ReceiptHandle"],
        sent=sent,
        first_received=_from_milliseconds(attributes.get("ApproximateFirstReceiveTimestamp")) or now,
        parsed=parse(raw.get("Body", ""), sent=sent),
    )


def _from_milliseconds(value: Any) -> datetime | None:
    return datetime.fromtimestamp(int(value) / 1000, UTC) if str(value or "").isdigit() else None
