"""A Provisioner with a planner, over a cluster cache and fake ports."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cache.pod_verdicts import PodVerdicts
from tenure.controller.disruption.status import Overlays, OverlayStatusWriter
from tenure.controller.interruption.notifier import InterruptedCapacity
from tenure.controller.planning.planner_process import PlannerClient
from tenure.controller.planning.pod_verdict_events import PodVerdictEvents
from tenure.controller.planning.provisioner import Provisioner
from tenure.model.errors import Fault, Throttled, TryLater
from tenure.model.facts import PodFact
from tenure.model.instance_types import Catalogue, InstanceType, ReservationHeadroom
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.plan import PlanOutcome, PlanRequest
from tenure.scheduling.settings import PlanSettings
from tests.support.controller.builders import CacheHarness, node_class, pod, pool, stamp
from tests.support.controller.meter import RecordingMeter
from tests.support.fakes.kubernetes import FakeEvents, FakeNodeClaims
from tests.unit.scheduling.builders import COMMON


class FailingNodeClaims(FakeNodeClaims):
    """Assigns UIDs. Creations can fail, or succeed with a lost response."""

    def __init__(self) -> None:
        super().__init__()
        self.create_failures = 0
        self.not_created: list[NodeClaim] = []
        self.create_fault: type[Fault] = TryLater
        self.lost_responses = 0

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if self.create_failures:
            self.create_failures -= 1
            self.not_created.append(claim)
            raise self.create_fault(f'POST nodeclaims: NodeClaim "{claim.name}" is refused')
        created = claim.to_object()
        created["metadata"] |= {"uid": f"uid-{claim.name}", "creationTimestamp": stamp()}
        self.found.setdefault(claim.name, created)
        if self.lost_responses:
            self.lost_responses -= 1
            raise TryLater("cut off")
        return self._read(claim.name)


class FakeOfferings:
    """The Offerings port. It counts requests of the catalogue, which fail while `broken`."""

    def __init__(self) -> None:
        self.kinds: Sequence[InstanceType] = COMMON
        self.catalogue_requests = 0
        self.broken = False

    async def refresh(self) -> None:
        return None

    async def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        return self.kinds

    async def reservation_capacities(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        return {}

    async def fetch_shifted_zones(self) -> frozenset[str]:
        return frozenset()

    async def catalogue(self, node_classes: Sequence[EC2NodeClass]) -> Catalogue:
        self.catalogue_requests += 1
        if self.broken:
            raise Throttled("told to fail")
        return Catalogue(by_node_class={one.name: tuple(self.kinds) for one in node_classes})


class FakeSchedulerMessages:
    def __init__(self) -> None:
        self.message = ""
        self.fault: Fault | None = None

    async def read_scheduler_message(self, pod: PodFact) -> str:
        if self.fault:
            raise self.fault
        return self.message


class ProvisionerHarness(CacheHarness):
    def __init__(self, overlays: Overlays | None = None) -> None:
        super().__init__()
        self.nominations, self.claims, self.events, self.types = (
            Nominations(),
            FailingNodeClaims(),
            FakeEvents(),
            FakeOfferings(),
        )
        self.scheduler_messages = FakeSchedulerMessages()
        self.meter = RecordingMeter()
        self.is_leading = True
        self.not_ready_grace_periods: dict[str, timedelta] = {}
        """By NodePool; the default is five minutes."""
        self.interrupted_capacity = InterruptedCapacity(
            self.cache, lambda pool: None, lambda observed: None, lambda: self.now
        )
        self.planner_client = PlannerClient(
            cache=self.cache,
            offerings=self.types,
            events=self.events,
            settings=PlanSettings(),
            now=lambda: self.now,
            overlay_status=OverlayStatusWriter(self.cache, overlays, lambda: self.now) if overlays else None,
            interrupted_offerings=self.interrupted_capacity.unavailable_offerings,
            is_leading=lambda: self.is_leading,
        )
        not_ready = NotReadyTracker(
            self.cache, lambda pool: self.not_ready_grace_periods.get(pool, timedelta(minutes=5))
        )
        expected_pods = ExpectedPods(self.cache, self.nominations, not_ready)
        self.verdicts = PodVerdicts(self.cache, self.nominations, not_ready, expected_pods, lambda pool: Deadlines())
        self.verdict_events = PodVerdictEvents(self.cache, self.verdicts, self.events, lambda: self.now)
        self.provisioner = Provisioner(
            cache=self.cache,
            nominations=self.nominations,
            not_ready=not_ready,
            expected_pods=expected_pods,
            verdict_events=self.verdict_events,
            claims=self.claims,
            events=self.events,
            scheduler_messages=self.scheduler_messages,
            planner_client=self.planner_client,
            burst_ends_at=self.interrupted_capacity.burst.ends_at,
            not_ready_grace=timedelta(minutes=5),
            not_ready_grace_periods=lambda: self.not_ready_grace_periods,
            now=lambda: self.now,
            meter=self.meter,
        )

    async def plan(self, plan_id: str = "plan-1", **more: Any) -> PlanOutcome:
        return await self.provisioner.plan(PlanRequest(plan_id=plan_id, **more))

    def add_pods(self, count: int, prefix: str = "p", **more: Any) -> None:
        big = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
        self.apply_objects("pods", *(pod(f"{prefix}{number}", containers=big, **more) for number in range(count)))


@asynccontextmanager
async def running_provisioner(overlays: Overlays | None = None) -> AsyncIterator[ProvisionerHarness]:
    """A harness with a NodePool and an EC2NodeClass, whose planner is closed at the end."""
    harness = ProvisionerHarness(overlays)
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("ec2nodeclasses", node_class())
    yield harness
    await harness.provisioner.close()
