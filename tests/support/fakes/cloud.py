"""EC2 in memory: a fleet with client tokens, and instances."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.errors import Fault
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import (
    FleetError,
    FleetInstance,
    FleetResult,
    LaunchGroup,
    LaunchOverride,
    LaunchPreparation,
    LaunchRejection,
    LaunchRequest,
    PreparedLaunchRequest,
)
from tenure.model.provider_results import ConditionPatch, InstanceFacts, LaunchFacts, ResolvedNodeClass
from tests.support.fakes.faulty import FaultInjectable

REQUEST = LaunchRequest(
    node_class="default",
    capacity_type="on-demand",
    overrides=(
        LaunchOverride(
            launch_template="karpenter.k8s.aws/1",
            instance_type="m5.large",
            zone="us-west-2a",
            subnet_id="subnet-1",
            image_id="ami-1",
            priority=0.096,
        ),
    ),
    tags={},
)


@dataclass
class FakeInstances(FaultInjectable):
    running: dict[str, InstanceFacts] = field(default_factory=dict)
    terminated: list[str] = field(default_factory=list)
    rebooted: list[str] = field(default_factory=list)
    shifted_zones: set[str] = field(default_factory=set)
    entered_states: list[str] = field(default_factory=list)
    """States that instances were stopped or started into, in order."""
    shutting_down_polls: int = 0
    """Number of polls for which a terminated instance is still listed as shutting down."""

    async def get(self, instance_id: str) -> InstanceFacts | None:
        if instance_id in self.terminated and self.shutting_down_polls > 0:
            self.shutting_down_polls -= 1
            return InstanceFacts(instance_id=instance_id, state="shutting-down")
        return self.running.get(instance_id)

    async def list_managed(self) -> Sequence[InstanceFacts]:
        return list(self.running.values())

    async def find_by_nodeclaim(self, claim: str) -> Sequence[InstanceFacts]:
        found = [one for one in self.running.values() if one.tags.get(labels.TAG_NODECLAIM) == claim]
        return [one for one in found if one.state in ("pending", "running")]

    async def terminate(self, instance_id: str) -> bool:
        if self.running.pop(instance_id, None) is None:
            return False
        self.terminated.append(instance_id)
        return True

    async def stop(self, instance_id: str) -> bool:
        return self._enter(instance_id, "stopped")

    async def start(self, instance_id: str) -> bool:
        return self._enter(instance_id, "running")

    def _enter(self, instance_id: str, state: str) -> bool:
        """Faults are injected by the public method's name, see FaultInjectable."""
        if instance_id not in self.running:
            return False
        self.running[instance_id] = self.running[instance_id].model_copy(update={"state": state})
        self.entered_states.append(state)
        return True

    async def reboot(self, instance_id: str) -> bool:
        if instance_id not in self.running:
            return False
        self.rebooted.append(instance_id)
        return True

    async def is_zone_shifted(self, zone_id: str) -> bool:
        return zone_id in self.shifted_zones


@dataclass
class FakeReservations(FaultInjectable):
    enabled: bool = True
    ends: dict[str, datetime] = field(default_factory=dict)

    async def find_ending(self, reservation_ids: Collection[str]) -> Mapping[str, datetime]:
        return {one: at for one, at in self.ends.items() if one in reservation_ids}


