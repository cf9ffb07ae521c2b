"""Taking a cluster over from Karpenter, and handing it back: a few steps, each safe to repeat.

`adopt.py` checks and asks before. Whatever step a run was killed in, the next run finds what was done and goes on:
how many replicas there were stands on the Deployments, a pause ends by itself, and everything else is looked at anew.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.cli.adopt.preview import Place
from tenure.cli.disruption.pause import myself
from tenure.cli.exit_codes import Failed
from tenure.cli.nodes.workflows import Lives, NodeLife
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.workloads import Deployed, KubeDeployments
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import NAMESPACES, NODE_CLAIMS
from tenure.kube.facts.objects import claim_fact, is_ours
from tenure.model.errors import Fault, TryLater
from tenure.model.facts import ClaimFact
from tenure.model.nodeclaim_state import ENDING, Phase
from tenure.model.signals import Pause
from tenure.policy.lifecycle.adoption import decide_first_phase, decide_taken_over
from tenure.policy.lifecycle.pauses import found_in, write_pause
from tenure.settings import Settings
from workflows import ids

LOOK_EVERY: Final = 1.0
"""Seconds."""
REPLICAS: Final = 2
"""Of either Deployment where nobody wrote down how many there were: both charts' default."""
REASON: Final = "tenure adopt"
_LONGER: Final = timedelta(minutes=10)
"""Than a run may take: then the pause is over by itself."""
_NAMED: Final = 3


@dataclass(frozen=True)
class Handed:
    """What came of it."""

    message: str
    claims: int = 0
    left: tuple[str, ...] = field(default=())
    """What goes on under the other controller, in words."""


