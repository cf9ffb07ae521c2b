"""The interruption queue and instance status against the AWS stand-in, under the shipped IAM policy."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.aws.interruption import sqs as queue_module
from tenure.model.errors import Forbidden, NotFound, Throttled
from tenure.model.interruption.messages import StatusReport
from tenure.model.interruption.records import QueueMessage
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.steps import admin_client, run_foreign_instances

QUEUE = "demo"


@pytest.fixture
def instances(endpoint: str, control: AwsControl) -> list[str]:
    """Three running instances without an owner; the adapters do not check ownership."""
    control.configure(pending_seconds=0.0)
    ids = run_foreign_instances(endpoint, 3)
    admin_client(endpoint).get_waiter("instance_running").wait(InstanceIds=ids, WaiterConfig={"Delay": 1})
    return ids


async def read(cloud: AwsAdapters, wait: int = 1) -> list[QueueMessage]:
    return list(await cloud.queue.receive(QUEUE, wait=wait))


async def read_reports(cloud: AwsAdapters) -> dict[str, StatusReport]:
    return {one.instance_id: one for one in await cloud.statuses.read()}


async def test_ec2_and_health_events_arrive_through_the_queue(
    cloud: AwsAdapters, control: AwsControl, instances: list[str]
) -> None:
    one, two, three = instances
    control.interrupt_spot(one, warn_only=True)
    control.recommend_rebalance(two)
    arn = control.health_event([two, three], statusCode="upcoming")
    found = {message.parsed.message_type: message for message in await read(cloud)}
    assert set(found) == {"spot_interrupted", "rebalance_recommendation", "scheduled_change"}
    messages = found["scheduled_change"].parsed.interruptions
    assert [(each.instance_id, each.message.id) for each in messages] == [(two, arn), (three, arn)]
    now = datetime.now(UTC)
    for message in found.values():
        assert abs(now - message.sent) < timedelta(minutes=1) and abs(now - message.first_received) < timedelta(
            minutes=1
        )
    assert control.list_denials() == []


async def test_received_message_stays_hidden_until_deleted(
    cloud: AwsAdapters, control: AwsControl, instances: list[str]
) -> None:
    for one in instances:
        control.recommend_rebalance(one)
    found = await read(cloud)
    assert len(found) == 3
    assert await read(cloud) == []
    assert await cloud.queue.delete(QUEUE, [message.receipt for message in found]) == 3
    assert control.list_denials() == []


async def test_more_than_ten_messages_are_deleted_in_batches(cloud: AwsAdapters, control: AwsControl) -> None:
    for number in range(23):
        control.send_message({"number": number})
    found: list[QueueMessage] = []
    while more := await read(cloud):
        found += more
    assert {message.parsed.dropped for message in found} == {"malformed"}
    control.clear_counters()
    assert await cloud.queue.delete(QUEUE, [message.receipt for message in found]) == 23
    assert control.count_calls("sqs:DeleteMessageBatch") == 3


async def test_invalid_receipt_does_not_block_other_deletions(cloud: AwsAdapters, control: AwsControl) -> None:
    control.send_message({"one": 1})
    (message,) = await read(cloud)
    assert await cloud.queue.delete(QUEUE, ["no-receipt", message.receipt]) == 1


async def test_message_without_json_is_malformed(cloud: AwsAdapters, endpoint: str, control: AwsControl) -> None:
    sqs = admin_client(endpoint, "sqs")
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"], MessageBody="{{{")
    (message,) = await read(cloud)
    assert message.parsed.dropped == "malformed"


async def test_missing_queue_raises_not_found_until_created(
    cloud: AwsAdapters, endpoint: str, control: AwsControl
) -> None:
    """Includes a queue that is deleted while it is read."""
    sqs = admin_client(endpoint, "sqs")
    url = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    assert await read(cloud) == []
    sqs.delete_queue(QueueUrl=url)
    for _ in range(2):
        with pytest.raises(NotFound):
            await read(cloud)
    sqs.create_queue(QueueName=QUEUE)
    control.send_message({"one": 1})
    assert len(await read(cloud)) == 1


async def test_shipped_policy_forbids_other_queues(cloud: AwsAdapters) -> None:
    with pytest.raises(Forbidden):
        await cloud.queue.receive("others", wait=1)


async def test_cancelled_poll_loses_no_message(cloud: AwsAdapters, control: AwsControl, instances: list[str]) -> None:
    """The next poll receives a message that arrives later, without waiting for the visibility timeout."""
    await read(cloud)
    polling = asyncio.create_task(read(cloud, 10))
    await asyncio.sleep(0.5)
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    control.recommend_rebalance(instances[0])
    (message,) = await asyncio.wait_for(read(cloud), 15)
    assert message.parsed.message_type == "rebalance_recommendation"


async def test_message_with_expired_visibility_is_not_returned(
    cloud: AwsAdapters, control: AwsControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its receipt may already be invalid."""
    monkeypatch.setattr(queue_module, "VISIBILITY", 0)
    control.send_message({"one": 1})
    assert await read(cloud) == []