@dataclass
class FakeFleet(FaultInjectable):
    instances: FakeInstances
    capacity: int = 1000
    """Instances that can still be launched."""
    types: tuple[str, ...] = ("m5.large",)
    capacity_type: str = REQUEST.capacity_type
    capacity_by_type: dict[str, int] = field(default_factory=dict)
    """Remaining capacity of types with a limit."""
    excluded_types: list[list[str]] = field(default_factory=list)
    """The excluded types of each prepare call."""
    created_count: int = 0
    """Number of instances so far: EC2 never reuses an id."""
    extra_instances: int = 0
    """Instances that it launches beyond the requested number."""
    rejection: LaunchRejection | None = None
    next_error: FleetError | None = None
    """Returned once instead of instances, for the next new token."""
    lost_responses: list[Fault] = field(default_factory=list)
    """Raised one after the other, *after* the fleet was created: the response is lost."""
    gate: asyncio.Event | None = None
    """If set, calls wait for it."""
    results: dict[str, FleetResult] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY
    """What the last launch was prepared with."""
    described_with: DiscoveredCapacity = NO_DISCOVERED_CAPACITY
    """What its instances were described with."""

    def fail_once(self) -> None:
        """The next fleet fails with a retryable error."""
        self.next_error = FleetError(code="InternalError", message="try again")

    async def prepare(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        *,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
        now: datetime,
        unavailable: Sequence[UnavailableOffering] = (),
        is_retry: bool = False,
    ) -> LaunchPreparation:
        """Prepares one type at a time: the first that is not known to be unavailable."""
        self.discovered = discovered
        self.excluded_types.append([offering.instance_type for offering in unavailable])
        zone, market = REQUEST.overrides[0].zone, self.capacity_type
        available_types = [
            one for one in self.types if not any(offering.covers(one, zone, market) for offering in unavailable)
        ]
        if self.rejection or not available_types:
            return self.rejection or LaunchRejection(reason="InsufficientCapacity", message="nothing is left")
        override = REQUEST.overrides[0].model_copy(update={"instance_type": available_types[0]})
        return PreparedLaunchRequest(
            request=REQUEST.model_copy(update={"overrides": (override,), "capacity_type": self.capacity_type})
        )

    async def create(self, group: LaunchGroup) -> FleetResult:
        token = group.client_token()
        self.calls.append(token)
        if self.gate is not None:
            await self.gate.wait()
        if token not in self.results:
            count = len(group.members) + self.extra_instances
            self.results[token] = self._launch(count, group.request.overrides[0].instance_type)
        if self.lost_responses:
            raise self.lost_responses.pop(0)
        return self.results[token]

    async def find(self, group: LaunchGroup) -> FleetResult:
        return FleetResult(instances=self.results.get(group.client_token(), FleetResult()).instances)

    def _launch(self, count: int, type_: str) -> FleetResult:
        if self.next_error is not None:
            result, self.next_error = FleetResult(errors=(self.next_error,)), None
            return result
        launched = min(count, self.capacity, self.capacity_by_type.get(type_, count))
        self.capacity -= launched
        start = max(self.created_count, len(self.instances.running) + len(self.instances.terminated))
        self.created_count = start + launched
        launches = [
            FleetInstance(
                instance_id=f"i-{start + number:04d}",
                instance_type=type_,
                zone="us-west-2a",
                subnet_id="subnet-1",
                image_id="ami-1",
                capacity_type="on-demand",
            )
            for number in range(launched)
        ]
        for one in launches:
            self.instances.running[one.instance_id] = InstanceFacts(instance_id=one.instance_id, state="running")
        missing = FleetError(
            code="InsufficientInstanceCapacity",
            message="no capacity",
            instance_type=type_,
            zone="us-west-2a",
            capacity_type="on-demand",
            insufficient=True,
        )
        return FleetResult(instances=tuple(launches), errors=(missing,) if launched < count else ())

    async def describe(
        self,
        result: FleetResult,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        *,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
    ) -> Sequence[LaunchFacts]:
        self.described_with = discovered
        return [
            LaunchFacts(
                provider_id=f"aws:///{one.zone}/{one.instance_id}",
                image_id=one.image_id,
                labels={"node.kubernetes.io/instance-type": one.instance_type},
                capacity={"cpu": 2000},
                allocatable={"cpu": 1930},
            )
            for one in result.instances
        ]


@dataclass
class FakeResolver(FaultInjectable):
    conditions: tuple[ConditionPatch, ...] = (ConditionPatch(type="AMIsReady", status="True"),)
    failed_lookups: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    retry_after: timedelta | None = None
    resolve_count: int = 0
    pools: list[str] = field(default_factory=list)
    """NodePools of the last resolve call."""
    cleaned: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """If set, resolving waits for it."""

    async def resolve(self, node_class: EC2NodeClass, pools: Sequence[NodePool] = ()) -> ResolvedNodeClass:
        self.resolve_count += 1
        self.pools = [pool.metadata.name for pool in pools]
        if self.gate is not None:
            await self.gate.wait()
        return ResolvedNodeClass(
            status={"amis": []},
            conditions=self.conditions,
            failed_lookups=self.failed_lookups,
            warnings=self.warnings,
            retry_after=self.retry_after,
        )

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        self.cleaned.append(node_class.metadata.name)
