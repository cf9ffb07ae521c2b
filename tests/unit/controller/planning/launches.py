"""Plans one after another, with nodes that become ready and have no room for the pods."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tenure.model.plan import PlanOutcome
from tests.support.controller.builders import Json, at, node, pod
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness

UNTIL_READY = 40
"""Seconds from a plan until its nodes are initialized."""
EXPIRY = 25
"""Seconds after initialization at which nominations are over."""


def initialized_status(name: str, initialized_at: datetime) -> Json:
    return _status(name, initialized_at, ("Launched", "Registered", "Initialized"))


def _status(name: str, reached_at: datetime, reached: Sequence[str]) -> Json:
    conditions = [
        {"type": one, "status": "True", "lastTransitionTime": f"{reached_at:%Y-%m-%dT%H:%M:%SZ}"} for one in reached
    ]
    return {"conditions": conditions, "providerID": f"aws:///us-west-2a/i-{name}"}


def small_node(nodeclaim: str) -> Json:
    """A Node without room for the pods of these tests."""
    return _node(nodeclaim, cpu="100m")


def _node(nodeclaim: str, *, cpu: str, taints: list[Json] | None = None) -> Json:
    found = node(f"node-{nodeclaim}", of=nodeclaim, taints=taints)
    found["status"]["allocatable"] = {"cpu": cpu, "memory": "4Gi", "pods": "10"}
    return found


class Launches:
    """Plans again and again; each node becomes ready with too little CPU for the pod, unless `used_by` names a pod."""

    def __init__(self, harness: ProvisionerHarness) -> None:
        self.harness, self.seconds, self.plans = harness, 0.0, 0
        self.outcome = PlanOutcome(plan_id="")

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.harness.now = at(self.seconds)

    async def plan(self) -> list[str]:
        """The names of the created NodeClaims."""
        before, self.plans = set(self.harness.claims.found), self.plans + 1
        stored = self.outcome.backoffs or ()
        self.outcome = await self.harness.plan(f"plan-{self.plans}", backoffs=stored)
        return sorted(set(self.harness.claims.found) - before)

    def initialize(self, names: Sequence[str], *, used_by: str = "") -> None:
        for name in names:
            raw = dict(self.harness.claims.found[name])
            raw["status"] = initialized_status(name, self.harness.now)
            self.harness.apply_objects("nodeclaims", raw)
            self.harness.apply_objects("nodes", small_node(name))
            if used_by:
                self.harness.apply_objects("pods", web(used_by, on=f"node-{name}"))

    def register(self, name: str, taint: Json) -> None:
        """Its Node has room for the pods, and the taint."""
        raw = {**self.harness.claims.found[name], "status": _status(name, self.harness.now, ("Launched", "Registered"))}
        self.harness.apply_objects("nodeclaims", raw)
        self.harness.apply_objects("nodes", _node(name, cpu="2", taints=[taint]))

    async def launch(self, *, used_by: str = "") -> list[str]:
        """Plan, and let the nodes become ready. Returns the created NodeClaims."""
        names = await self.plan()
        self.advance(UNTIL_READY)
        self.initialize(names, used_by=used_by)
        self.advance(EXPIRY)
        return names

    @property
    def failed_scheduling(self) -> list[str]:
        return self.harness.events.messages("FailedScheduling")


def web(name: str, **more: Any) -> Json:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    return pod(name, containers=containers, **more)
