"""Keeps one machine per instance, tells each what its instance does, and hands out rules.

Started anew it goes on where the last one was: Nodes that stand are adopted, those whose instance is gone are deleted.
"""

import asyncio
import logging

from tenure.sandbox.controlplane.commands import RUNS_PODS
from tenure.sandbox.nodes.api_connection import Json
from tenure.sandbox.nodes.boot import CONNECTION_ERRORS, Facts
from tenure.sandbox.nodes.fault_rules import Rule, RuleBook
from tenure.sandbox.nodes.instances import Instance, InstanceSource
from tenure.sandbox.nodes.machine import Machine
from tenure.sandbox.nodes.node_objects import MANAGED, NodesApi
from tenure.sandbox.nodes.settings import NodesSettings

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5
_POST_SECONDS = 5.0
"""Between looks for Nodes whose kubelet runs and that Kubernetes found Unknown; a kubelet posts as seldom."""


class Simulator:
    def __init__(self, source: InstanceSource, facts: Facts, api: NodesApi, settings: NodesSettings) -> None:
        self._source, self._facts, self._api, self._settings = source, facts, api, settings
        self._machines: dict[str, Machine] = {}
        self._book = RuleBook()
        self.synced = False

    async def run(self) -> None:
        """Until cancelled."""
        posting = asyncio.create_task(self._keep_posting())
        try:
            standing = {node["metadata"]["labels"][MANAGED]: node for node in await self._api.managed()}
            while True:
                instances = await self._look()
                await self._settle(instances, standing)
                standing = {}
                self.synced = True
        finally:
            posting.cancel()
            for machine in self._machines.values():
                machine.stop()

    def add_rule(self, rule: Rule) -> Rule:
        """In force from now on; falls at once on nodes that are up, if it is of that kind."""
        kept = self._book.add(rule)
        if rule.existing:
            for machine in self._machines.values():
                if machine.can_suffer(kept.trouble) and self._book.befalls(kept, machine.instance):
                    machine.befall(kept.trouble)
        return kept

    @property
    def book(self) -> RuleBook:
        return self._book

    def machines(self) -> list[Machine]:
        return list(self._machines.values())

    async def _keep_posting(self) -> None:
        while True:
            await asyncio.sleep(_POST_SECONDS)
            for node in await self._api.managed(f"{RUNS_PODS}=false"):
                machine = self._machines.get(node["metadata"]["labels"][MANAGED])
                if machine:
                    await machine.post_again(node)

    async def _look(self) -> dict[str, Instance]:
        while True:
            try:
                return await self._source.next()
            # An answer that cannot be read is as good as none.
            except (*CONNECTION_ERRORS, ValueError) as error:
                _LOG.warning("looking at the instances: %s", error)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _settle(self, instances: dict[str, Instance], standing: dict[str, Json]) -> None:
        for instance in instances.values():
            if instance.id in self._machines or instance.state != "terminated":
                self._machine(instance, standing).see(instance)
        for machine in self.machines():
            if machine.instance.id not in instances:
                machine.see(machine.instance.model_copy(update={"state": "terminated"}))
                if machine.over:
                    del self._machines[machine.instance.id]
        for instance_id, node in standing.items():
            if instance_id not in instances:
                _LOG.info("%s: its instance is gone", node["metadata"]["name"])
                await self._api.delete(node["metadata"]["name"], node["metadata"]["uid"])

    def _machine(self, instance: Instance, standing: dict[str, Json]) -> Machine:
        if instance.id not in self._machines:
            machine = self._machines[instance.id] = Machine(
                instance, self._api, self._settings, draw=self._book.draw, facts=self._facts
            )
            if instance.id in standing:
                machine.adopt(standing[instance.id])
        return self._machines[instance.id]
