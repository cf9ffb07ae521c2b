"""One hook of a node, until it has an outcome: a Job that is made once, or a call that is repeated under one key.

Killed anywhere, a repeat finds the Job by its name, and calls under the same key. Nothing is decided here that
`tenure/policy/hooks/decision.py` has no word for.

Calls of hooks over HTTP. Satisfies `activities.hook_ports.Calls`.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
from temporalio import activity

from activities.ports.core import Claims, Instances, Nodes, claim_of
from activities.ports.disruption import Calls, HookPorts, Jobs
from activities.runtime import faults_mapped, heartbeating
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.base import instance_id_of, read_moment
from tenure.model.errors import Fault, TryLater
from tenure.model.hooks import (
    HOOK,
    HOOK_NODE,
    HOOK_NODECLAIM,
    HOOK_POINT,
    NAMESPACE,
    CallAnswer,
    HookAnswer,
    HookAsked,
    JobFact,
    JobWanted,
)
from tenure.policy.hooks.decision import within
from tenure.policy.hooks.messages import body, env, judged, label

LOOK_FIRST = 1.0
LOOK_SLOWEST = 5.0
"""Seconds between looks at a Job."""
AGAIN_FIRST = 1.0
AGAIN_SLOWEST = 30.0
"""Seconds between calls that found nobody."""
ONE_TRY = 5.0
"""Seconds for a call that has none left: it is made once, however late it is."""
STILL_AT_IT = 202
"""With Retry-After: an answer that uses up no attempt."""
RETRIES = 6
"""Of a Job's pods, where nothing is said: Kubernetes' own number."""


class HookActivities:
    def __init__(self, ports: HookPorts, *, claims: Claims, nodes: Nodes, instances: Instances) -> None:
        self._ports, self._claims, self._nodes, self._instances = ports, claims, nodes, instances

    @activity.defn
    @faults_mapped
    async def run_hook(self, asked: HookAsked) -> HookAnswer:
        """Its outcome. Before a drain the node takes no pods any more, and its NodeClaim is being deleted. One that is
        stopped answers how far it came: whoever is told anew goes on from there."""
        count = _Count(asked.begun)
        try:
            async with heartbeating(count.told):
                return await self._run(asked, count)
        except asyncio.CancelledError:
            why = activity.cancellation_details()
            if why is None or not why.cancel_requested:
                raise
            return HookAnswer(begun=count.begun)

    async def _run(self, asked: HookAsked, count: "_Count") -> HookAnswer:
        if asked.subject.point == "beforeTerminate" and await self._is_gone(asked):
            return HookAnswer(outcome="skipped", why="its instance is gone already")
        if asked.subject.point == "beforeDrain":
            await self._take_out(asked)
        claim = await claim_of(self._claims, asked.claim.name, asked.claim.uid)
        grace = grace_end(claim) if claim and not asked.keep else None
        clock = _Clock(asked, grace)
        if asked.hook.job is not None:
            answer = await _Job(self._ports.jobs, asked, clock, count).run()
        else:
            answer = await _Call(self._ports.calls, asked, clock, count).run()
        return answer.model_copy(update={"grace_ends": grace})

    async def _is_gone(self, asked: HookAsked) -> bool:
        return await self._instances.get(instance_id_of(asked.claim.provider_id)) is None

    async def _take_out(self, asked: HookAsked) -> None:
        """As the drain does it first; a NodeClaim that is deleted has its pods planned anew meanwhile."""
        ref = asked.claim
        if not asked.keep:
            await self._claims.delete(ref.name, ref.uid)
        node = await self._nodes.get(ref.node_name)
        if node is not None and node.provider_id == ref.provider_id:
            await self._nodes.mark_disrupted(node.name)


def grace_end(claim: NodeClaim) -> datetime | None:
    """The end of the termination grace period, as it is written or will be; None where nothing ends it."""
    meta, grace = claim.metadata, claim.spec.termination_grace_delta
    written = read_moment(meta.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, ""))
    if written is not None or grace is None or meta.deletion_timestamp is None:
        return written
    return meta.deletion_timestamp + grace


class _Count:
    """What was begun, and is known after a kill, or where it is told anew: calls, or the one Job."""

    def __init__(self, known: int) -> None:
        before = activity.info().heartbeat_details
        self.begun = int(before[0]) if before else known

    def told(self) -> tuple[int, ...]:
        return (self.begun,)

    def begin(self) -> None:
        self.begun += 1
        activity.heartbeat(self.begun)


class _Clock:
    """Time that is left, by the seconds that the workflow gave; a try after a kill has what that left."""

    def __init__(self, asked: HookAsked, grace: datetime | None) -> None:
        now, info = datetime.now(UTC), activity.info()
        used = max(0.0, (now - info.scheduled_time).total_seconds()) if info.attempt > 1 else 0.0
        seconds = asked.seconds - used
        if grace is not None:
            since = min(asked.since or now, now)
            seconds = min(seconds, (within(asked.subject.point, since, grace) - now).total_seconds())
        self._ends = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        return self._ends - asyncio.get_running_loop().time()

    async def rest(self, pause: float) -> bool:
        """False where the time is over, at once or meanwhile."""
        left = self.left
        await asyncio.sleep(max(0.0, min(pause, left)))
        return left > 0


class _Call:
    def __init__(self, calls: Calls, asked: HookAsked, clock: _Clock, count: _Count) -> None:
        self._calls, self._asked, self._clock, self._count = calls, asked, clock, count

    async def run(self) -> HookAnswer:
        """Until it is answered for good, the attempts are used up, or the time is over."""
        pause = AGAIN_FIRST
        while True:
            self._count.begin()
            outcome, why, wanted = await self._try()
            if outcome is not None:
                return outcome.model_copy(update={"why": why})
            if self._is_last():
                return HookAnswer(outcome="failed", why=f"{why}, after {self._count.begun} attempts")
            rest = pause if wanted is None else wanted
            if not await self._clock.rest(rest) or self._clock.left <= 0:
                return HookAnswer(outcome="timed out", why=why)
            pause = min(AGAIN_SLOWEST, pause * 2)

    async def _try(self) -> tuple[HookAnswer | None, str, float | None]:
        """An outcome, why, and how soon the service wants to be asked again."""
        asked = self._asked
        url = asked.hook.http.url if asked.hook.http else ""
        try:
            answer = await self._calls.post(
                url, key=asked.key, body=body(asked.subject), seconds=max(ONE_TRY, self._clock.left)
            )
        except Fault as fault:
            return None, fault.message, None
        outcome, why = judged(answer)
        if answer.status == STILL_AT_IT and outcome is None:
            self._count.begun -= 1
        return HookAnswer(outcome=outcome) if outcome else None, why, answer.retry_after

    def _is_last(self) -> bool:
        attempts = self._asked.hook.attempts
        return attempts is not None and self._count.begun >= attempts


class _Job:
    def __init__(self, jobs: Jobs, asked: HookAsked, clock: _Clock, count: _Count) -> None:
        self._jobs, self._asked, self._clock, self._count = jobs, asked, clock, count
        said = asked.hook.job
        self._namespace = (said.namespace if said else None) or NAMESPACE

    async def run(self) -> HookAnswer:
        pause, why = LOOK_FIRST, "it is not over"
        while True:
            try:
                found = await self._find()
            except Fault as fault:
                if not fault.retryable:
                    return HookAnswer(outcome="failed", why=fault.message)
                found, why = None, fault.message
            else:
                if found is None:
                    return self._failed("is gone, and nobody saw how it ended")
                if found.key != self._asked.key:
                    return self._failed("is there already and belongs to somebody else; delete it, or rename the hook")
                if found.outcome is not None:
                    return HookAnswer(outcome=found.outcome, why=found.why)
            if not await self._clock.rest(pause):
                return HookAnswer(outcome="timed out", why=why)
            pause = min(LOOK_SLOWEST, pause * 1.5)

    async def _find(self) -> JobFact | None:
        """None for one that was made, and is there no more: it is not made again."""
        found = await self._jobs.get(self._namespace, self._asked.job)
        if found is None and not self._count.begun:
            found = await self._jobs.create(self._wanted())
        if found is not None and not self._count.begun:
            self._count.begin()
        return found

    def _wanted(self) -> JobWanted:
        asked, about = self._asked, self._asked.subject
        attempts = asked.hook.attempts
        return JobWanted(
            namespace=self._namespace,
            name=asked.job,
            key=asked.key,
            labels={
                HOOK: label(about.hook),
                HOOK_POINT: about.point,
                HOOK_NODE: label(about.node),
                HOOK_NODECLAIM: label(about.claim),
            },
            env=env(about),
            template=asked.hook.job.template if asked.hook.job else {},
            retries=RETRIES if attempts is None else attempts - 1,
            seconds=max(1, round(max(ONE_TRY, self._clock.left))),
        )

    def _failed(self, why: str) -> HookAnswer:
        return HookAnswer(outcome="failed", why=f"Job {self._namespace}/{self._asked.job} {why}")


KEY: Final = "Idempotency-Key"
CONNECT: Final = 10.0
"""Seconds for a connection; the answer may take as long as the hook."""
_SAID: Final = 150
"""Characters of an answer that are shown, ..."""
_READ: Final = 1024
"""... and bytes of it that are read."""


class HttpCalls:
    """A session for each call: they are few, and far between."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallAnswer:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT, seconds))
        headers = {KEY: key, "User-Agent": "tenure"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.post(url, json=body, allow_redirects=False) as response,
            ):
                said = await response.content.read(_READ)
                return CallAnswer(
                    status=response.status,
                    text=" ".join(said.decode(errors="replace").split())[:_SAID],
                    retry_after=_seconds(response.headers.get("Retry-After")),
                )
        except TimeoutError as error:
            raise TryLater(f"no answer within {seconds:.0f} s") from error
        except (aiohttp.ClientError, ValueError, OSError, asyncio.IncompleteReadError) as error:
            raise TryLater(f"no answer: {str(error) or type(error).__name__}"[:_SAID]) from error


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
