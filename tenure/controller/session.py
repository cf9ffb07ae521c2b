"""One stay of the watch in this process: its caches, what it told whom, its planner. Made anew at every start.

`host.py` runs it; nothing in here outlives it but what was written to Kubernetes and Temporal.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from temporalio.client import Client

from activities.ports.core import Instances, Offerings
from activities.ports.interruption import Leaving
from tenure.controller import settings as gates
from tenure.controller.cache.availability import Away
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty, Joined
from tenure.controller.cache.expected_pods import Awaited, AwaitedGauge
from tenure.controller.cache.nominations import Nominations
from tenure.controller.capacity_buffers import Buffers
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.consistency import Consistency
from tenure.controller.disruption.facade import Voluntary
from tenure.controller.disruption.status import OverlayVerdicts
from tenure.controller.drift import Drifting
from tenure.controller.interruption import TakenBack
from tenure.controller.lifecycle_policies import Policies
from tenure.controller.metrics.nodeclaims import LifeGauges, OverdueGauges
from tenure.controller.metrics.nodepools import OfferingGauges, PoolGauges, meter_of
from tenure.controller.metrics.planner import Births, PlanMeasures
from tenure.controller.planning.discovered_capacity import Teaching
from tenure.controller.planning.pod_nominator import Placing
from tenure.controller.planning.provisioner import Planning
from tenure.controller.planning.replanning import Unplanned
from tenure.controller.resync import mend, open_coordinators, open_lives, retire
from tenure.controller.settings import HostSettings
from tenure.controller.signals.digests import short
from tenure.controller.signals.disruption_trigger import Rooms
from tenure.controller.signals.lifecycle_observers import NodeLives
from tenure.controller.signals.notifier import Known, Telling
from tenure.controller.signals.pending_pods import place_of
from tenure.controller.signals.provisioning_trigger import Asking
from tenure.controller.signals.signaller import Signal, Signaller, Start
from tenure.controller.startup_durations import Startup
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.kube.client.list_watch import Delta, ListWatch
from tenure.model.disruption.commands import DecideAsked, Decided, ReplaceAsked, Replaced
from tenure.model.facts import PodFact
from tenure.model.interruption.notices import Notice
from tenure.model.observations import DemandSeen, MarksSeen
from tenure.model.operator_requests import ShowAsked, Shown
from tenure.model.provisioning import PlanOutcome, PlanRequest
from tenure.model.workflow_states import ProvisioningState
from workflows import ids

GATHER: Final = 0.1
"""Seconds for which changes are gathered before anything is made of them, ..."""
REST: Final = 4
"""... and times as long as it took to make something of the last ones, since most of the process is for its activities
and workflows; ..."""
LONGEST: Final = 0.6
"""... at most so many seconds: what comes still comes before a batch of pods has waited its idle time."""
WATCHED: Final = (
    resources.NODE_CLAIMS,
    resources.NODES,
    resources.PODS,
    resources.NODE_POOLS,
    resources.EC2_NODE_CLASSES,
    resources.LIFECYCLE_POLICIES,
    resources.DAEMON_SETS,
    resources.NAMESPACES,
    resources.STORAGE_CLASSES,
    resources.PERSISTENT_VOLUMES,
    resources.PERSISTENT_VOLUME_CLAIMS,
    resources.CSI_NODES,
    resources.POD_DISRUPTION_BUDGETS,
)


class Session:
    def __init__(
        self,
        *,
        settings: HostSettings,
        kube: KubeAdapters,
        temporal: Client,
        offerings: Offerings,
        instances: Instances,
        sent: dict[str, str],
        now: Callable[[], datetime],
    ) -> None:
        self._settings, self._temporal, self._now = settings, temporal, now
        self._awake = asyncio.Event()
        self.sent = sent
        self.caches = Caches(now, self._awake.set)
        self._nominations = Nominations(self.caches.owner_of)
        self._buffers = Buffers(self.caches, kube.buffers, now) if gates.CAPACITY_BUFFER in settings.gates else None
        port, usual = kube.lifecycle_policies, settings.deadlines
        self._policies = Policies(self.caches, port, usual=usual, now=now, woken=self._awake.set)
        self._brake = ClusterBrake(settings.namespace, self.caches, self._awake.set)
        meter = meter_of(temporal)
        self._living = LifeGauges(self.caches, self._brake, meter)
        gauges = (OverdueGauges(self.caches, meter), self._living, PoolGauges(self.caches, meter))
        startup = Startup(self.caches, self._policies.deadlines_of)
        rooms = Rooms(self.caches, rules_of=self._policies.rules_of, drifted=lambda one: bool(self._drifting.of(one)))
        self._lives = NodeLives(self._policies, startup, gauges, self._brake, rooms)
        self.caches.on_pod_bound = self._pod_bound
        self.caches.on_pod_gone = self._pod_gone
        self._away = Away(self.caches, self._policies.grace_of)
        self._awaited = AwaitedGauge(Awaited(self.caches, self._nominations, self._away), meter)
        self._signaller = Signaller(temporal, settings.task_queue, sent)
        self._began = now()
        self._telling = self._teller()
        self._asking = Asking(self.caches, self._nominations, self._away, self._buffers, self._demand)
        self._planning = self._planner(kube, offerings)
        self._unplanned = Unplanned(
            self.caches,
            planned=lambda: self._planning.passes > 0,
            unsure=lambda: self._buffers is not None and self._buffers.unsure,
        )
        self._taken = TakenBack(self.caches, self._policies.rules_of, self._mark, now)
        self._planning.filling.taken, self._planning.storm = self._taken.marks, self._taken.storm.until
        feed = self._planning.catalogue
        self._drifting = Drifting(
            caches=self.caches, types=feed.types_of, instances=instances, events=kube.events, now=now
        )
        self._consistency = Consistency(caches=self.caches, claims=kube.claims, events=kube.events, now=now)
        self._gauges = OfferingGauges(meter)
        feed.on_news = self._catalogue_changed
        nominated = kube.pods if settings.nominate_pods else None
        self._placing = Placing(self.caches, self._nominations, nominated, now) if nominated else None
        self._teaching = Teaching(settings.cluster, self._planning.learning, self._signaller)
        self._joined = Joined()
        self._voluntary = Voluntary(
            host=settings,
            kube=kube,
            caches=self.caches,
            planning=self._planning,
            nominations=self._nominations,
            away=self._away,
            policies=self._policies,
            signaller=self._signaller,
            brake=self._brake,
            meter=meter,
            now=now,
        )
        self._watches = {
            one.plural: ListWatch(kube.client, one, deliver=self._hearer(one.plural), now=time.monotonic)
            for one in (*WATCHED, *gates.kinds(settings.gates))
        }

    def _teller(self) -> Telling:
        return Telling(
            cluster=self._settings.cluster,
            deadlines=self._settings.deadlines,
            caches=self.caches,
            nominations=self._nominations,
            away=self._away,
            signaller=self._signaller,
            began=self._began,
            drift=lambda claim: self._drifting.of(claim),
            lives=self._lives,
            kept_for=self._buffers.needs if self._buffers else lambda claim: "",
            static_capacity=gates.STATIC_CAPACITY in self._settings.gates,
            node_repair=gates.NODE_REPAIR in self._settings.gates,
        )

    def _planner(self, kube: KubeAdapters, offerings: Offerings) -> Planning:
        return Planning(
            caches=self.caches,
            nominations=self._nominations,
            away=self._away,
            claims=kube.claims,
            events=kube.events,
            offerings=offerings,
            settings=self._settings.planning,
            not_ready_grace=self._settings.not_ready_grace,
            graces=self._policies.graces,
            now=self._now,
            verdicts=OverlayVerdicts(self.caches, kube.overlays, self._now),
            buffers=self._buffers,
            measures=PlanMeasures(meter_of(self._temporal)),
            births=Births(meter_of(self._temporal)),
        )

    def _catalogue_changed(self) -> None:
        self._drifting.look_at_all()
        self._voluntary.stirring.stir()
        self._living.show_prices(self._planning.catalogue.catalogue)
        asyncio.get_running_loop().run_in_executor(None, self._gauges.show, self._planning.catalogue.catalogue)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, watch in self._watches.items():
                group.create_task(watch.run(), name=f"watch-{name}")
                group.create_task(self._synced(watch), name=f"watch-{name}-synced")
            group.create_task(self._signaller.run(), name="watch-signals")
            group.create_task(self._tell(), name="watch-tell")
            if self._placing:
                group.create_task(self._placing.run(), name="watch-placing")
            group.create_task(self._lives.run(), name="watch-policies")
            if self._buffers:
                group.create_task(self._watch_buffers(self._buffers), name="watch-buffers")

    async def close(self) -> None:
        self._awaited.close()
        await self._joined.close()
        await self._planning.close()

    async def plannable(self) -> None:
        """Until every kind is known, since a plan looks at all of them."""
        for watch in self._watches.values():
            await watch.synced.wait()

    def stale(self, within: float) -> list[str]:
        """The kinds that were not heard of lately."""
        return [name for name, watch in self._watches.items() if not watch.fresh(within)]

    def deaf(self) -> bool:
        """No watch is open at all."""
        return all(watch.cut_since is not None for watch in self._watches.values())

    def hear(self, instance_id: str, notices: Sequence[Notice]) -> None:
        """What AWS says, before anybody is told of it."""
        claim = self.caches.claim_on(instance_id)
        if claim is not None:
            self._taken.hear(claim, notices)

    def leaving(self, instance_id: str, notices: Sequence[Notice]) -> Leaving | None:
        claim = self.caches.claim_on(instance_id)
        return self._taken.leaving(claim, notices) if claim is not None else None

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """A try of a plan that is under way joins it, so that nothing is created twice."""
        return await self._joined.run(f"plan/{request.plan_id}", lambda: self._plan(request))

    async def decide(self, asked: DecideAsked) -> Decided:
        key = f"decide/{asked.model_dump_json()}"
        return await self._joined.run(key, lambda: self._voluntary.disrupting.decide(asked))

    async def replace(self, asked: ReplaceAsked) -> Replaced:
        key = f"replace/{asked.plan_id}"
        return await self._joined.run(key, lambda: self._voluntary.disrupting.replace(asked))

    async def show(self, asked: ShowAsked) -> Shown:
        key = f"show/{asked.name}"
        return await self._joined.run(key, lambda: self._voluntary.showing.show(asked))

    async def watch_disruption(self) -> None:
        """Until cancelled: say when it is worth a look, and what came of it."""
        await self._voluntary.run()

    async def watch_drift(self) -> None:
        """Until cancelled; and whether nodes are what was bought."""
        await asyncio.gather(self._drifting.run(), self._consistency.run())

    async def feed(self) -> None:
        await self._planning.feed()

    async def resync(self) -> None:
        cluster = self._settings.cluster
        running = await open_lives(self._temporal, cluster)
        coordinators = await open_coordinators(self._temporal, cluster)
        if not self.stale(60.0):
            mend(running, self.caches, self._telling, self._signaller, self._known(), self._now())
            retire(coordinators, cluster, self.caches, self._telling)

    async def _plan(self, request: PlanRequest) -> PlanOutcome:
        before = self._nominations.targets()
        outcome = await self._planning.plan(request)
        if self._teaching.check():
            self._awake.set()
        first = self._planning.passes == 1
        for name in tuple(self.caches.claims) if first else {*before, *self._nominations.targets()}:
            self.caches.touch_claim(name)
        self.caches.touch_pods()
        return outcome

    async def _watch_buffers(self, buffers: Buffers) -> None:
        """Once they are known, since a PodTemplate that is not known yet is not one that is missing."""
        for kind in gates.kinds((gates.CAPACITY_BUFFER,)):
            await self._watches[kind.plural].synced.wait()
        await buffers.run()

    async def _synced(self, watch: ListWatch) -> None:
        await watch.synced.wait()
        self.caches.touch_pods()

    async def _tell(self) -> None:
        """Wait for a change or for a time that was set, gather what comes with it, and tell whom it concerns."""
        rests_until = 0.0
        while True:
            await self._until_awake()
            await asyncio.sleep(max(GATHER, rests_until - time.monotonic()))
            began = time.monotonic()
            self._awake.clear()
            now = self._now()
            dirty = self.caches.take_dirty()
            self._drifting.note(dirty)
            known = self._known()
            if self._placing:
                self._placing.look(dirty.claims)
            self._lives.look(dirty, known.policies, counted=known.claims and known.nodes and known.pods)
            self._voluntary.look(gone=bool(dirty.gone_claims))
            self._telling.tell(dirty, known, now)
            self._awaited.show(now)
            if known.pauses:
                self._brake.tell(self._settings.cluster, self._signaller, time.time_ns())
            if known.claims and known.nodes and known.node_classes:
                self._learn(dirty, now)
            self._taken.look(now)
            self._asking.look(dirty, now, known=known.pods)
            over = time.monotonic()
            rests_until = over + min(LONGEST, REST * (over - began))

    def _learn(self, dirty: Dirty, now: datetime) -> None:
        """From nodes that came or changed; what they turn out to be too small for is demand again."""
        self._planning.learning.look(sorted(dirty.claims))
        self._planning.sizes.forget(dirty.gone_claims)
        dirty.pods |= self._planning.sizes.release(dirty.claims)
        self._teaching.tell(self._provisioning(), now)

    async def _until_awake(self) -> None:
        moments = (self._telling.next(), self._teaching.again, self._taken.next, *self._asking.moments)
        times = [moment for moment in moments if moment is not None]
        left = (min(times) - self._now()).total_seconds() if times else None
        try:
            await asyncio.wait_for(self._awake.wait(), None if left is None else max(left, 0.0))
        except TimeoutError:
            return

    def _demand(self, seen: DemandSeen) -> None:
        workflow = ids.provisioning(self._settings.cluster)
        self._signaller.offer(Signal(workflow, "demand", seen, str(seen.number), self._provisioning()))

    def _mark(self, seen: MarksSeen) -> None:
        """All that are marked at once, so that a later word may take an earlier one's place."""
        workflow, digest = ids.provisioning(self._settings.cluster), short(seen.model_dump_json())
        self._signaller.offer(Signal(workflow, "refused", seen, digest, self._provisioning(), topic="taken back"))

    def _provisioning(self) -> Start:
        cluster = self._settings.cluster
        state = ProvisioningState(cluster=cluster, window=self._settings.window)
        return Start("ProvisioningWorkflow", state, summary=f"provisioning of {cluster}")

    def _known(self) -> Known:
        synced = {name: watch.synced.is_set() for name, watch in self._watches.items()}
        return Known(
            claims=synced["nodeclaims"],
            nodes=synced["nodes"],
            pods=synced["pods"],
            pools=synced["nodepools"],
            node_classes=synced["ec2nodeclasses"],
            policies=synced["lifecyclepolicies"] and synced["nodepools"],
            pauses=synced["namespaces"],
            unplanned=self._unplanned.until(
                self._now(), synced=all(synced[one] for one in ("nodeclaims", "nodes", "pods", "nodepools"))
            ),
        )

    def _hearer(self, kind: str) -> Callable[[list[Delta]], None]:
        if self._buffers and kind in {one.plural for one in gates.kinds((gates.CAPACITY_BUFFER,))}:
            return functools.partial(self._buffers.hear, kind)
        if kind == resources.LIFECYCLE_POLICIES.plural:
            return self._policies.hear
        if kind == resources.NAMESPACES.plural:
            return self._hear_namespaces
        return lambda deltas: self.caches.hear(kind, deltas)

    def _hear_namespaces(self, deltas: list[Delta]) -> None:
        self.caches.hear(resources.NAMESPACES.plural, deltas)
        self._brake.hear(deltas)

    def _pod_bound(self, uid: str) -> None:
        now, place = self._now(), place_of(self.caches.pods[uid].node_name, self.caches)
        stead = self._nominations.came(uid, place, now)
        for target in (stead, self._nominations.bound(uid, now)):
            if target:
                self.caches.touch_claim(target)

    def _pod_gone(self, pod: PodFact) -> None:
        target = self._nominations.gone(pod.uid, pod.owner_uid, self._now())
        if target:
            self.caches.touch_claim(target)
