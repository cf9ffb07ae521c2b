"""All ports of the activities as fakes."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from activities.ports.core import Ports
from activities.workflow_client import WorkflowClient
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.launch import LaunchGroupMember
from tenure.model.signals import GroupResult, LaunchError
from tests.support.fakes.cloud import FakeFleet, FakeInstances, FakeReservations, FakeResolver
from tests.support.fakes.drains import FakeBudgets, FakeEvictionRequests, FakeRollouts
from tests.support.fakes.faulty import FaultInjectable
from tests.support.fakes.garbage_collection import FakeInventory, FakeOrphanedResources
from tests.support.fakes.hooks import FakeHookClient, FakeJobs
from tests.support.fakes.kubernetes import (
    FakeEvents,
    FakeNamespaces,
    FakeNodeClaims,
    FakeNodeClasses,
    FakeNodePools,
    FakeNodes,
    FakePods,
)
from tests.support.fakes.node_loads import FakeLoads


@dataclass
class FakeWorkflowClient(FaultInjectable, WorkflowClient):
    """Records calls instead of sending signals and queries."""

    results: dict[str, GroupResult] = field(default_factory=dict)
    """By UID."""
    launch_errors: dict[str, str] = field(default_factory=dict)
    """By UID."""
    open_groups: set[str] = field(default_factory=set)
    requested_groups: list[set[str]] = field(default_factory=list)

    async def signal_launch_result(self, claim: NodeClaim, result: GroupResult) -> None:
        self.results[claim.metadata.uid] = result

    async def report_launch_error(self, member: LaunchGroupMember, error: LaunchError) -> None:
        self.launch_errors[member.uid] = error.message

    async def notify_deleted(self, member: LaunchGroupMember, result: GroupResult) -> None:
        self.results[member.uid] = result

    async def find_open_groups(self, group_ids: Set[str]) -> Set[str]:
        self.requested_groups.append(set(group_ids))
        return self.open_groups & group_ids


@dataclass(kw_only=True)
class FakePorts:
    claims: FakeNodeClaims = field(default_factory=FakeNodeClaims)
    nodes: FakeNodes = field(default_factory=FakeNodes)
    pods: FakePods = field(default_factory=FakePods)
    events: FakeEvents = field(default_factory=FakeEvents)
    pools: FakeNodePools = field(default_factory=FakeNodePools)
    namespaces: FakeNamespaces = field(default_factory=FakeNamespaces)
    node_classes: FakeNodeClasses = field(default_factory=FakeNodeClasses)
    instances: FakeInstances = field(default_factory=FakeInstances)
    resolver: FakeResolver = field(default_factory=FakeResolver)
    reservations: FakeReservations = field(default_factory=FakeReservations)
    budgets: FakeBudgets = field(default_factory=FakeBudgets)
    rollouts: FakeRollouts = field(default_factory=FakeRollouts)
    eviction_requests: FakeEvictionRequests = field(default_factory=FakeEvictionRequests)
    jobs: FakeJobs = field(default_factory=FakeJobs)
    calls: FakeHookClient = field(default_factory=FakeHookClient)
    orphaned_resources: FakeOrphanedResources = field(default_factory=FakeOrphanedResources)

    def __post_init__(self) -> None:
        self.fleet = FakeFleet(self.instances)
        self.loads = FakeLoads(self.pods)
        self.inventory = FakeInventory(self.claims, self.nodes, self.node_classes)

    def build_ports(
        self, workflows: WorkflowClient | None = None, *, surges: bool = True, requests: bool = True, **settings: Any
    ) -> Ports:
        return Ports(
            claims=self.claims,
            nodes=self.nodes,
            pods=self.pods,
            events=self.events,
            pools=self.pools,
            node_classes=self.node_classes,
            namespaces=self.namespaces,
            pod_disruption_budgets=self.budgets,
            deployments=self.rollouts if surges else None,
            eviction_requests=self.eviction_requests if requests else None,
            loads=self.loads,
            jobs=self.jobs,
            inventory=self.inventory,
            fleet=self.fleet,
            instances=self.instances,
            resolver=self.resolver,
            reservations=self.reservations,
            orphaned_resources=self.orphaned_resources,
            hook_client=self.calls,
            workflows=workflows or FakeWorkflowClient(),
            **settings,
        )
