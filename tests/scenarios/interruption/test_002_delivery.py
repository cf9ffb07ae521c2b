"""Promise 3, event delivery: the shipped stack suffices, and a missing part of it is reported."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from deploy.resources import EVENTS_STACK
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import SOON, instance_id, nodeclaim_name, run_pods_with_rules
from tests.support.product.product import InstalledProduct


def create_stack(product: InstalledProduct, queue: str, **parameters: str) -> str:
    """Create the shipped stack. Returns the queue's URL."""
    cloudformation, name = product.admin_client("cloudformation"), f"events-{queue}"
    parameter_values = {"ClusterName": product.sandbox.plan.cluster_name, "InterruptionQueueName": queue, **parameters}
    cloudformation.create_stack(
        StackName=name,
        TemplateBody=EVENTS_STACK.read_text(),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameter_values.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    [created] = cloudformation.describe_stacks(StackName=name)["Stacks"]
    outputs = {one["OutputKey"]: one["OutputValue"] for one in created["Outputs"]}
    assert outputs["QueueName"] == queue
    url: str = product.admin_client("sqs").get_queue_url(QueueName=queue)["QueueUrl"]
    return url


async def run_cli(product: InstalledProduct, *arguments: str, key: str = "admin", **variables: str) -> Any:
    """The command's JSON output. The exit code is ignored, since it also covers problems other than the queue."""
    sandbox = product.sandbox
    environment = {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "CLUSTER_NAME": sandbox.plan.cluster_name,
        "TEMPORAL_ADDRESS": sandbox.temporal_address,
        "KUBECONFIG": str(sandbox.kubeconfig),
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure", *arguments, "-o", "json"),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert output, errors.decode()
    return json.loads(output)


async def find_problems(product: InstalledProduct, queue: str, key: str = "admin") -> dict[str, dict[str, str]]:
    """The doctor's findings about the queue and its rules, other than ok, by subject."""
    sandbox = product.sandbox
    aws = {"AWS_ENDPOINT_URL": sandbox.aws_endpoint, "AWS_REGION": sandbox.plan.region, "INTERRUPTION_QUEUE": queue}
    found = await run_cli(product, "doctor", key=key, **aws)
    return {one["subject"]: one for one in found if one["area"] == "events" and one["level"] != "ok"}


def queued_event_types(product: InstalledProduct, url: str, instances: Sequence[str]) -> list[str]:
    """Detail-types of the queued messages for these instances. The messages are deleted."""
    sqs, found = product.admin_client("sqs"), list[str]()
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            event: dict[str, Any] = json.loads(message["Body"])
            if any(one in json.dumps(event) for one in instances):
                found.append(event["detail-type"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


@pytest.mark.row("002-m")
async def test_missing_parts_of_the_shipped_stack_are_reported(product: InstalledProduct) -> None:
    url = create_stack(product, "002-m")
    assert await find_problems(product, "002-m") == {}
    events, sqs = product.admin_client("events"), product.admin_client("sqs")
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    names = events.list_rule_names_by_target(TargetArn=arn)["RuleNames"]
    [spot_rule] = [one for one in names if "SpotInterruption" in one]
    [terminating_rule] = [one for one in names if "InstanceTerminating" in one]
    events.remove_targets(Rule=spot_rule, Ids=["TenureQueue"])
    events.delete_rule(Name=spot_rule)
    events.disable_rule(Name=terminating_rule)
    found = await find_problems(product, "002-m")
    assert {subject: one["level"] for subject, one in found.items()} == {
        "rule for spotInterruption": "problem",
        "rule for instanceTerminating": "problem",
    }
    assert terminating_rule in found["rule for instanceTerminating"]["message"]

    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "sqs:SendMessage" in (await find_problems(product, "002-m"))["queue 002-m"]["todo"]
    everything_but = {"Effect": "Allow", "NotAction": "sqs:GetQueueUrl", "Resource": "*"}
    product.aws.bind_key("key-002-m", {"Version": "2012-10-17", "Statement": [everything_but]})
    assert "sqs:GetQueueUrl" in (await find_problems(product, "002-m", key="key-002-m"))["queue 002-m"]["todo"]


@pytest.mark.row("002-m")
@pytest.mark.exact_counters
async def test_disabled_event_type_is_not_queued_and_received_events_are_listed(product: InstalledProduct) -> None:
    url = create_stack(product, "002-m-few", RebalanceRecommendation="false")
    async with product.scope("002-m") as scope:
        (claim,) = await run_pods_with_rules(scope, 1)
        name, instance = nodeclaim_name(claim), instance_id(claim)
        product.aws.recommend_rebalance(instance)
        product.aws.interrupt_spot(instance)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]), seconds=SOON)
        arrived = queued_event_types(product, url, [instance])
        assert arrived[0] == "EC2 Spot Instance Interruption Warning"
        assert set(arrived[1:]) <= {"EC2 Instance State-change Notification"}, "only the termination follows"
        await wait_until(partial(_assert_recorded, product, name), seconds=SOON)


async def _assert_recorded(product: InstalledProduct, name: str) -> None:
    report = await run_cli(product, "events", name, "--since", "1h")
    outcomes = {one["kind"]: (one["action"], one["done"]) for one in report["events"]}
    assert {"spotInterruption", "rebalanceRecommendation"} <= outcomes.keys(), report
    assert outcomes["spotInterruption"][1] == "the node is drained", report
    assert outcomes["rebalanceRecommendation"][0] == "notify", report
    assert report["messages"] and report["messages"]["counts"].get("received", 0) >= 2, report
