"""Maintains one simulated node per instance, forwards instance states to it, and assigns rules.

After a restart it continues: existing Nodes are adopted, Nodes without an instance are deleted.
"""

import asyncio
import logging

from tenure.sandbox.controlplane.commands import RUNS_PODS
from tenure.sandbox.nodes.api_connection import Json
from tenure.sandbox.nodes.boot import CONNECTION_ERRORS, Facts
from tenure.sandbox.nodes.fault_rules import FaultRules, Rule
from tenure.sandbox.nodes.instances import Instance, InstanceSource
from tenure.sandbox.nodes.machine import Machine
from tenure.sandbox.nodes.node_objects import MANAGED, NodesApi
from tenure.sandbox.nodes.settings import NodesSettings

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5
_POST_SECONDS = 5.0
"""Interval of the check for Unknown Nodes with a running kubelet; a kubelet reports as rarely."""


class Simulator:
    def __init__(self, source: InstanceSource, facts: Facts, api: NodesApi, settings: NodesSettings) -> None:
        self._source, self._facts, self._api, self._settings = source, facts, api, settings
        self._machines: dict[str, Machine] = {}
        self._rules = FaultRules()
        self.synced = False

    async def run(self) -> None:
        """Run until cancelled."""
        posting = asyncio.create_task(self._repost_statuses())
        try:
            existing_nodes = {node["metadata"]["labels"][MANAGED]: node for node in await self._api.list_managed()}
            while True:
                instances = await self._poll_instances()
                await self._sync_machines(instances, existing_nodes)
                existing_nodes = {}
                self.synced = True
        finally:
            posting.cancel()
            for machine in self._machines.values():
                machine.stop()

    def add_rule(self, rule: Rule) -> Rule:
        """Activate a rule; also on running nodes, if its fault can affect them."""
        stored = self._rules.add(rule)
        if rule.existing:
            for machine in self._machines.values():
                if machine.can_inject(stored.fault) and self._rules.applies(stored, machine.instance):
                    machine.inject(stored.fault)
        return stored

    @property
    def rules(self) -> FaultRules:
        return self._rules

    def machines(self) -> list[Machine]:
        return list(self._machines.values())

    async def _repost_statuses(self) -> None:
        while True:
            await asyncio.sleep(_POST_SECONDS)
            for node in await self._api.list_managed(f"{RUNS_PODS}=false"):
                machine = self._machines.get(node["metadata"]["labels"][MANAGED])
                if machine:
                    await machine.repost_status(node)

    async def _poll_instances(self) -> dict[str, Instance]:
        while True:
            try:
                return await self._source.next()
            # Treat an unreadable response like a missing one.
            except (*CONNECTION_ERRORS, ValueError) as error:
                _LOG.warning("reading instances: %s", error)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _sync_machines(self, instances: dict[str, Instance], existing_nodes: dict[str, Json]) -> None:
        for instance in instances.values():
            if instance.id in self._machines or instance.state != "terminated":
                self._ensure_machine(instance, existing_nodes).observe(instance)
        for machine in self.machines():
            if machine.instance.id not in instances:
                machine.observe(machine.instance.model_copy(update={"state": "terminated"}))
                if machine.is_finished:
                    del self._machines[machine.instance.id]
        for instance_id, node in existing_nodes.items():
            if instance_id not in instances:
                _LOG.info("%s: its instance no longer exists", node["metadata"]["name"])
                await self._api.delete(node["metadata"]["name"], node["metadata"]["uid"])

    def _ensure_machine(self, instance: Instance, existing_nodes: dict[str, Json]) -> Machine:
        if instance.id not in self._machines:
            machine = self._machines[instance.id] = Machine(
                instance, self._api, self._settings, match_faults=self._rules.match, facts=self._facts
            )
            if instance.id in existing_nodes:
                machine.adopt(existing_nodes[instance.id])
        return self._machines[instance.id]
