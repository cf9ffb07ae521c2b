"""Instances, user data and instance types as any EC2 endpoint tells them, asked with boto3 in threads."""

import asyncio
import base64
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from sandbox.nodes.instance import Instance
from sandbox.nodes.machine_types import MachineType

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client

_STATES = ["pending", "running", "shutting-down", "stopping", "stopped"]
_KEY = "node-simulator"
_PAGE = 1000
_SLOW_POLL_FACTOR = 4


class Ec2:
    """What the simulator asks of EC2's own API. A call raises botocore's errors."""

    def __init__(self, endpoint: str, region: str) -> None:
        config = Config(retries={"mode": "standard", "total_max_attempts": 5}, max_pool_connections=8)
        # A key of its own: the stand-in leaves keys alone that no policy is bound to.
        self._client: EC2Client = boto3.client(
            "ec2",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_KEY,
            config=config,
        )

    async def instances(self) -> dict[str, Instance]:
        """All that are not terminated, by id."""
        return await asyncio.to_thread(self._instances)

    async def user_data(self, instance_id: str) -> str:
        return await asyncio.to_thread(self._user_data, instance_id)

    async def machine_type(self, name: str) -> MachineType:
        return await asyncio.to_thread(self._machine_type, name)

    def _instances(self) -> dict[str, Instance]:
        pages = self._client.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": _STATES}], PaginationConfig={"PageSize": _PAGE}
        )
        found = (item for page in pages for group in page["Reservations"] for item in group["Instances"])
        return {item["InstanceId"]: Instance.from_ec2(item) for item in found}

    def _user_data(self, instance_id: str) -> str:
        answer = self._client.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        return base64.b64decode(answer["UserData"].get("Value", "")).decode(errors="replace")

    def _machine_type(self, name: str) -> MachineType:
        answer = self._client.describe_instance_types(InstanceTypes=[name])  # type: ignore[list-item]
        return MachineType.from_ec2(answer["InstanceTypes"][0])


class Ec2Source:
    """Looks at EC2 again and again: often while some instance is on its way, more seldom while none is."""

    def __init__(self, ec2: Ec2, poll_seconds: float) -> None:
        self._ec2, self._poll_seconds = ec2, poll_seconds
        self._moving = True
        self._first = True

    async def next(self) -> dict[str, Instance]:
        """All instances that are not terminated, after a pause."""
        if not self._first:
            await asyncio.sleep(self._poll_seconds * (1 if self._moving else _SLOW_POLL_FACTOR))
        found = await self._ec2.instances()
        self._first = False
        self._moving = any(instance.state not in ("running", "stopped") for instance in found.values())
        return found
