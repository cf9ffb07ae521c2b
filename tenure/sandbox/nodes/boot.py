"""The boot of a machine: it reads its user data and hardware. Also the reasons why it never becomes a node.

Calls are retried until they succeed. Each instance type is read once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

from tenure.sandbox.nodes.capacity import MIB, initial_extended_resources, memory_bytes, resources_of
from tenure.sandbox.nodes.fault_rules import InjectedFault, LessMemory, NeverRegister
from tenure.sandbox.nodes.instances import Instance, MachineType
from tenure.sandbox.nodes.kubelet import Body, rejected_labels
from tenure.sandbox.nodes.settings import NodesSettings
from tenure.sandbox.nodes.userdata import Join, UserDataError, read_user_data

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5
_AT_A_TIME = 8
CONNECTION_ERRORS = (BotoCoreError, ClientError, aiohttp.ClientError, TimeoutError, OSError)
Result = TypeVar("Result")


class Facts:
    def __init__(
        self, user_data: Callable[[str], Awaitable[str]], machine_type: Callable[[str], Awaitable[MachineType]]
    ) -> None:
        self._fetch_user_data, self._fetch_type = user_data, machine_type
        self._types: dict[str, asyncio.Future[MachineType]] = {}
        self._semaphore = asyncio.Semaphore(_AT_A_TIME)

    async def user_data(self, instance_id: str) -> str:
        return await self._retry_until_success(self._fetch_user_data, instance_id)

    async def machine_type(self, name: str) -> MachineType:
        # A separate task, because other machines may wait for the result when the first one ends.
        if name not in self._types:
            self._types[name] = asyncio.ensure_future(self._retry_until_success(self._fetch_type, name))
        return await asyncio.shield(self._types[name])

    async def _retry_until_success(self, fetch: Callable[[str], Awaitable[Result]], subject: str) -> Result:
        while True:
            try:
                async with self._semaphore:
                    return await fetch(subject)
            except CONNECTION_ERRORS as error:
                _LOG.warning("reading %s: %s", subject, error)
            await asyncio.sleep(_PAUSE_SECONDS)


_DISK_GIB = 20
"""Root volume size if it is unknown."""


class NeverJoins(Exception):
    """This boot creates no Node. `stage`: the stage at which the machine remains."""

    def __init__(self, stage: Literal["no-cluster", "failed", "silent"], why: str) -> None:
        super().__init__(why)
        self.stage: Literal["no-cluster", "failed", "silent"] = stage


async def prepare_body(
    instance: Instance, facts: Facts, settings: NodesSettings, faults: Sequence[InjectedFault]
) -> Body:
    """Raises NeverJoins."""
    join = _read(await facts.user_data(instance.id))
    if any(isinstance(fault, NeverRegister) for fault in faults):
        raise NeverJoins("silent", "a rule prevents the registration")
    machine = await facts.machine_type(instance.instance_type)
    limits = [fault.mebibytes * MIB for fault in faults if isinstance(fault, LessMemory)]
    memory = min([memory_bytes(machine, settings.memory_overhead), *limits])
    resources = resources_of(machine, join, memory=memory, disk_gib=disk_gib(instance, join))
    resources = resources.with_extended(initial_extended_resources(instance, machine))
    return Body(instance, machine, join, resources, settings.region)


def disk_gib(instance: Instance, join: Join) -> int:
    """Size of the volume for pods; for a custom image, the largest volume."""
    sizes = instance.volumes
    return sizes.get(join.data_device) or max(sizes.values(), default=_DISK_GIB)


def _read(user_data: str) -> Join:
    try:
        join = read_user_data(user_data)
    except UserDataError as error:
        raise NeverJoins("failed", str(error)) from None
    if join is None:
        raise NeverJoins("no-cluster", "the user data names no cluster")
    if rejected := rejected_labels(join.labels):
        raise NeverJoins("failed", f"the kubelet may not set the labels {', '.join(rejected)}")
    return join
