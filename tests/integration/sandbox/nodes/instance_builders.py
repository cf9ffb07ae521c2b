"""Instances that a test creates for a simulator in its own process, with a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.nodes.api_connection import KubeConnection
from tenure.sandbox.nodes.boot import Facts
from tenure.sandbox.nodes.instances import Instance, MachineType, State
from tenure.sandbox.nodes.node_objects import NodesApi
from tenure.sandbox.nodes.settings import NodesSettings
from tenure.sandbox.nodes.simulator import Simulator

USER_DATA = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: demo}
  kubelet:
    config:
      registerWithTaints:
      - {key: karpenter.sh/unregistered, effect: NoExecute}
    flags:
    - --node-labels=karpenter.sh/nodepool=default
"""
Json = dict[str, Any]


class Cloud:
    """Instances that the test changes: the simulator's source of instances and of their user data."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance] = {}
        self.user_data: dict[str, str] = {}
        self._moved = asyncio.Event()
        self._moved.set()

    def put(
        self, number: int, state: State = "running", *, instance_type: str = "m5.large", text: str = USER_DATA
    ) -> str:
        """Create an instance, or change its state. Returns the name of its node."""
        instance = Instance(
            id=f"i-{number:04}",
            state=state,
            instance_type=instance_type,
            zone="us-west-2a",
            zone_id="usw2-az1",
            private_ip=f"10.0.7.{number}",
            private_dns_name=f"ip-10-0-7-{number}.us-west-2.compute.internal",
            tags={"karpenter.sh/nodepool": "default"},
        )
        self.instances[instance.id] = self.instances.get(instance.id, instance).model_copy(update={"state": state})
        self.user_data.setdefault(instance.id, text)
        self._moved.set()
        return instance.node_name

    def reboot(self, number: int) -> None:
        """As EC2's RebootInstances does."""
        before = self.instances[f"i-{number:04}"]
        self.instances[before.id] = before.model_copy(update={"reboots": before.reboots + 1})
        self._moved.set()

    def remove(self, number: int) -> None:
        del self.instances[f"i-{number:04}"]
        self._moved.set()

    async def next(self) -> dict[str, Instance]:
        await self._moved.wait()
        self._moved.clear()
        return dict(self.instances)

    async def read_user_data(self, instance_id: str) -> str:
        return self.user_data[instance_id]


async def _machine_type(name: str) -> MachineType:
    return MachineType.from_ec2(all_types()[name])


@asynccontextmanager
async def running_simulator(cloud: Cloud, kubeconfig: Path, **settings: float) -> AsyncIterator[Simulator]:
    """A running simulator. All its delays are zero unless `settings` overrides them."""
    quick = {"boot_seconds": 0.0, "ready_seconds": 0.0, "device_seconds": 0.0}
    node_settings = NodesSettings(kubeconfig=kubeconfig, aws_endpoint="http://unused.invalid", **(quick | settings))
    cloud.put(250, "pending")
    async with KubeConnection(kubeconfig) as connection:
        simulator = Simulator(cloud, Facts(cloud.read_user_data, _machine_type), NodesApi(connection), node_settings)
        running = asyncio.create_task(simulator.run())
        try:
            yield simulator
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def machine_stage(simulator: Simulator, number: int) -> str | None:
    found = [machine for machine in simulator.machines() if machine.instance.id == f"i-{number:04}"]
    return found[0].stage if found else None
