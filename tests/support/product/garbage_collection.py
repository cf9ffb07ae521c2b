"""Orphaned resources for tests, and garbage collection on request."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import boto3
from temporalio.client import WorkflowHandle

from activities.garbage_collection.base import CACHE_SECONDS
from tenure.apis import labels
from tenure.model.garbage_collection import GarbageCollectionResult, TaskSelection
from tests.support.product.eventually import wait_until
from tests.support.product.product import InstalledProduct
from workflows import ids
from workflows.garbage_collection import GarbageCollectorWorkflow


async def collect_garbage(product: InstalledProduct, task: str) -> GarbageCollectionResult:
    """Run this task. Returns its result, which must have no fault."""
    result: GarbageCollectionResult = await wait_until(
        lambda: collector(product).execute_update(
            "run_task", TaskSelection(task=task), result_type=GarbageCollectionResult
        )
    )
    assert (result.task, result.fault) == (task, ""), result
    return result


def collector(product: InstalledProduct) -> WorkflowHandle[GarbageCollectorWorkflow, None]:
    workflow_id = ids.garbage_collection(product.sandbox.plan.cluster_name)
    return product.temporal.get_workflow_handle_for(GarbageCollectorWorkflow.run, workflow_id)


async def collect_garbage_with_fresh_lists(product: InstalledProduct, task: str) -> GarbageCollectionResult:
    """A run that uses no lists older than this call, which other tasks may have cached."""
    await asyncio.sleep(CACHE_SECONDS)
    return await collect_garbage(product, task)


@asynccontextmanager
async def paused_task(product: InstalledProduct, task: str) -> AsyncIterator[None]:
    """Inside the block, this task runs only when a test requests it."""
    await collector(product).signal(GarbageCollectorWorkflow.pause_task, TaskSelection(task=task))
    try:
        yield
    finally:
        await collector(product).signal(GarbageCollectorWorkflow.resume_task, TaskSelection(task=task))


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
