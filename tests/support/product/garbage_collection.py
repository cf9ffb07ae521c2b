"""Orphaned resources for tests, and garbage collection on request by triggering its Schedules."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import boto3
from temporalio.client import ScheduleActionExecutionStartWorkflow
from temporalio.service import RPCError, RPCStatusCode

from activities.garbage_collection.base import CACHE_SECONDS
from tenure.apis import labels
from tenure.model.garbage_collection import GarbageCollectionResult
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct
from workflows import ids

MAX_RUNS = 5
"""Runs that are started until the result of one can be read."""


async def collect_garbage(product: InstalledProduct, task: str) -> GarbageCollectionResult:
    """Start a run of this task. Returns its result, which must have no fault.

    The next run deletes an uneventful one, maybe before its result is read; then another run is started.
    """
    for _ in range(MAX_RUNS):
        run = product.temporal.get_workflow_handle(
            await _trigger_run(product, task), result_type=GarbageCollectionResult
        )
        try:
            result: GarbageCollectionResult = await wait_until(run.result)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            continue
        assert (result.task, result.fault) == (task, ""), result
        return result
    raise AssertionError(f"task {task}: {MAX_RUNS} runs were deleted before their results were read")


async def _trigger_run(product: InstalledProduct, task: str) -> str:
    """Start a run of this task. Returns its workflow id."""
    handle = product.temporal.get_schedule_handle(ids.garbage_collection(product.sandbox.plan.cluster_name, task))
    requested_at = datetime.now(UTC)

    async def assert_started() -> str:
        """The Schedule starts no run while another one is running, so the trigger is repeated."""
        await handle.trigger()
        await asyncio.sleep(1)
        actions = [one for one in (await handle.describe()).info.recent_actions if one.started_at >= requested_at]
        assert actions, f"task {task} has not started"
        assert isinstance(actions[-1].action, ScheduleActionExecutionStartWorkflow)
        return actions[-1].action.workflow_id

    return await wait_until(assert_started)


async def collect_garbage_with_fresh_lists(product: InstalledProduct, task: str) -> GarbageCollectionResult:
    """A run that uses no lists older than this call, which other tasks may have cached."""
    await asyncio.sleep(CACHE_SECONDS)
    return await collect_garbage(product, task)


@asynccontextmanager
async def paused_schedule(product: InstalledProduct, task: str) -> AsyncIterator[None]:
    """Inside the block, this task runs only when a test triggers it."""
    handle = product.temporal.get_schedule_handle(ids.garbage_collection(product.sandbox.plan.cluster_name, task))
    await handle.pause(note="paused by a test")
    try:
        yield
    finally:
        await handle.unpause()


class ExternalAws:
    """AWS clients without IAM policy, for resources outside of Tenure."""

    def __init__(self, product: InstalledProduct) -> None:
        session = boto3.session.Session("admin", "admin", region_name=product.sandbox.plan.region)
        clients = partial(session.client, endpoint_url=product.sandbox.aws_endpoint)
        self.ec2: Any = clients("ec2")
        self.iam: Any = clients("iam")
        self._product, self._cluster = product, product.sandbox.plan.cluster_name

    async def launch_instance(self, like: str, *, cluster: str = "", **tags: str) -> str:
        """Launch an instance outside of Tenure, with the boot settings and NodePool tags of another one."""
        return await asyncio.to_thread(self._launch_instance, like, cluster or self._cluster, tags)

    def _launch_instance(self, like: str, cluster: str, tags: dict[str, str]) -> str:
        model = self._describe_instance(like)
        user_data = self.ec2.describe_instance_attribute(InstanceId=like, Attribute="userData")["UserData"]["Value"]
        nodepool_tags = {key: model["tags"][key] for key in (labels.TAG_NODEPOOL, labels.TAG_NODECLASS)}
        instance_tags = (
            nodepool_tags | {labels.TAG_EKS_CLUSTER_NAME: cluster, f"kubernetes.io/cluster/{cluster}": "owned"} | tags
        )
        response = self.ec2.run_instances(
            ImageId=model["ImageId"],
            InstanceType=model["InstanceType"],
            SubnetId=model["SubnetId"],
            UserData=user_data_text(user_data),
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tag_list(instance_tags)}],
        )
        return str(response["Instances"][0]["InstanceId"])

    def _describe_instance(self, instance_id: str) -> dict[str, Any]:
        (reservation,) = self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
        found: dict[str, Any] = reservation["Instances"][0]
        return found | {"tags": {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}}

    async def instance_tags(self, instance_id: str) -> dict[str, str]:
        found = await asyncio.to_thread(self._describe_instance, instance_id)
        tags: dict[str, str] = found["tags"]
        return tags

    async def launch_templates(self, pool: str) -> dict[str, str]:
        """Names by id, of one NodePool."""
        filters = [{"Name": f"tag:{labels.TAG_NODEPOOL}", "Values": [pool]}]
        found = await asyncio.to_thread(self.ec2.describe_launch_templates, Filters=filters)
        return {one["LaunchTemplateId"]: one["LaunchTemplateName"] for one in found["LaunchTemplates"]}

    async def instance_profiles(self) -> dict[str, str]:
        """Paths by name, of this cluster."""
        prefix = f"/karpenter/{self._product.sandbox.plan.region}/{self._cluster}/"
        found = await asyncio.to_thread(self.iam.list_instance_profiles, PathPrefix=prefix)
        return {one["InstanceProfileName"]: one["Path"] for one in found["InstanceProfiles"]}

    async def create_instance_profile(self, name: str, *, path: str, role: str) -> str:
        """Create an instance profile of the shared class, as for a former role. Returns its name."""
        tags = {
            f"kubernetes.io/cluster/{self._cluster}": "owned",
            labels.TAG_EKS_CLUSTER_NAME: self._cluster,
            labels.TAG_NODECLASS: "shared",
            labels.REGION: self._product.sandbox.plan.region,
        }
        await asyncio.to_thread(
            self.iam.create_instance_profile, InstanceProfileName=name, Path=path, Tags=tag_list(tags)
        )
        await asyncio.to_thread(self.iam.add_role_to_instance_profile, InstanceProfileName=name, RoleName=role)
        return name


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def user_data_text(encoded: str) -> str:
    """RunInstances encodes its argument again."""
    return base64.b64decode(encoded).decode()
