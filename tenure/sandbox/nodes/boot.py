"""What a machine finds out about itself while it boots, and the reasons for which it never becomes a node.

What a machine reads about itself at its boot: its user data and its hardware.

Questions are repeated until they are answered; each instance type is asked for once.
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
        # A task of its own: the machine that asked first may end before the answer, the others still wait for it.
        if name not in self._types:
            self._types[name] = asyncio.ensure_future(self._retry_until_success(self._fetch_type, name))
        return await asyncio.shield(self._types[name])

    async def _retry_until_success(self, fetch: Callable[[str], Awaitable[Result]], subject: str) -> Result:
        while True:
            try:
                async with self._semaphore:
                    return await fetch(subject)
            except CONNECTION_ERRORS as error:
                _LOG.warning("asking about %s: %s", subject, error)
            await asyncio.sleep(_PAUSE_SECONDS)


_DISK_GIB = 20
"""Root volume size if none is known."""


class NeverJoins(Exception):
    """No Node will come of this boot; `stage` is where the machine is stuck."""

    def __init__(self, stage: Literal["no-cluster", "failed", "silent"], why: str) -> None:
        super().__init__(why)
        self.stage: Literal["no-cluster", "failed", "silent"] = stage


async def prepare_body(
    instance: Instance, facts: Facts, settings: NodesSettings, faults: Sequence[InjectedFault]
) -> Body:
    """Raises NeverJoins."""
    join = _read(await facts.user_data(instance.id))
    if any(isinstance(fault, NeverRegister) for fault in faults):
        raise NeverJoins("silent", "a rule keeps it from registering")
    machine = await facts.machine_type(instance.instance_type)
    limits = [fault.mebibytes * MIB for fault in faults if isinstance(fault, LessMemory)]
    memory = min([memory_bytes(machine, settings.memory_overhead), *limits])
    resources = resources_of(machine, join, memory=memory, disk_gib=disk_gib(instance, join))
    resources = resources.with_extended(initial_extended_resources(instance, machine))
    return Body(instance, machine, join, resources, settings.region)


def disk_gib(instance: Instance, join: Join) -> int:
    """Of the volume that pods write to; of a custom image's, the largest."""
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
        raise NeverJoins("failed", f"the kubelet refuses to set the labels {', '.join(rejected)}")
    return join
