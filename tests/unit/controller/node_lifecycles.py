"""Node lifecycles in one controller session: pending pods, a plan, launched nodes, interruptions and termination."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any, Final, cast

from tenure.apis.feature_gates import FeatureGate
from tenure.controller.cache.changes import ChangeBatch, SyncedKinds
from tenure.controller.resync import notify_orphaned_coordinators, repair_nodeclaim_workflows
from tenure.controller.session import ControllerSession
from tenure.controller.settings import ControllerSettings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.list_watch import Delta
from tenure.model.disruption.commands import DisruptionDecisionRequest
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.plan import PlanRequest
from tests.support.containers import count_entries
from tests.support.controller.builders import NOW, Json, node, node_class, pod, pool, stamp
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.kubernetes import FakeEvents, FakeNodeClaims
from tests.unit.controller.fake_temporal import FakeTemporal
from tests.unit.controller.planning.provisioner_harness import FakeOfferings

SYNCED: Final = SyncedKinds(
    nodeclaims=True, nodes=True, pods=True, nodepools=True, nodeclasses=True, warm_up_until=None
)
_INITIALIZED: Final = ("Launched", "Registered", "Initialized")
_CONTAINERS: Final = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]
_SPREAD: Final = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
]


class NodeLifecycles:
    def __init__(self) -> None:
        self.now = NOW
        self.temporal, self.claims = FakeTemporal(), FakeNodeClaims()
        kube = KubeAdapters(cast(KubeClient, None))
        kube.claims, kube.events = cast(Any, self.claims), cast(Any, FakeEvents())
        kube.pods = cast(Any, _Pods())
        self.session = ControllerSession(
            settings=ControllerSettings(
                cluster="demo",
                nominate_pods=True,
                gates=frozenset({FeatureGate.CAPACITY_BUFFER}),
            ),
            kube=kube,
            temporal=self.temporal.client,
            offerings=FakeOfferings(),
            instances=FakeInstances(),
            now=lambda: self.now,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._plans = 0
        self.completed_count = 0

    async def __aenter__(self) -> "NodeLifecycles":
        nominator = self.session.provisioning.pod_nominator
        assert nominator
        for run in (self.session._signal_queue.run, nominator.run):
            self._tasks.append(asyncio.create_task(run()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.session.close()

    def count_entries(self) -> Counter[str]:
        """Count the container entries of the session and of its planner."""
        planner = self.session.provisioning.planner_client.process
        state = cast(Any, planner)._process._state if planner else None
        return count_entries(self.session) + count_entries(state)

    async def create_nodepool(self) -> None:
        self.deliver("nodepools", pool())
        self.deliver("ec2nodeclasses", node_class())
        await self._publish()

    async def delete_nodepool(self) -> None:
        self.deliver("nodepools", pool(), deleted=True)
        self.deliver("ec2nodeclasses", node_class(), deleted=True)
        await self._publish()

    async def run(self, count: int) -> None:
        """Launch, run and terminate `count` nodes together."""
        names = [f"{self._plans}-{number}" for number in range(count)]
        pods = [self._pod(name) for name in names]
        self.deliver("pods", *pods)
        await self._publish()
        self._plans += 1
        await self.session.plan(PlanRequest(plan_id=f"plan-{self._plans}"))
        claims = list(self.claims.found.values())
        self.completed_count += len(claims)
        for phases in (("Launched",), _INITIALIZED):
            self.deliver("nodeclaims", *(self._with_phases(claim, phases) for claim in claims))
            if "Registered" in phases:
                self.deliver("nodes", *(self._node(claim) for claim in claims))
            await self._publish()
        bound = {claim["metadata"]["name"]: name for claim, name in zip(claims, names, strict=False)}
        running = [self._pod(name, on=f"node-{claim}") for claim, name in bound.items()]
        running.append({"metadata": {"name": "broken", "uid": f"b-{self._plans}"}})
        self.deliver("pods", *running)
        await self._publish()
        await self._observe(claims)
        self.deliver("pods", *running, *pods, deleted=True)
        await self._publish()
        deleting = [self._with_phases(claim, _INITIALIZED, deleting=True) for claim in claims]
        self.deliver("nodeclaims", *deleting)
        await self._publish()
        self.deliver("nodes", *(self._node(claim) for claim in claims), deleted=True)
        self.deliver("nodeclaims", *deleting, deleted=True)
        self.claims.found.clear()
        await self._publish()

    async def _observe(self, claims: list[Json]) -> None:
        """Run every task of the session for running nodes: drift, disruption, events, interruptions."""
        await self._run_disruption()
        await self.session._disruption._consistency_checker.check_all()
        for claim in claims[::2]:
            instance = f"i-{claim['metadata']['name']}"
            message = InterruptionMessage(kind="spotInterruption", id=instance, at=self.now)
            self.session.provisioning.observe_interruption(instance, [message])
            self.session.provisioning.start_early_eviction(instance, [message])
        self.deliver("nodes", *(self._node(claim, ready=False) for claim in claims[::3]))
        await self._publish()

    async def _run_disruption(self) -> None:
        disruption = self.session._disruption
        await disruption.drift_detector.run_pass()
        await self.session.compute_disruption(DisruptionDecisionRequest())
        await disruption._verdict_reporter.publish_events()
        await disruption._last_pod_event_writer.write()
        await self.session._invalid_objects.publish_events()

    async def settle(self) -> None:
        """Advance three days and run every due task."""
        for _ in range(3):
            self.now += timedelta(days=1)
            await self._publish()
            await self._run_disruption()
            await self.session.provisioning.provisioner.sync_planner()
            self._resync()

    def _resync(self) -> None:
        """Resync as if no workflow ran."""
        cache, notifier = self.session.cluster.cache, self.session.signals.notifier
        signal_queue = self.session._signal_queue
        repair_nodeclaim_workflows({}, cache, notifier, signal_queue, SYNCED, self.now)
        notify_orphaned_coordinators((), "demo", cache, notifier, signal_queue)

    def deliver(self, kind: str, *objects: Json, deleted: bool = False) -> None:
        self.session.cluster.on_deltas(kind, [Delta(one, is_deleted=deleted) for one in objects])

    async def _publish(self) -> None:
        self.now += timedelta(seconds=10)
        cache = self.session.cluster.cache
        cache.publish(ChangeBatch(cache.drain_changes(), SYNCED, self.now))
        while not self.session._signal_queue.is_idle:  # noqa: ASYNC110 - the queue has no event for it
            await asyncio.sleep(0)
        self.temporal.sent.clear()

    def _pod(self, name: str, *, on: str = "") -> Json:
        labels = {"labels": {"app": "a"}}
        raw = pod(f"p{name}", on=on, containers=_CONTAINERS, topologySpreadConstraints=_SPREAD, metadata=labels)
        if on:
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._stamp}
            raw["status"]["conditions"] = [scheduled]
        return raw

    def _node(self, claim: Json, *, ready: bool = True) -> Json:
        name = claim["metadata"]["name"]
        raw = node(f"node-{name}", of=name, ready=ready, labels=claim["metadata"]["labels"])
        raw["metadata"]["labels"] |= {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
        raw["status"]["allocatable"] = {"cpu": "4", "memory": "8Gi", "pods": "50"}
        return raw

    def _with_phases(self, claim: Json, phases: tuple[str, ...], *, deleting: bool = False) -> Json:
        conditions = [{"type": one, "status": "True", "lastTransitionTime": self._stamp} for one in phases]
        status = {"providerID": f"aws:///us-west-2a/i-{claim['metadata']['name']}", "conditions": conditions}
        metadata = {**claim["metadata"], **({"deletionTimestamp": self._stamp} if deleting else {})}
        return {**claim, "metadata": metadata, "status": status}

    @property
    def _stamp(self) -> str:
        return stamp((self.now - NOW).total_seconds())


class _Pods:
    async def nominate(self, *_: object, **__: object) -> bool:
        return True


BOUNDED: Final = {
    "._deleted": "the UIDs of the last 2,000 NodeClaims that were deleted",
    "._offerings": "offerings of the cloud, which are recorded as unavailable once they are withdrawn",
    "._sizes": "instance types of the cloud",
    ".sent": "the signals to the Provisioning, Cluster and ClusterWatch workflows",
}
"""Containers that keep entries after all objects are deleted, with the reason."""
MAX_BOUNDED: Final = 2000


async def assert_no_entries_remain(*, batches: int, nodes: int) -> None:
    async with NodeLifecycles() as lifecycles:
        await lifecycles.settle()
        before = lifecycles.count_entries()
        await lifecycles.create_nodepool()
        for _ in range(batches):
            await lifecycles.run(nodes)
        await lifecycles.delete_nodepool()
        await lifecycles.settle()
        left = lifecycles.count_entries() - before
        assert lifecycles.completed_count == batches * nodes
        assert {path: count for path, count in left.items() if not path.endswith(tuple(BOUNDED))} == {}
        assert max(left.values()) <= MAX_BOUNDED
        assert not [key for key in lifecycles.session._signal_queue.sent if "/node" in key]
