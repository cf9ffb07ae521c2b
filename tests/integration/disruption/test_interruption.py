"""Interruptions on real components: messages from SQS reach the node's workflow once."""

from functools import partial
from typing import Any

from temporalio.api.enums.v1 import EventType

from tenure.model.interruption.messages import InterruptionMessage, InterruptionMessages
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import assert_queue_empty
from tests.support.product.product import InstalledProduct
from workflows import ids

SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED


async def test_queue_message_is_signaled_to_the_node_once(product: InstalledProduct) -> None:
    async with product.scope("queue") as scope:
        (claim,) = await scope.run_pods(1)
        (instance,) = scope.launched_instances()
        product.aws.send_message({"not": "an event"})
        for _ in range(3):
            product.aws.recommend_rebalance(instance)
        await wait_until(partial(_assert_notified, scope, claim))
        await wait_until(partial(assert_queue_empty, product))
        await _assert_notified(scope, claim)
        received = partial(product.metric_value, "karpenter_interruption_received_messages_total")
        await wait_until(partial(received, message_type="rebalance_recommendation"))
        await wait_until(partial(product.metric_value, "tenure_interruption_messages_dropped_total", why="malformed"))
        assert [one for one in product.aws.list_denials() if one["action"].startswith("sqs:")] == []


async def _assert_notified(scope: ClusterScope, claim: dict[str, Any]) -> None:
    assert [one.kind for one in await _notified_messages(scope, claim)] == ["rebalanceRecommendation"]


async def _notified_messages(scope: ClusterScope, claim: dict[str, Any]) -> list[InterruptionMessage]:
    """Messages that the NodeClaim workflow received, from its history."""
    product, metadata = scope.product, claim["metadata"]
    workflow_id = ids.nodeclaim(product.sandbox.plan.cluster_name, metadata["name"], metadata["uid"])
    history = await product.temporal.get_workflow_handle(workflow_id).fetch_history()
    found = [one.workflow_execution_signaled_event_attributes for one in history.events if one.event_type == SIGNALED]
    payloads = [one.input.payloads[0].data for one in found if one.signal_name == "interruption_events"]
    return [message for one in payloads for message in InterruptionMessages.model_validate_json(one).messages]