class Handover:
    """`temporal` is None where it does not answer, which keeps nobody from going back. `say` is told of each step."""

    def __init__(
        self,
        *,
        cluster: KubeAdapters,
        temporal: Client | None,
        settings: Settings,
        karpenter: Place,
        tenure: Place,
        say: Callable[[str], None],
        deadline: float,
        settle: float,
    ) -> None:
        """`deadline` for all that is waited for together, and `settle`: seconds."""
        self._cluster, self._temporal, self._settings, self._say = cluster, temporal, settings, say
        self._karpenter, self._tenure, self._settle = karpenter, tenure, settle
        self._deployments = KubeDeployments(cluster.client)
        self._claims = Objects(cluster.client, NODE_CLAIMS)
        self._ends = time.monotonic() + deadline
        self._paused_until = datetime.now(UTC) + timedelta(seconds=deadline) + _LONGER

    async def take(self) -> Handed:
        """Karpenter stops, a worker takes its NodeClaims over, and nothing is disrupted until that is looked at.

        Raises `Failed`, which says what to do."""
        await self._pause()
        if await self._deployments.stop(self._karpenter.namespace, self._karpenter.name):
            self._say(f"Deployment {self._karpenter.path} is scaled to zero")
        await self._until(self._led, f"see what runs it: kubectl -n {self._karpenter.namespace} get pods")
        self._say("nobody renews Karpenter's lease")
        standing = await self._standing()
        if await self._deployments.start(self._tenure.namespace, self._tenure.name, otherwise=REPLICAS):
            self._say(f"Deployment {self._tenure.path} runs")
        else:
            self._say(f"there is no Deployment {self._tenure.path}: start the worker, `tenure worker`")
        await self._until(self._unwatched, "see the worker's log and /readyz, and `tenure doctor`")
        self._say("a worker watches")
        await self._until(lambda: self._not_in_hand(standing), "see `tenure why NODECLAIM`")
        self._say(f"{len(standing)} NodeClaims have their workflows")
        await self._until(lambda: self._unstamped(standing), "see the status of their NodePool and EC2NodeClass")
        await asyncio.sleep(self._settle)
        await self._compare(standing)
        await self._lift()
        return Handed(
            f"Tenure has taken over {len(standing)} NodeClaims: none drifted, none was replaced", len(standing)
        )

    async def back(self) -> Handed:
        """Tenure begins nothing new, ends what it can in time, and stops; Karpenter starts. Raises `Failed`."""
        if await self._runs():
            await self._pause()
        left = await self._finished()
        if await self._deployments.stop(self._tenure.namespace, self._tenure.name):
            self._say(f"Deployment {self._tenure.path} is scaled to zero")
        else:
            self._say(f"there is no Deployment {self._tenure.path}: stop the workers")
        await self._until(self._watched, f"see what runs: kubectl -n {self._tenure.namespace} get pods")
        self._say("no worker watches")
        await self._lift()
        if await self._deployments.start(self._karpenter.namespace, self._karpenter.name, otherwise=REPLICAS):
            self._say(f"Deployment {self._karpenter.path} runs")
        todo = f"see its pods: kubectl -n {self._karpenter.namespace} logs deployment/{self._karpenter.name}"
        await self._until(self._unled, todo)
        claims = await self._standing()
        return Handed(f"Karpenter leads again, over {len(claims)} NodeClaims", len(claims), tuple(left))

    # --- what is waited for: why it is not so yet, or nothing ---

    async def _led(self) -> str:
        name = self._settings.leader_election_name
        holder = await self._cluster.leases.holder("", name, now=datetime.now(UTC))
        return f"{holder} still renews the lease {name}" if holder else ""

    async def _unled(self) -> str:
        led = await self._led()
        return "" if led else f"nobody renews the lease {self._settings.leader_election_name} yet"

    async def _unwatched(self) -> str:
        return "" if await self._hosts() else "no worker watches yet"

    async def _watched(self) -> str:
        hosts = await self._hosts()
        found = await self._ours()
        if found is not None and found.running:
            return f"{found.running} pods of Deployment {found.path} still run"
        return f"{', '.join(hosts)} still watches" if hosts else ""

    async def _not_in_hand(self, standing: Mapping[str, ClaimFact]) -> str:
        lives = await self._lives()
        now = {one.uid: one for one in (await self._standing()).values()}
        waiting = []
        for uid, claim in standing.items():
            if uid not in now:
                continue
            life = lives.get(ids.nodeclaim(self._settings.cluster_name, claim.name, uid))
            expected = decide_first_phase(claim)
            if life is None:
                waiting.append(f"{claim.name} has no workflow")
            elif not _has_it(life, expected) and not now[uid].deleting:
                waiting.append(f"the workflow of {claim.name} is in {life.phase or 'no phase'}, not in {expected}")
        return _few(waiting)

    async def _unstamped(self, standing: Mapping[str, ClaimFact]) -> str:
        """Stamps of Karpenter's hash are compared with nothing: before they are ours no look at drift says much."""
        found = [one for one in (await self._standing()).values() if one.uid in standing and not one.deleting]
        return _few(f"{one.name} bears a stamp of Karpenter's" for one in found if _is_theirs(one))

    async def _compare(self, before: Mapping[str, ClaimFact]) -> None:
        """Raises `Failed` where a node drifted or went that a person, its owner or AWS did not end."""
        now = await self._standing()
        drifted = [one.name for uid, one in now.items() if one.drifted and uid in before and not before[uid].drifted]
        gone = [one.name for uid, one in before.items() if _stays(one) and (uid not in now or now[uid].deleting)]
        if not drifted and not gone:
            return
        said = [f"drifted: {', '.join(drifted)}"] if drifted else []
        said += [f"going or gone: {', '.join(gone)}"] if gone else []
        raise Failed(
            f"adopt: {'; '.join(said)}. Voluntary disruption is paused until {self._paused_until:%H:%M UTC}: "
            "`tenure why NAME` says why; `tenure pause --cluster` holds it longer, `tenure adopt --back` hands back"
        )

    async def _finished(self) -> list[str]:
        """Waits for what Tenure has begun; what is not done in time is said, and is the other's to go on with."""
        ends, said = self._ends - (self._ends - time.monotonic()) / 2, False
        while left := await self._under_way():
            if time.monotonic() > ends or not await self._hosts():
                for one in left:
                    self._say(one)
                return left
            if not said:
                self._say(f"{len(left)} nodes are being launched or drained: waiting")
                said = True
            await asyncio.sleep(LOOK_EVERY)
        return []

    async def _under_way(self) -> list[str]:
        phases = {one.name: one.phase for one in (await self._lives()).values()}
        found = []
        for claim in (await self._standing()).values():
            if claim.deleting:
                found.append(f"{claim.name} is being deleted: Karpenter goes on with it")
            elif not claim.provider_id:
                found.append(f"{claim.name} has no instance yet: Karpenter launches it, and ends what nobody claims")
            elif phases.get(claim.name) in ENDING:
                found.append(f"{claim.name} is being drained: Karpenter puts it back into service and decides anew")
        return found

    # --- looking and writing ---

    async def _standing(self) -> dict[str, ClaimFact]:
        """NodeClaims by UID; those of other providers are nobody's here."""
        found = (claim_fact(one) for one in await self._claims.list() if is_ours(one["spec"]["nodeClassRef"]))
        return {one.uid: one for one in found}

    async def _lives(self) -> dict[str, NodeLife]:
        if self._temporal is None:
            return {}
        try:
            found = await Lives(self._temporal, self._settings.cluster_name).running()
        except RPCError as error:
            raise TryLater(f"Temporal does not list workflows: {error.message}") from error
        return {one.workflow_id: one for one in found}

    async def _hosts(self) -> list[str]:
        """Who hosts the watch at this moment."""
        if self._temporal is None:
            return []
        handle = self._temporal.get_workflow_handle(ids.watch(self._settings.cluster_name))
        try:
            pending = (await handle.describe()).raw_description.pending_activities
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return []
            raise TryLater(f"Temporal does not answer: {error.message}") from error
        started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        return [one.last_worker_identity for one in pending if one.state == started]

    async def _runs(self) -> bool:
        found = await self._ours()
        return bool(await self._hosts()) or (found is not None and found.replicas > 0)

    async def _ours(self) -> Deployed | None:
        return await self._deployments.get(self._tenure.namespace, self._tenure.name)

    async def _pause(self) -> None:
        """Of the whole cluster, by the annotation, which counts with no Temporal at hand. One of somebody else stays
        as it is."""
        name = self._settings.system_namespace
        namespace = await self._cluster.client.get(NAMESPACES.path(name))
        if namespace is None:
            self._say(f"SYSTEM_NAMESPACE={name} is not there: voluntary disruption is not paused meanwhile")
            return
        held = found_in((namespace["metadata"].get("annotations") or {}).get(labels.PAUSE, ""))
        if held is not None and held.until > datetime.now(UTC) and held.reason != REASON:
            self._say(f"the cluster is paused already, by {held.by}: {held.reason}")
            return
        pause = Pause(by=myself(), reason=REASON, until=self._paused_until)
        await self._cluster.namespaces.annotate(name, {labels.PAUSE: write_pause(pause)})
        self._say(f"voluntary disruption is paused until {self._paused_until:%H:%M UTC} at the latest")

    async def _lift(self) -> None:
        """Our own, maybe of a run before this one."""
        name = self._settings.system_namespace
        namespace = await self._cluster.client.get(NAMESPACES.path(name))
        text = ((namespace or {"metadata": {}})["metadata"].get("annotations") or {}).get(labels.PAUSE, "")
        held = found_in(text)
        if held is not None and held.reason == REASON:
            await self._cluster.namespaces.annotate(name, {labels.PAUSE: None}, only={labels.PAUSE: text})
            self._say("the pause is lifted")

    async def _until(self, why_not: Callable[[], Awaitable[str]], todo: str) -> None:
        """Raises `Failed` at the deadline; a fault on the way is a reason to wait."""
        while True:
            try:
                why = await why_not()
            except Fault as fault:
                why = fault.message
            if not why:
                return
            if time.monotonic() > self._ends:
                again = "Then run the same again, which goes on from here, or go back the other way (--back)"
                raise Failed(f"adopt: the time is over: {why}. To do: {todo}. {again}")
            await asyncio.sleep(LOOK_EVERY)


def _has_it(life: NodeLife, expected: Phase) -> bool:
    return life.phase in list(Phase) and decide_taken_over(expected, Phase(life.phase))


def _stays(claim: ClaimFact) -> bool:
    """It had a machine, and its time was not over."""
    lasts = claim.expire_after_seconds
    expired = lasts is not None and claim.created + timedelta(seconds=lasts) < datetime.now(UTC)
    return bool(claim.provider_id) and not claim.deleting and not expired


def _is_theirs(claim: ClaimFact) -> bool:
    keys = [labels.NODEPOOL_HASH_VERSION] + ([labels.NODECLASS_HASH_VERSION] if claim.provider_id else [])
    return any(claim.annotations.get(key, HASH_VERSION) != HASH_VERSION for key in keys)


def _few(words: Iterable[str]) -> str:
    found = list(words)
    return "; ".join(found[:_NAMED]) + (f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
