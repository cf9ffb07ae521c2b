"""A worker for one test: the real workflows and activities, the fake world, its own task queue."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker, WorkflowRunner

from activities.nodeclaim.annotations import PauseActivities
from activities.nodepool.rollout import GateActivities
from activities.planner_host import ShowingActivities, WatchActivities
from activities.ports.disruption import HookPorts
from activities.ports.garbage_collection import UpkeepPorts
from activities.registry import Ports, activities_of, deciding_of, drains_of, launches_of
from activities.workflow_client import KeptMachines, Lives
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.nodeclaim_state import ClaimOutcome, ClaimState, Deadlines
from tenure.model.observations import ClaimSeen
from tenure.model.provisioning import Expected
from tests.support.fakes.asker import AskerWorkflow
from tests.support.fakes.cloud import FakeFleet, FakeInstances, FakeReservations, FakeResolver
from tests.support.fakes.disrupting import FakeDisruption
from tests.support.fakes.drains import FakeBudgets, FakeRollouts
from tests.support.fakes.granter import GranterWorkflow
from tests.support.fakes.hooks import FakeCalls, FakeJobs
from tests.support.fakes.interruptions import FakeInterruptions
from tests.support.fakes.kubernetes import (
    FakeClaims,
    FakeEvents,
    FakeNamespaces,
    FakeNodeClasses,
    FakeNodes,
    FakePods,
    FakePools,
)
from tests.support.fakes.loads import FakeLoads
from tests.support.fakes.planning import FakeHost
from tests.support.fakes.upkeep import FakeGroups, FakeInventory, FakeLeftovers
from tests.support.workflows.eventually import idle
from workflows import ids
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.runner import WORKFLOWS, OrderedWorkflowRunner
from workflows.visibility import Names, claim_start

SHORTLY = 20.0
"""Real seconds; nobody may be at work."""


HEARTBEAT_INTERVAL = timedelta(seconds=0.2)
"""An activity hears of its cancellation with its next heartbeat, and no test has to wait for that."""


@dataclass
class World:
    """Everything the activities touch, and a client to talk to the workflows."""

    client: Client
    cluster: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")
    claims: FakeClaims = field(default_factory=FakeClaims)
    nodes: FakeNodes = field(default_factory=FakeNodes)
    pods: FakePods = field(default_factory=FakePods)
    events: FakeEvents = field(default_factory=FakeEvents)
    pools: FakePools = field(default_factory=FakePools)
    namespaces: FakeNamespaces = field(default_factory=FakeNamespaces)
    node_classes: FakeNodeClasses = field(default_factory=FakeNodeClasses)
    instances: FakeInstances = field(default_factory=FakeInstances)
    resolver: FakeResolver = field(default_factory=FakeResolver)
    reservations: FakeReservations = field(default_factory=FakeReservations)
    budgets: FakeBudgets = field(default_factory=FakeBudgets)
    rollouts: FakeRollouts = field(default_factory=FakeRollouts)
    jobs: FakeJobs = field(default_factory=FakeJobs)
    calls: FakeCalls = field(default_factory=FakeCalls)
    leftovers: FakeLeftovers = field(default_factory=FakeLeftovers)
    groups: FakeGroups = field(default_factory=FakeGroups)
    host: FakeHost = field(default_factory=FakeHost)
    interruptions: FakeInterruptions = field(default_factory=FakeInterruptions)
    deadlines: Deadlines = field(default_factory=Deadlines)
    number: int = 0
    cached: int = 1000
    """Workflows that a worker remembers; none where one that is gone must not be waited for."""
    runner: WorkflowRunner = field(default_factory=OrderedWorkflowRunner)

    def __post_init__(self) -> None:
        self.fleet = FakeFleet(self.instances)
        self.lives = Lives(self.client, self.cluster, Names(self.cluster), self.deadlines)
        self.machines = KeptMachines(self.client, ids.provisioning(self.cluster))
        self.node_classes.add("default")
        self.disruption = FakeDisruption(self.claims)
        self.inventory = FakeInventory(self.claims, self.nodes, self.node_classes)

    async def start(
        self,
        claim: NodeClaim,
        *,
        alike: str = "",
        expected: Expected | None = None,
        **seen: object,
    ) -> WorkflowHandle[NodeClaimWorkflow, ClaimOutcome]:
        """`alike`: for a NodeClaim that no plan made; `expected`: the durations of its type; `seen`: signalled with the
        start, as by the watch."""
        identity = self.lives.identity(claim).model_copy(update={"alike": alike})
        return await self.client.start_workflow(
            NodeClaimWorkflow.run,
            ClaimState(identity=identity, deadlines=self.deadlines, expected=expected, keeps_records=True),
            id=ids.nodeclaim(self.cluster, identity.name, identity.uid),
            task_queue=ids.task_queue(self.cluster),
            search_attributes=claim_start(identity),
            start_signal="seen",
            start_signal_args=[self.observe(**seen)],
        )

    def handle(self, claim: NodeClaim) -> WorkflowHandle[NodeClaimWorkflow, ClaimOutcome]:
        """The life of a claim that somebody else started."""
        identity = self.lives.identity(claim)
        name = ids.nodeclaim(self.cluster, identity.name, identity.uid)
        return self.client.get_workflow_handle(name, result_type=ClaimOutcome)

    def observe(self, **seen: object) -> ClaimSeen:
        self.number += 1
        return ClaimSeen.model_validate({"number": self.number, **seen})

    async def see(self, handle: WorkflowHandle[NodeClaimWorkflow, ClaimOutcome], **seen: object) -> None:
        """As the watch tells it, but not while a run may just be being continued: see `idle`."""
        await idle(handle, patience=SHORTLY)
        await handle.signal(NodeClaimWorkflow.seen, self.observe(**seen))

    def activities(self) -> list[Callable[..., Any]]:
        return [*activities_of(self.ports()), WatchActivities(self.host).watch_cluster]

    def ports(self) -> Ports:
        return Ports(
            claims=self.claims,
            annotated=self.claims,
            nodes=self.nodes,
            pods=self.pods,
            events=self.events,
            pools=self.pools,
            node_classes=self.node_classes,
            fleet=self.fleet,
            instances=self.instances,
            resolver=self.resolver,
            reservations=self.reservations,
            lives=self.lives,
            machines=self.machines,
            pauses=PauseActivities(
                claims=self.claims,
                nodes=self.nodes,
                pools=self.pools,
                namespaces=self.namespaces,
                events=self.events,
                namespace="tenure",
            ),
            upkeep=UpkeepPorts(
                inventory=self.inventory, leftovers=self.leftovers, groups=self.groups, temporal=self.client
            ),
            loads=FakeLoads(self.pods),
            budgets=self.budgets,
            rollouts=self.rollouts,
            gates=GateActivities(),
            hooks=HookPorts(jobs=self.jobs, calls=self.calls),
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator["World"]:
        """A replica that polls the cluster's task queues."""
        launches = Worker(self.client, task_queue=ids.launch_queue(self.cluster), activities=launches_of(self.ports()))
        drains = Worker(
            self.client,
            task_queue=ids.drain_queue(self.cluster),
            activities=drains_of(self.ports()),
            max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
        )
        async with (
            launches,
            drains,
            Worker(
                self.client,
                task_queue=ids.task_queue(self.cluster),
                workflows=[*WORKFLOWS, AskerWorkflow, GranterWorkflow],
                activities=self.activities(),
                workflow_runner=self.runner,
                max_concurrent_workflow_tasks=4,
                max_cached_workflows=self.cached,
                max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
            ),
        ):
            yield self

    @asynccontextmanager
    async def planning(self) -> AsyncIterator["World"]:
        """The process that hosts the watch polls the plan queue too."""
        events = self.interruptions.activities()
        async with Worker(
            self.client,
            task_queue=ids.plan_queue(self.cluster),
            activities=[
                WatchActivities(self.host).plan_capacity,
                *deciding_of(self.disruption),
                ShowingActivities(self.host).show_disruption,
                events.read_queue,
                events.read_instance_status,
            ],
            graceful_shutdown_timeout=timedelta(seconds=1),
            max_heartbeat_throttle_interval=timedelta(seconds=0.5),
        ):
            yield self
