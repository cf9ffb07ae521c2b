"""Promise 3, how events come: the shipped stack is all that is needed, and what is missing of it is named."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from deploy.resources import EVENTS_STACK
from tests.scenarios.announced import SOON, instance_of, name_of, running
from tests.support.product.eventually import eventually
from tests.support.product.product import Product


def stack(product: Product, queue: str, **parameters: str) -> str:
    """Makes what is shipped; the queue's URL."""
    formation, name = product.admin("cloudformation"), f"events-{queue}"
    said = {"ClusterName": product.sandbox.plan.cluster_name, "InterruptionQueueName": queue, **parameters}
    formation.create_stack(
        StackName=name,
        TemplateBody=EVENTS_STACK.read_text(),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in said.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    [made] = formation.describe_stacks(StackName=name)["Stacks"]
    outputs = {one["OutputKey"]: one["OutputValue"] for one in made["Outputs"]}
    assert outputs["QueueName"] == queue
    url: str = product.admin("sqs").get_queue_url(QueueName=queue)["QueueUrl"]
    return url


async def tenure(product: Product, *arguments: str, key: str = "admin", **variables: str) -> Any:
    """What the command says as JSON; the exit code says more of the world than of the queue."""
    world = product.sandbox
    told = {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "CLUSTER_NAME": world.plan.cluster_name,
        "TEMPORAL_ADDRESS": world.temporal_address,
        "KUBECONFIG": str(world.kubeconfig),
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure", *arguments, "-o", "json"),
        env={**os.environ, **told},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert said, errors.decode()
    return json.loads(said)


async def amiss(product: Product, queue: str, key: str = "admin") -> dict[str, dict[str, str]]:
    """What the doctor has to say of the queue and its rules, by subject."""
    world = product.sandbox
    aws = {"AWS_ENDPOINT_URL": world.aws_endpoint, "AWS_REGION": world.plan.region, "INTERRUPTION_QUEUE": queue}
    found = await tenure(product, "doctor", key=key, **aws)
    return {one["subject"]: one for one in found if one["area"] == "events" and one["level"] != "ok"}


def about(product: Product, url: str, instances: Sequence[str]) -> list[str]:
    """The detail-types that the queue has for these instances."""
    sqs, found = product.admin("sqs"), list[str]()
    while answer := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        for message in answer:
            event: dict[str, Any] = json.loads(message["Body"])
            if any(one in json.dumps(event) for one in instances):
                found.append(event["detail-type"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


@pytest.mark.row("002-m")
async def test_what_is_missing_of_the_shipped_stack_is_named(product: Product) -> None:
    url = stack(product, "002-m")
    assert await amiss(product, "002-m") == {}
    events, sqs = product.admin("events"), product.admin("sqs")
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    names = events.list_rule_names_by_target(TargetArn=arn)["RuleNames"]
    [spot] = [one for one in names if "SpotInterruption" in one]
    [ending] = [one for one in names if "InstanceTerminating" in one]
    events.remove_targets(Rule=spot, Ids=["TenureQueue"])
    events.delete_rule(Name=spot)
    events.disable_rule(Name=ending)
    found = await amiss(product, "002-m")
    assert {subject: one["level"] for subject, one in found.items()} == {
        "rule for spotInterruption": "problem",
        "rule for instanceTerminating": "problem",
    }
    assert ending in found["rule for instanceTerminating"]["said"]

    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "sqs:SendMessage" in (await amiss(product, "002-m"))["queue 002-m"]["todo"]
    everything_but = {"Effect": "Allow", "NotAction": "sqs:GetQueueUrl", "Resource": "*"}
    product.aws.bind_key("key-002-m", {"Version": "2012-10-17", "Statement": [everything_but]})
    assert "sqs:GetQueueUrl" in (await amiss(product, "002-m", key="key-002-m"))["queue 002-m"]["todo"]


@pytest.mark.row("002-m")
async def test_what_nobody_wants_stays_out_of_the_queue_and_what_came_is_told(product: Product) -> None:
    url = stack(product, "002-m-few", RebalanceRecommendation="false")
    async with product.scene("002-m") as scene:
        (claim,) = await running(scene, 1)
        name, instance = name_of(claim), instance_of(claim)
        product.aws.recommend_rebalance(instance)
        product.aws.interrupt_spot(instance)
        await eventually(lambda: scene.claims_are_gone([name]), seconds=SOON)
        arrived = about(product, url, [instance])
        assert arrived[0] == "EC2 Spot Instance Interruption Warning"
        assert set(arrived[1:]) <= {"EC2 Instance State-change Notification"}, "it is terminated later on"
        await eventually(partial(_told, product, name), seconds=SOON)


async def _told(product: Product, name: str) -> None:
    answer = await tenure(product, "events", name, "--since", "1h")
    said = {one["kind"]: (one["action"], one["done"]) for one in answer["events"]}
    assert {"spotInterruption", "rebalanceRecommendation"} <= said.keys(), answer
    assert said["spotInterruption"][1] == "the node is drained", answer
    assert said["rebalanceRecommendation"][0] == "notify", answer
    assert answer["messages"] and answer["messages"]["counts"].get("received", 0) >= 2, answer
