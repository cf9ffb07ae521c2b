"""The stand-in's queue: SQS's guarantees, also with concurrent pollers."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, raises_code

LONG_POLL = 20
"""Seconds, SQS's maximum."""


class QueueClient:
    def __init__(self, kit: FakeAwsClient) -> None:
        self.sqs = kit.client("sqs")
        self.url = self.sqs.get_queue_url(QueueName="demo")["QueueUrl"]

    def send(self, *bodies: str) -> None:
        for start in range(0, len(bodies), 10):
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies[start : start + 10])]
            self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)

    def receive(self, wait: int = 0, visibility: int = 20) -> list[dict[str, Any]]:
        response = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=wait,
            VisibilityTimeout=visibility,
            MessageSystemAttributeNames=["All"],
        )
        return list(response.get("Messages", []))

    def delete(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
        found: dict[str, Any] = self.sqs.delete_message_batch(QueueUrl=self.url, Entries=entries)
        return found

    def message_counts(self) -> tuple[int, int]:
        """Numbers of visible and of hidden messages."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])


@pytest.fixture
def queue(kit: FakeAwsClient) -> QueueClient:
    return QueueClient(kit)


def test_message_is_hidden_then_visible_again_until_deleted(queue: QueueClient) -> None:
    queue.send("a")
    (first,) = queue.receive(visibility=5)
    assert queue.receive() == [] and queue.message_counts() == (0, 1)
    (repeated,) = queue.receive(wait=20)
    assert repeated["MessageId"] == first["MessageId"]
    counts = [one["Attributes"]["ApproximateReceiveCount"] for one in (first, repeated)]
    firsts = {one["Attributes"]["ApproximateFirstReceiveTimestamp"] for one in (first, repeated)}
    assert counts == ["1", "2"] and len(firsts) == 1
    assert len(queue.delete([first])["Successful"]) == 1
    assert len(queue.delete([repeated])["Successful"]) == 1
    assert queue.message_counts() == (0, 0)


def test_unknown_receipt_fails_alone(queue: QueueClient) -> None:
    queue.send("a")
    (message,) = queue.receive()
    response = queue.delete([{"ReceiptHandle": "none"}, message])
    assert ([one["Id"] for one in response["Failed"]], [one["Id"] for one in response["Successful"]]) == (["0"], ["1"])
    with raises_code("ReceiptHandleIsInvalid"):
        queue.sqs.delete_message(QueueUrl=queue.url, ReceiptHandle="none")


def test_long_poll_returns_when_a_message_arrives(queue: QueueClient) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(queue.receive, LONG_POLL)
        time.sleep(0.5)
        started_at = time.monotonic()
        queue.send("a")
        assert len(waiting.result()) == 1
    assert time.monotonic() - started_at < LONG_POLL / 2, "the poll did not return early"


def test_message_past_its_retention_is_removed(queue: QueueClient) -> None:
    queue.send("old")
    queue.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"MessageRetentionPeriod": "60"})
    assert len(queue.receive(visibility=0)) == 1
    queue.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"MessageRetentionPeriod": "0"})
    queue.send()
    assert queue.receive() == [] and queue.message_counts() == (0, 0)


def test_concurrent_pollers_get_each_message_once(queue: QueueClient) -> None:
    bodies = [f"{number} {'x' * 400}" for number in range(1500)]
    queue.send(*bodies)

    def drain() -> list[str]:
        found: list[str] = []
        while messages := queue.receive():
            found += [one["Body"] for one in messages]
            assert len(queue.delete(messages)["Successful"]) == len(messages)
        return found

    with ThreadPoolExecutor(8) as pool:
        got = [body for found in [pool.submit(drain) for _ in range(8)] for body in found.result()]
    assert sorted(got) == sorted(bodies)
