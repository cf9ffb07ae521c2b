"""All of voluntary disruption in one stay of the watch: deciding, telling that something changed, showing verdicts.

`session.py` runs it and hands on what the Cluster workflow asks.

What people are shown of voluntary disruption, from a pass that is made for them. Pure but for that pass.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

from temporalio.common import MetricMeter

from tenure.apis.labels import INSTANCE_TYPE
from tenure.controller import settings as gates
from tenure.controller.cache.availability import Away, Holding, holds
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.disruption.budgets import Allowing
from tenure.controller.disruption.controller import Disrupting, settings
from tenure.controller.disruption.status import Verdicts
from tenure.controller.lifecycle_policies import Policies
from tenure.controller.metrics.planner import Births, PassGauges
from tenure.controller.planning.provisioner import Planning
from tenure.controller.pod_events import PodEvents
from tenure.controller.settings import HostSettings
from tenure.controller.signals.disruption_trigger import Stirring
from tenure.controller.signals.signaller import Signaller
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.disruption.planning import Command, Decision
from tenure.model.facts import PodFact
from tenure.model.operator_requests import ShowAsked, Shown, ShownCommand
from tenure.model.provisioning import PlannedClaim

MOST: Final = 100
"""Commands."""
_TYPES: Final = 3


class Showing:
    def __init__(self, caches: Caches, disrupting: Disrupting) -> None:
        self._caches, self._disrupting = caches, disrupting

    async def show(self, asked: ShowAsked) -> Shown:
        """Raises TryLater when there is no planner to be had."""
        seen = await self._disrupting.look()
        if seen.decision is None:
            return Shown(at=seen.at, blocked=seen.blocked)
        found = self._all(seen.decision)
        if asked.name:
            found = self._one(asked.name, seen.decision)
        return found.model_copy(update={"at": seen.at})

    def _all(self, decision: Decision) -> Shown:
        return Shown(
            commands=tuple(_shown(one) for one in decision.commands[:MOST]),
            more=max(0, len(decision.commands) - MOST),
            nodes=len(decision.nodes),
            eligible=sum(bool(one.eligible) for one in decision.nodes),
            kept=dict(decision.causes.most_common()),
        )

    def _one(self, name: str, decision: Decision) -> Shown:
        verdicts = [one for one in decision.nodes if name in (one.claim, one.node)]
        if verdicts:
            node = verdicts[0].node
            going = [_shown(one) for one in decision.commands if node and node in one.nodes]
            return Shown(verdicts=tuple(verdicts), commands=tuple(going))
        pods = [one for one in self._caches.pods.values() if name in (one.name, f"{one.namespace}/{one.name}")]
        if not pods:
            return Shown(said=(f"no NodeClaim, Node or pod of the name {name} is there",))
        return self._pod(pods[0], decision, len(pods) - 1)

    def _pod(self, pod: PodFact, decision: Decision, others: int) -> Shown:
        verdicts = [one for one in decision.nodes if one.node == pod.node_name and pod.node_name]
        said = [f"{others} more pods have this name: write namespace/name"] if others else []
        if not pod.node_name:
            said.append("it has no node yet")
        elif not verdicts:
            said.append(f"it runs on {pod.node_name}, which is no node of a NodePool")
        said += [words for command in decision.commands for words in _move(pod, command)]
        return Shown(pod=f"{pod.namespace}/{pod.name}", said=tuple(said), verdicts=tuple(verdicts))


def _move(pod: PodFact, command: Command) -> Iterator[str]:
    for one in command.moves:
        if one.pod_uid == pod.uid:
            where = one.target or f"a new node of NodePool {command.replacements[one.replacement].pool}"
            yield f"it would move from {one.source} to {where}: {command.why}"


def _shown(command: Command) -> ShownCommand:
    return ShownCommand(
        reason=command.reason,
        nodes=command.nodes,
        replacements=tuple(_bought(one) for one in command.replacements),
        pods=len(command.moves),
        price_before=command.price_before,
        price_after=command.price_after,
        why=command.why,
    )


def _bought(planned: PlannedClaim) -> str:
    types = next((one.values for one in planned.requirements if one.key == INSTANCE_TYPE), ())
    more = f" or {len(types) - _TYPES} more" if len(types) > _TYPES else ""
    return f"{planned.pool}: {', '.join(types[:_TYPES]) or 'any type'}{more}"


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
