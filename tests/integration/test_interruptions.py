"""What AWS says of instances on the real parts: through SQS and EC2's status to the workflow of the node, once."""

from functools import partial
from typing import Any

from temporalio.api.enums.v1 import EventType

from tenure.model.interruption.notices import Notice, Notices
from tests.support.product.eventually import eventually
from tests.support.product.product import Product
from tests.support.product.queue import nothing_is_queued
from tests.support.product.scene import Scene
from workflows import ids

SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED


async def test_what_comes_through_the_queue_is_told_to_the_node_once(product: Product) -> None:
    async with product.scene("queue") as scene:
        (claim,) = await scene.run(1)
        (instance,) = scene.launched()
        product.aws.send_message({"not": "an event"})
        for _ in range(3):
            product.aws.recommend_rebalance(instance)
        await eventually(partial(_told, scene, claim, ["rebalanceRecommendation"]))
        await eventually(partial(nothing_is_queued, product))
        await _told(scene, claim, ["rebalanceRecommendation"])
        received = partial(product.metric, "karpenter_interruption_received_messages_total")
        await eventually(partial(received, message_type="rebalance_recommendation"))
        await eventually(partial(product.metric, "tenure_interruption_messages_dropped_total", why="malformed"))
        assert [one for one in product.aws.denials() if one["action"].startswith("sqs:")] == []


async def test_a_scheduled_event_that_ec2_lists_is_told_to_the_node(product: Product) -> None:
    async with product.scene("status") as scene:
        (claim,) = await scene.run(1)
        (instance,) = scene.launched()
        event = {"code": "instance-retirement", "id": "instance-event-7", "not_before": "2036-12-01T04:00:00Z"}
        product.aws.set_status(instance, events=[event])
        await eventually(partial(_told, scene, claim, ["scheduledChange"]))
        product.aws.set_status(instance)


async def _told(scene: Scene, claim: dict[str, Any], kinds: list[str]) -> None:
    assert [one.kind for one in await _notices(scene, claim)] == kinds


async def _notices(scene: Scene, claim: dict[str, Any]) -> list[Notice]:
    """What the life of a NodeClaim was told, from its history."""
    product, metadata = scene.product, claim["metadata"]
    life = ids.nodeclaim(product.sandbox.plan.cluster_name, metadata["name"], metadata["uid"])
    history = await product.temporal.get_workflow_handle(life).fetch_history()
    found = [one.workflow_execution_signaled_event_attributes for one in history.events if one.event_type == SIGNALED]
    said = [one.input.payloads[0].data for one in found if one.signal_name == "noticed"]
    return [notice for one in said for notice in Notices.model_validate_json(one).notices]
