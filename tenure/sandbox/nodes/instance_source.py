"""Sources of instances: an EC2 endpoint (with user data and instance types, through boto3 in threads), or the control
API of the AWS stand-in.

The control API reports only changes, immediately. The first call detects whether the endpoint has it.
"""

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import aiohttp
import boto3
from botocore.config import Config

from tenure.sandbox.nodes.instances import Instance, InstanceSource, MachineType

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client


_STATES = ["pending", "running", "shutting-down", "stopping", "stopped"]
_KEY = "node-simulator"
_PAGE = 1000
_SLOW_POLL_FACTOR = 4


class Ec2:
    """The simulator's calls to the EC2 API. They raise botocore's errors."""

    def __init__(self, endpoint: str, region: str) -> None:
        config = Config(retries={"mode": "standard", "total_max_attempts": 5}, max_pool_connections=8)
        # A separate key: the stand-in does not restrict keys without a policy.
        self._client: EC2Client = boto3.client(
            "ec2",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_KEY,
            config=config,
        )

    async def list_instances(self) -> dict[str, Instance]:
        """All instances that are not terminated, by ID."""
        return await asyncio.to_thread(self._list_instances)

    async def user_data(self, instance_id: str) -> str:
        return await asyncio.to_thread(self._user_data, instance_id)

    async def machine_type(self, name: str) -> MachineType:
        return await asyncio.to_thread(self._machine_type, name)

    def _list_instances(self) -> dict[str, Instance]:
        pages = self._client.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": _STATES}], PaginationConfig={"PageSize": _PAGE}
        )
        found = (item for page in pages for group in page["Reservations"] for item in group["Instances"])
        return {item["InstanceId"]: Instance.from_ec2(item) for item in found}

    def _user_data(self, instance_id: str) -> str:
        response = self._client.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        return base64.b64decode(response["UserData"].get("Value", "")).decode(errors="replace")

    def _machine_type(self, name: str) -> MachineType:
        response = self._client.describe_instance_types(InstanceTypes=[name])  # type: ignore[list-item]
        return MachineType.from_ec2(response["InstanceTypes"][0])


class Ec2Source:
    """Polls EC2, more often while an instance is in transition."""

    def __init__(self, ec2: Ec2, poll_seconds: float) -> None:
        self._ec2, self._poll_seconds = ec2, poll_seconds
        self._moving = True
        self._first = True

    async def next(self) -> dict[str, Instance]:
        """All instances that are not terminated, after a delay."""
        if not self._first:
            await asyncio.sleep(self._poll_seconds * (1 if self._moving else _SLOW_POLL_FACTOR))
        found = await self._ec2.list_instances()
        self._first = False
        self._moving = any(instance.state not in ("running", "stopped") for instance in found.values())
        return found


_WAIT_SECONDS = 5.0
# Delay to read several changes in a row together, which is cheaper than one read per change.
_GATHER_SECONDS = 0.1
_ALL = -1


class FakeAwsSource:
    """Keeps the list and reads changes after the last revision."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str, region: str) -> None:
        self._session, self._url, self._region = session, f"{endpoint.rstrip('/')}/_sim/instances", region
        self._revision = _ALL
        self._instances: dict[str, Instance] = {}

    async def has_control_api(self) -> bool:
        """Whether the endpoint has the control API."""
        async with self._session.get(self._url, params={"after": "0"}) as response:
            return response.status == 200 and response.content_type == "application/json"

    async def next(self) -> dict[str, Instance]:
        """All instances. Returns within some seconds, also without changes."""
        if self._revision != _ALL:
            await asyncio.sleep(_GATHER_SECONDS)
        changes = await self._fetch_changes(self._revision)
        self._merge(changes)
        if changes["revision"] < self._revision or changes["alive"] != self._alive_count():
            # EC2 was reset or restarted: cached state is obsolete.
            self._instances = {}
            changes = await self._fetch_changes(_ALL)
            self._merge(changes)
        self._revision = changes["revision"]
        return dict(self._instances)

    def _merge(self, changes: dict[str, Any]) -> None:
        for instance_id in changes.get("gone", []):
            self._instances.pop(instance_id, None)
        for described in changes["instances"]:
            self._instances[described["id"]] = self._read(described)

    def _alive_count(self) -> int:
        return sum(instance.state not in ("shutting-down", "terminated") for instance in self._instances.values())

    async def _fetch_changes(self, after: int) -> dict[str, Any]:
        params = {"after": str(after), "wait": "0" if after == _ALL else str(_WAIT_SECONDS)}
        async with self._session.get(self._url, params=params) as response:
            response.raise_for_status()
            changes: dict[str, Any] = await response.json()
            return changes

    def _read(self, described: dict[str, Any]) -> Instance:
        address = described.get("private_ip") or ""
        name = f"ip-{address.replace('.', '-')}.{self._region}.compute.internal" if address else ""
        known = {key: value for key, value in described.items() if key in Instance.model_fields and value is not None}
        return Instance.model_validate({"private_dns_name": name} | known)


class AnySource:
    """The control API of the AWS stand-in if available, else the EC2 API."""

    def __init__(self, fake_aws: FakeAwsSource, other: InstanceSource) -> None:
        self._fake_aws, self._other = fake_aws, other
        self._chosen: InstanceSource | None = None

    async def next(self) -> dict[str, Instance]:
        if self._chosen is None:
            self._chosen = self._fake_aws if await self._fake_aws.has_control_api() else self._other
        return await self._chosen.next()
