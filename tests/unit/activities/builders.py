"""Activities over the in-memory world, run as Temporal runs them but without a server."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from temporalio.testing import ActivityEnvironment

from activities.disruption import CommandActivities, DisruptionActivities
from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.instance import TerminationActivities
from activities.nodeclaim.launch import LaunchActivities
from activities.nodeclaim.registration import RegistrationActivities
from activities.nodeclaim.repair import RepairActivities
from activities.nodeclass import NodeClassActivities
from activities.nodepool.budgets import AllowedDisruptionsActivities
from activities.nodepool.static_capacity import ReplicaActivities
from activities.nodepool.status import NodePoolActivities
from activities.workflow_client import NodeClaimWorkflows
from tenure.apis.labels import DISRUPTED_TAINT_KEY, TERMINATION_FINALIZER
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.launch import LaunchGroupMember
from tenure.model.nodeclaim.requests import NodeClaimRef
from tenure.model.provider_results import InstanceFacts
from tenure.model.signals import GroupResult
from tests.support.fakes.cloud import FakeFleet, FakeInstances, FakeResolver
from tests.support.fakes.drains import FakeBudgets, FakeRollouts, drain_ports
from tests.support.fakes.kubernetes import (
    FakeEvents,
    FakeNodeClaims,
    FakeNodeClasses,
    FakeNodePools,
    FakeNodes,
    FakePods,
)
from tests.support.fakes.node_loads import FakeLoads

A = TypeVar("A")
R = TypeVar("R")
PROVIDER = "aws:///us-west-2a/i-0000"
REF = NodeClaimRef(name="a", uid="uid-a", node_name="node-a", provider_id=PROVIDER)


class RecordingNodeClaimWorkflows(NodeClaimWorkflows):
    """Notes who is told what, in the place of signals."""

    def __init__(self) -> None:
        self.results: dict[str, GroupResult] = {}

    async def signal_launch_result(self, claim: NodeClaim, result: GroupResult) -> None:
        self.results[claim.metadata.uid] = result

    async def notify_deleted(self, member: LaunchGroupMember, result: GroupResult) -> None:
        self.results[member.uid] = result


class FakeCluster:
    """The fakes, and every class of activities made over them."""

    def __init__(self) -> None:
        self.claims, self.nodes, self.pods = FakeNodeClaims(), FakeNodes(), FakePods()
        self.events, self.pools, self.node_classes = FakeEvents(), FakeNodePools(), FakeNodeClasses()
        self.instances, self.resolver, self.workflows = FakeInstances(), FakeResolver(), RecordingNodeClaimWorkflows()
        self.fleet = FakeFleet(self.instances)
        self.node_classes.add("default")
        self.launching = LaunchActivities(
            claims=self.claims,
            node_classes=self.node_classes,
            fleet=self.fleet,
            instances=self.instances,
            events=self.events,
            nodeclaim_workflows=self.workflows,
        )
        self.joining = RegistrationActivities(claims=self.claims, nodes=self.nodes, events=self.events)
        self.disruption = DisruptionActivities(claims=self.claims, nodes=self.nodes, pods=self.pods, events=self.events)
        self.commands = CommandActivities(claims=self.claims, nodes=self.nodes, pods=self.pods, events=self.events)
        self.budgets, self.rollouts = FakeBudgets(), FakeRollouts()
        self.drained = drain_ports(
            claims=self.claims,
            nodes=self.nodes,
            pods=self.pods,
            instances=self.instances,
            events=self.events,
            budgets=self.budgets,
            rollouts=self.rollouts,
        )
        self.draining = DrainActivities(self.drained)
        self.repairing = RepairActivities(
            claims=self.claims, nodes=self.nodes, instances=self.instances, events=self.events
        )
        self.ending = TerminationActivities(claims=self.claims, nodes=self.nodes, instances=self.instances)
        self.pool_status = NodePoolActivities(pools=self.pools, claims=self.claims, node_classes=self.node_classes)
        self.allowed_disruptions = AllowedDisruptionsActivities(
            pools=self.pools, claims=self.claims, nodes=self.nodes, events=self.events
        )
        self.loads = FakeLoads(self.pods)
        self.replicas = ReplicaActivities(
            pools=self.pools,
            claims=self.claims,
            nodes=self.nodes,
            node_classes=self.node_classes,
            loads=self.loads,
            events=self.events,
        )
        self.classes = NodeClassActivities(
            node_classes=self.node_classes,
            claims=self.claims,
            pools=self.pools,
            resolver=self.resolver,
            events=self.events,
        )

    def add_running_node(self, name: str = "a", *, spec: dict[str, Any] | None = None, **node: Any) -> None:
        """A NodeClaim with its finalizer, instance and Node."""
        self.claims.add(name, **(spec or {}))
        self.claims.found[name]["metadata"]["finalizers"] = [TERMINATION_FINALIZER]
        self.claims.set_status(name, provider_id=PROVIDER)
        self.instances.running["i-0000"] = InstanceFacts(instance_id="i-0000", state="running")
        self.nodes.join(f"node-{name}", PROVIDER, **node)

    def is_disrupted(self, node: str = "node-a") -> bool:
        return any(key == DISRUPTED_TAINT_KEY for key, _, _ in self.nodes.found[node].taints)


async def run_activity(call: Callable[[A], Awaitable[R]], request: A, *, attempt: int = 1) -> R:
    """Run an activity; heartbeats go nowhere."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    return await environment.run(call, request)
