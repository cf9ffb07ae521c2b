"""What a machine finds out about itself while it boots, and the reasons for which it never becomes a node."""

from collections.abc import Sequence
from typing import Literal

from sandbox.nodes.capacity import MIB, memory_bytes, resources_of
from sandbox.nodes.devices import given_at_once
from sandbox.nodes.facts import Facts
from sandbox.nodes.instance import Instance
from sandbox.nodes.kubelet import Body, refused_labels
from sandbox.nodes.rules import LessMemory, NeverRegister, Trouble
from sandbox.nodes.settings import NodesSettings
from sandbox.nodes.userdata import Join, UserDataError, read_user_data

_DISK_GIB = 20
"""Of a root volume whose size nobody told."""


class NeverJoins(Exception):
    """No Node will come of this boot; `stage` is where the machine is stuck."""

    def __init__(self, stage: Literal["no-cluster", "failed", "silent"], why: str) -> None:
        super().__init__(why)
        self.stage: Literal["no-cluster", "failed", "silent"] = stage


async def find_out(instance: Instance, facts: Facts, settings: NodesSettings, troubles: Sequence[Trouble]) -> Body:
    """Raises NeverJoins."""
    join = _read(await facts.user_data(instance.id))
    if any(isinstance(trouble, NeverRegister) for trouble in troubles):
        raise NeverJoins("silent", "a rule keeps it from registering")
    machine = await facts.machine_type(instance.instance_type)
    limits = [trouble.mebibytes * MIB for trouble in troubles if isinstance(trouble, LessMemory)]
    memory = min([memory_bytes(machine, settings.memory_overhead), *limits])
    resources = resources_of(machine, join, memory=memory, disk_gib=disk_gib(instance, join))
    resources = resources.with_extended(given_at_once(instance, machine))
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
    if refused := refused_labels(join.labels):
        raise NeverJoins("failed", f"the kubelet refuses to set the labels {', '.join(refused)}")
    return join
