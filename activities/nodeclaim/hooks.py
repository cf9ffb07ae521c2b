"""One hook of a node, until its outcome: a Job that is created once, or a call that is repeated with one key.

A retry of the activity finds the Job by name, and repeats the call with the same key. `tenure/policy/hooks` decides.
"""

import asyncio
from datetime import datetime

from temporalio import activity

from activities.ports.core import HookClient, Jobs, Ports, find_nodeclaim
from activities.runtime import background_heartbeat, map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.base import parse_instance_id, parse_timestamp
from tenure.model.errors import BadInput, Fault
from tenure.model.hooks import (
    HOOK,
    HOOK_NODE,
    HOOK_NODECLAIM,
    HOOK_POINT,
    NAMESPACE,
    DesiredJob,
    HookRequest,
    HookResult,
    JobFact,
)
from tenure.policy.hooks.decision import limit_deadline
from tenure.policy.hooks.messages import evaluate_response, job_environment, request_body, to_label_value

FIRST_POLL_SECONDS = 1.0
MAX_POLL_SECONDS = 5.0
"""Seconds between reads of a Job."""
FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 30.0
"""Seconds between attempts of a call."""
MIN_CALL_SECONDS = 5.0
"""Seconds for a call after its time is over, since each call is made at least once."""
ACCEPTED = 202
"""Status of a response that, with Retry-After, does not count as an attempt."""
DEFAULT_JOB_RETRIES = 6
"""Default retries of a Job's pods, as in Kubernetes."""


class HookActivities:
    def __init__(self, ports: Ports) -> None:
        self._jobs, self._hook_client, self._claims = ports.jobs, ports.hook_client, ports.claims
        self._nodes, self._instances = ports.nodes, ports.instances

    @activity.defn
    @map_faults
    async def run_hook(self, request: HookRequest) -> HookResult:
        """Before a drain, also taint the node and delete its NodeClaim. A cancelled hook returns its number of
        attempts, with which the next activity continues."""
        count = _AttemptCounter(request.attempts)
        try:
            async with background_heartbeat(count.heartbeat_details):
                return await self._run_hook(request, count)
        except asyncio.CancelledError:
            why = activity.cancellation_details()
            if why is None or not why.cancel_requested:
                raise
            return HookResult(attempts=count.begun)

    async def _run_hook(self, request: HookRequest, count: "_AttemptCounter") -> HookResult:
        if request.subject.point == "beforeTerminate" and await self._is_instance_terminated(request):
            return HookResult(outcome="skipped", why="its instance is already gone")
        if request.subject.point == "beforeDrain":
            await self._take_out_of_service(request)
        claim = await find_nodeclaim(self._claims, request.claim.name, request.claim.uid)
        grace = grace_end(claim) if claim and not request.defers_deletion else None
        clock = _Timeout(request, grace)
        if request.hook.job is not None:
            result = await _JobHook(self._jobs, request, clock, count).run()
        else:
            result = await _HttpHook(self._hook_client, request, clock, count).run()
        return result.model_copy(update={"grace_ends": grace})

    async def _is_instance_terminated(self, request: HookRequest) -> bool:
        return await self._instances.get(parse_instance_id(request.claim.provider_id)) is None

    async def _take_out_of_service(self, request: HookRequest) -> None:
        """Delete the NodeClaim, unless deferred, and taint the node, like the start of a drain. Pods of a deleted
        NodeClaim are rescheduled in the meantime."""
        ref = request.claim
        if not request.defers_deletion:
            await self._claims.delete(ref.name, ref.uid)
        node = await self._nodes.get(ref.node_name)
        if node is not None and node.provider_id == ref.provider_id:
            await self._nodes.mark_disrupted(node.name)


def grace_end(claim: NodeClaim) -> datetime | None:
    """The end of the termination grace period, from the annotation or computed; None without an end."""
    meta, grace = claim.metadata, claim.spec.termination_grace_delta
    written = parse_timestamp(meta.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, ""))
    if written is not None or grace is None or meta.deletion_timestamp is None:
        return written
    return meta.deletion_timestamp + grace


class _AttemptCounter:
    """Counts started attempts: calls, or the Job. The heartbeat details keep the count if the worker is killed."""

    def __init__(self, known: int) -> None:
        before = activity.info().heartbeat_details
        self.begun = int(before[0]) if before else known

    def heartbeat_details(self) -> tuple[int, ...]:
        return (self.begun,)

    def begin_attempt(self) -> None:
        self.begun += 1
        activity.heartbeat(self.begun)