async def test_polls_do_not_block_threads_of_other_calls(endpoint: str, region: Region, control: AwsControl) -> None:
    cloud = adapters(endpoint, region, pool_size=8)
    polls = {asyncio.create_task(read(cloud, 20)) for _ in range(8)}
    await asyncio.sleep(0.2)
    await asyncio.gather(*(read_reports(cloud) for _ in range(5)))
    assert not any(poll.done() for poll in polls)
    while polls:
        control.send_message({"ends": "a poll"})
        _, polls = await asyncio.wait(polls, timeout=0.2)
    cloud.close()


async def test_only_impaired_instances_are_reported(
    cloud: AwsAdapters, control: AwsControl, instances: list[str]
) -> None:
    one, two, three = instances
    control.set_status(one, instance="impaired", system="impaired", impaired_seconds=300)
    control.set_status(two, ebs="impaired", impaired_seconds=300)
    control.set_status(three, system="initializing")
    found = await read_reports(cloud)
    assert set(found) == {one}
    assert [check.kind for check in found[one].failed_checks] == ["instanceStatus", "systemStatus"]
    since = found[one].failed_checks[0].since
    assert since is not None and abs(datetime.now(UTC) - since - timedelta(seconds=300)) < timedelta(seconds=30)
    assert control.list_denials() == []


async def test_failed_check_may_lack_its_start(cloud: AwsAdapters, control: AwsControl, instances: list[str]) -> None:
    control.set_status(instances[0], system="impaired", impaired_seconds=-1)
    assert (await read_reports(cloud))[instances[0]].failed_checks[0].since is None


def scheduled(**more: Any) -> dict[str, Any]:
    return {
        "id": "instance-event-1",
        "code": "instance-retirement",
        "description": "The instance is running on degraded hardware",
        "not_before": "2026-12-01T04:00:00Z",
        "not_after": "2026-12-01T06:00:00Z",
        **more,
    }


@pytest.mark.parametrize(
    "prefix, status",
    [("", "announced"), ("[Completed] ", "over"), ("[Canceled] ", "withdrawn"), ("[Cancelled] ", "withdrawn")],
)
async def test_scheduled_event_has_times_and_status(
    cloud: AwsAdapters, control: AwsControl, instances: list[str], prefix: str, status: str
) -> None:
    text = f"{prefix}The instance is running on degraded hardware"
    control.set_status(instances[0], events=[scheduled(description=text)])
    (message,) = (await read_reports(cloud))[instances[0]].events
    assert (message.kind, message.source, message.status) == ("scheduledChange", "status", status)
    assert (message.id, message.code, message.text) == ("instance-event-1", "instance-retirement", text)
    assert message.starts == datetime(2026, 12, 1, 4, tzinfo=UTC)
    assert message.ends == datetime(2026, 12, 1, 6, tzinfo=UTC)


async def test_event_code_that_karpenter_ignores_is_ignored(
    cloud: AwsAdapters, control: AwsControl, instances: list[str]
) -> None:
    control.set_status(instances[0], events=[scheduled(code="volume-maintenance")])
    assert await read_reports(cloud) == {}


async def test_instance_with_failed_checks_and_events_is_reported_once(
    cloud: AwsAdapters, control: AwsControl, instances: list[str]
) -> None:
    control.set_status(instances[0], instance="impaired", system="impaired", events=[scheduled()])
    (report,) = await cloud.statuses.read()
    assert (len(report.failed_checks), len(report.events)) == (2, 1)


async def test_denied_or_throttled_status_call_raises(cloud: AwsAdapters, control: AwsControl) -> None:
    control.add_fault("throttle", service="ec2", action="DescribeInstanceStatus")
    with pytest.raises(Throttled):
        await cloud.statuses.read()
    control.clear_faults()
    control.add_fault("error", service="ec2", action="DescribeInstanceStatus", code="UnauthorizedOperation", http=403)
    with pytest.raises(Forbidden):
        await cloud.statuses.read()
    control.clear_faults()
    assert await cloud.statuses.read() == ()
    assert json.dumps(control.list_denials()) == "[]"
