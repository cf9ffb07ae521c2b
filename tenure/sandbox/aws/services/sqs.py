"""Extensions of moto: faster SQS queues, AWS::SQS::QueuePolicy for CloudFormation, and a check of KMS keys.

moto scans a queue several times per received or deleted message, so thousands of messages take minutes. It also returns
one message to two concurrent pollers, and keeps messages past their retention. Call `patch_moto` once per process.

moto's CloudFormation finds types among the subclasses that exist when the first stack is created.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Sequence
from typing import Any

from moto.core.common_models import CloudFormationModel
from moto.core.utils import unix_time_millis
from moto.kms.models import kms_backends
from moto.sqs import models
from moto.sqs.models import sqs_backends

_POLL_SECONDS = 1.0
"""Seconds between checks for messages that become visible again. A new message wakes a poll at once."""

_COUNTS = {
    "ApproximateNumberOfMessages": "approximate_number_of_messages",
    "ApproximateNumberOfMessagesDelayed": "approximate_number_of_messages_delayed",
    "ApproximateNumberOfMessagesNotVisible": "approximate_number_of_messages_not_visible",
}
"""Attributes that require a scan of all messages. moto reads all attributes for each sent message."""

_attributes = models.SQSBackend.get_queue_attributes
_receive = models.SQSBackend.receive_message
_delete = models.Queue.delete_message


def patch_moto() -> None:
    models.Queue.BASE_ATTRIBUTES = [one for one in models.Queue.BASE_ATTRIBUTES if one not in _COUNTS]
    models.SQSBackend.get_queue_attributes = get_queue_attributes
    models.SQSBackend.receive_message = receive_message
    models.Queue.delete_message = delete_message


def get_queue_attributes(self: Any, queue_name: str, names: Sequence[str]) -> dict[str, Any]:
    """Compute counts only on request."""
    queue = self.get_queue(queue_name)
    found = dict(_attributes(self, queue_name, [one for one in names if one not in _COUNTS]))
    requested = _COUNTS if "All" in names else [one for one in names if one in _COUNTS]
    return found | {one: getattr(queue, _COUNTS[one]) for one in requested}


def receive_message(
    self: Any, queue_name: str, count: int, wait: int, visibility: int, names: Sequence[str] | None = None
) -> Any:
    """moto handles FIFO queues and queues with a dead-letter queue."""
    queue = self.get_queue(queue_name)
    if queue.fifo_queue or queue.dead_letter_queue is not None:
        return _receive(self, queue_name, count, wait, visibility, names)
    ends = time.monotonic() + wait
    while True:
        with queue._messages_lock:
            found = _receive_visible(queue, count, visibility)
            left = ends - time.monotonic()
            if found or left <= 0:
                break
            queue._messages_lock.wait(min(_POLL_SECONDS, left))
    for message in found:
        models._filter_message_attributes(message, list(names or ()))
    return found


def delete_message(self: Any, receipt_handle: str) -> None:
    """Accept any receipt that the message ever had. The receipt of a deleted message is ignored."""
    with self._messages_lock:
        message = _messages_by_receipt(self).get(receipt_handle)
        if message is None:
            _delete(self, receipt_handle)
        else:
            _remove_message(self, message)


def _receive_visible(queue: Any, count: int, visibility: int) -> list[Any]:
    """Copies of up to `count` visible messages, which become invisible."""
    now, found, expired = unix_time_millis(), [], []
    oldest = now - 1000 * int(queue.message_retention_period)
    for message in queue._messages:
        if message.sent_timestamp <= oldest:
            expired.append(message)
        elif now > message.visible_at and now >= message.delayed_until:
            message.mark_received(visibility_timeout=visibility)
            queue.pending_messages.add(message)
            _messages_by_receipt(queue)[message.receipt_handle] = message
            found.append(copy.copy(message))
            if len(found) == count:
                break
    for message in expired:
        _remove_message(queue, message)
    return found


def _remove_message(queue: Any, message: Any) -> None:
    """Messages that were read first are at the front, which keeps the search short."""
    queue._messages.remove(message)
    queue.pending_messages.discard(message)
    for handle in filter(None, message.all_receipt_handles):
        _messages_by_receipt(queue).pop(handle, None)
        queue.deleted_messages.add(handle)


def _messages_by_receipt(queue: Any) -> dict[str, Any]:
    """Messages by each of their receipts."""
    found: dict[str, Any] = vars(queue).setdefault("receipts", {})
    return found


class QueuePolicy(CloudFormationModel):  # type: ignore[misc]
    def __init__(self, queues: list[str]) -> None:
        self.queues = queues
        self.physical_resource_id = queues[0].rpartition("/")[2] + "-policy"

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SQS::QueuePolicy"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> QueuePolicy:
        properties = cloudformation_json["Properties"]
        for url in properties["Queues"]:
            queue = sqs_backends[account_id][region_name].get_queue(url.rpartition("/")[2])
            queue.policy = json.dumps(properties["PolicyDocument"])
        return cls(list(properties["Queues"]))

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> QueuePolicy:
        return cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        """The policy is deleted with its queue."""


def is_usable(account: str, region: str, key: str) -> bool:
    """Whether a volume can be encrypted with `key` (ID, ARN or alias). `alias/aws/...` keys are always usable."""
    if "alias/aws/" in key:
        return True
    backend = kms_backends[account][region]
    found = backend.keys.get(backend.any_id_to_key_id(key))
    return found is not None and found.enabled