class _Timeout:
    """Remaining time of the hook. A retry of the activity has the rest of `request.seconds`, not all of it."""

    def __init__(self, request: HookRequest, grace: datetime | None) -> None:
        now, info = utc_now(), activity.info()
        used = max(0.0, (now - info.scheduled_time).total_seconds()) if info.attempt > 1 else 0.0
        seconds = request.seconds - used
        if grace is not None:
            since = min(request.since or now, now)
            seconds = min(seconds, (limit_deadline(request.subject.point, since, grace) - now).total_seconds())
        self._ends = asyncio.get_running_loop().time() + seconds

    @property
    def remaining(self) -> float:
        return self._ends - asyncio.get_running_loop().time()

    async def sleep(self, pause: float) -> bool:
        """Sleep for at most the remaining time. False if the time was already over."""
        remaining = self.remaining
        await asyncio.sleep(max(0.0, min(pause, remaining)))
        return remaining > 0


class _HttpHook:
    def __init__(self, calls: HookClient, request: HookRequest, clock: _Timeout, count: _AttemptCounter) -> None:
        self._calls, self._request, self._clock, self._count = calls, request, clock, count

    async def run(self) -> HookResult:
        """Repeat the call until it has an outcome, the attempts are used up, or the time is over."""
        pause = FIRST_RETRY_SECONDS
        while True:
            self._count.begin_attempt()
            outcome, why, retry_after = await self._attempt()
            if outcome is not None:
                return outcome.model_copy(update={"why": why})
            if self._is_last():
                return HookResult(outcome="failed", why=f"{why}, after {self._count.begun} attempts")
            rest = pause if retry_after is None else retry_after
            if not await self._clock.sleep(rest) or self._clock.remaining <= 0:
                return HookResult(outcome="timed out", why=why)
            pause = min(MAX_RETRY_SECONDS, pause * 2)

    async def _attempt(self) -> tuple[HookResult | None, str, float | None]:
        """The outcome if there is one, its message, and the seconds of Retry-After."""
        request = self._request
        url = request.hook.http.url if request.hook.http else ""
        try:
            response = await self._calls.post(
                url,
                key=request.key,
                body=request_body(request.subject),
                seconds=max(MIN_CALL_SECONDS, self._clock.remaining),
            )
        except BadInput as fault:
            policy = f"LifecyclePolicy {request.policy}: " if request.policy else ""
            return HookResult(outcome="failed"), f"{policy}{request.field}.http.url: {fault.message}", None
        except Fault as fault:
            return None, fault.message, None
        outcome, why = evaluate_response(response)
        if response.status == ACCEPTED and outcome is None:
            self._count.begun -= 1
        return HookResult(outcome=outcome) if outcome else None, why, response.retry_after

    def _is_last(self) -> bool:
        attempts = self._request.hook.attempts
        return attempts is not None and self._count.begun >= attempts


class _JobHook:
    def __init__(self, jobs: Jobs, request: HookRequest, clock: _Timeout, count: _AttemptCounter) -> None:
        self._jobs, self._request, self._clock, self._count = jobs, request, clock, count
        job = request.hook.job
        self._namespace = (job.namespace if job else None) or NAMESPACE

    async def run(self) -> HookResult:
        pause, why = FIRST_POLL_SECONDS, "it is not over"
        while True:
            try:
                found = await self._find_or_create_job()
            except Fault as fault:
                if not fault.retryable:
                    return HookResult(outcome="failed", why=fault.message)
                found, why = None, fault.message
            else:
                if found is None:
                    return self._failed_result("is gone, and its result is unknown")
                if found.key != self._request.key:
                    return self._failed_result(
                        "exists and was not created for this hook; delete it, or rename the hook"
                    )
                if found.outcome is not None:
                    return HookResult(outcome=found.outcome, why=found.why)
            if not await self._clock.sleep(pause):
                return HookResult(outcome="timed out", why=why)
            pause = min(MAX_POLL_SECONDS, pause * 1.5)

    async def _find_or_create_job(self) -> JobFact | None:
        """The Job; None if it was created before and no longer exists, since it is not created twice."""
        found = await self._jobs.get(self._namespace, self._request.job)
        if found is None and not self._count.begun:
            found = await self._jobs.create(self._build_job())
        if found is not None and not self._count.begun:
            self._count.begin_attempt()
        return found

    def _build_job(self) -> DesiredJob:
        request, subject = self._request, self._request.subject
        attempts = request.hook.attempts
        return DesiredJob(
            namespace=self._namespace,
            name=request.job,
            key=request.key,
            labels={
                HOOK: to_label_value(subject.hook),
                HOOK_POINT: subject.point,
                HOOK_NODE: to_label_value(subject.node),
                HOOK_NODECLAIM: to_label_value(subject.claim),
            },
            env=job_environment(subject),
            template=request.hook.job.template if request.hook.job else {},
            retries=DEFAULT_JOB_RETRIES if attempts is None else attempts - 1,
            seconds=max(1, round(max(MIN_CALL_SECONDS, self._clock.remaining))),
        )

    def _failed_result(self, why: str) -> HookResult:
        return HookResult(outcome="failed", why=f"Job {self._namespace}/{self._request.job} {why}")
