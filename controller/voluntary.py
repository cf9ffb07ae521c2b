"""All of voluntary disruption in one stay of the watch: deciding, telling that something changed, showing verdicts.

`session.py` runs it and hands on what the Cluster workflow asks.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from temporalio.common import MetricMeter

from controller import gates
from controller.allowing import Allowing
from controller.away import Away
from controller.births import Births
from controller.brake import ClusterBrake
from controller.caches import Caches
from controller.disrupting import Disrupting, settings
from controller.evacuated import holds
from controller.holding import Holding
from controller.nominations import Nominations
from controller.pass_gauges import PassGauges
from controller.planning import Planning
from controller.pod_events import PodEvents
from controller.policies import Policies
from controller.settings import HostSettings
from controller.showing import Showing
from controller.signaller import Signaller
from controller.stirring import Stirring
from controller.verdicts import Verdicts
from kube.adapters import KubeAdapters


class Voluntary:
    def __init__(
        self,
        *,
        host: HostSettings,
        kube: KubeAdapters,
        caches: Caches,
        planning: Planning,
        nominations: Nominations,
        away: Away,
        policies: Policies,
        signaller: Signaller,
        brake: ClusterBrake,
        meter: MetricMeter,
        now: Callable[[], datetime],
    ) -> None:
        self.stirring = Stirring(caches, signaller, host.cluster, took=lambda: self._gauges.took)
        self._pod_events = PodEvents(caches, kube.claims, now)
        self.verdicts, self._gauges = Verdicts(caches, kube.events, meter), PassGauges(meter)
        self.disrupting = Disrupting(
            caches=caches,
            filling=planning.filling,
            nominations=nominations,
            away=away,
            allowing=Allowing(caches, policies.rules_of, policies.unread_of),
            claims=kube.claims,
            events=kube.events,
            settings=settings(spot_to_spot=gates.SPOT_TO_SPOT in host.gates),
            not_ready_grace=host.not_ready_grace,
            graces=policies.graces,
            now=now,
            paused=Holding(caches, brake),
            evacuated=partial(holds, caches),
            decided=self.verdicts.take,
            passed=lambda seen: self._gauges.take(seen.allowances, seen.consuming, seen.seconds),
            births=Births(meter),
        )
        self.showing = Showing(caches, self.disrupting)

    def look(self, *, gone: bool) -> None:
        """After every burst of changes. `gone`: NodeClaims are."""
        self.stirring.look(gone=gone)
        self._pod_events.look()

    async def run(self) -> None:
        """Until cancelled; once every kind is known."""
        try:
            await asyncio.gather(self.stirring.run(), self.verdicts.run(), self._pod_events.run())
        finally:
            self._gauges.close()
