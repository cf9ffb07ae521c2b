"""A cluster cache with a WorkflowNotifier, whose signals are recorded."""

from datetime import datetime

from tenure.controller.cache.changes import SyncedKinds
from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.signals.lifecycle_observers import LifecycleObservers
from tenure.controller.signals.notifier import WorkflowNotifier
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.observations import ObservedNodeClaim
from tenure.model.operator_requests import PolicyValidation
from tenure.policy.policy_features import PolicyFeatures
from tests.support.controller.builders import (
    NOW,
    CacheHarness,
    at,
    node_class,
    not_ready_tracker,
    pool,
)
from tests.unit.controller.fake_temporal import RecordingSignalQueue

ALL_SYNCED = SyncedKinds(nodeclaims=True, nodes=True, pods=True, nodepools=True, nodeclasses=True, warm_up_until=None)
CLAIM = "prod/nodeclaim/c1/uid-c1"


class NullPolicyPort:
    async def write_validation(self, name: str, uid: str, validation: PolicyValidation, *, now: datetime) -> bool:
        return True


class NotifierHarness(CacheHarness):
    """A cluster cache and a WorkflowNotifier that the test calls."""

    def __init__(self, sent: dict[str, str] | None = None) -> None:
        super().__init__()
        self.nominations = Nominations()
        self.signal_queue = RecordingSignalQueue(sent)
        self.numbers = iter(range(1, 1000))
        not_ready = not_ready_tracker(self)
        self.policies = LifecyclePolicies(
            self.cache,
            NullPolicyPort(),
            default_deadlines=Deadlines(),
            features=PolicyFeatures(),
            now=lambda: self.now,
        )
        self.notifier = WorkflowNotifier(
            cluster="prod",
            deadlines=Deadlines(),
            cache=self.cache,
            nominations=self.nominations,
            not_ready=not_ready,
            expected_pods=ExpectedPods(self.cache, self.nominations, not_ready),
            signal_queue=self.signal_queue,
            observers=LifecycleObservers(self.cache, self.policies, ClusterPause("tenure", self.cache)),
            began=NOW,
            number=lambda: next(self.numbers),
            discovered=lambda node_class: DiscoveredCapacity(images={node_class: {"m5.large": 7640}}),
            static_capacity=True,
        )

    def notify(self, seconds: float = 0, known: SyncedKinds = ALL_SYNCED) -> None:
        self.now = at(seconds)
        self.notifier.notify(self.cache.drain_changes(), known, self.now)

    def last_observed(self) -> ObservedNodeClaim:
        """The last observation sent to the workflow of NodeClaim c1."""
        last: ObservedNodeClaim = self.signal_queue.arguments_to(CLAIM)[-1]
        return last


def build_notifier() -> NotifierHarness:
    """A harness with a NodePool and an EC2NodeClass."""
    harness = NotifierHarness()
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}))
    harness.apply_objects("ec2nodeclasses", node_class())
    return harness
