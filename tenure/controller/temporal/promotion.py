"""Promotes a build of the worker to the current one, after a canary and a ramp, or rolls back to another build.

Temporal holds the progress, so a promotion that was killed continues when it is repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecution, WorkflowFailureError, WorkflowHandle
from temporalio.common import PinnedVersioningOverride, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from tenure.clock import utc_now
from tenure.controller.temporal.worker_versioning import (
    Builds,
    deployment_version,
    is_newer,
    read_builds,
    set_current_build,
    set_ramping_build,
    takes_over,
)
from workflows import ids

_POLL_SECONDS: Final = 2.0
_MAX_FAILING: Final = 20
"""Workflows with failed tasks that are described in each poll."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class PromotionFailed(Exception):
    """The build is not the current one, and gets no tasks."""


class PromotionDeferred(Exception):
    """Another controller leads in the cluster, so the workers wait. The first of them makes the build current."""


@dataclass(frozen=True)
class PromotionSettings:
    timeout: timedelta = timedelta(minutes=10)
    """How long to wait for workers of the build."""
    canary_timeout: timedelta = timedelta(seconds=30)
    ramp_percentage: float = 10.0
    ramp_duration: timedelta = timedelta(minutes=1)
    """Temporal reports a workflow with failing tasks after 20 s."""
    allows_older: bool = False


async def _find_none() -> str:
    return ""


class Promotion:
    """`report` receives each step. `find_other_controller` returns the holder of Karpenter's lease; empty if none."""

    def __init__(
        self,
        temporal: Client,
        cluster: str,
        build: str,
        settings: PromotionSettings,
        report: Callable[[str], None],
        find_other_controller: Callable[[], Awaitable[str]] = _find_none,
    ) -> None:
        self._temporal, self._cluster, self._build, self._settings = temporal, cluster, build, settings
        self._report, self._find_other_controller = report, find_other_controller
        self._reported = ""

    async def promote(self) -> None:
        """Raises `PromotionFailed`, `PromotionDeferred` and RPCError. There is no ramp without workers of the current
        build."""
        builds = await self._wait_for_workers()
        if builds.current == self._build:
            return
        for queue in (ids.task_queue(self._cluster), ids.coordinator_queue(self._cluster)):
            await self._run_canary(queue)
        if builds.current in builds.workers and self._settings.ramp_percentage and self._settings.ramp_duration:
            await self._ramp()
        await set_current_build(self._temporal, self._cluster, self._build, await self._read())

    async def _wait_for_workers(self) -> Builds:
        deadline = utc_now() + self._settings.timeout
        while True:
            try:
                builds = await self._read()
                reason = self._describe_wait(builds)
                if reason and takes_over(self._build, builds) and (holder := await self._find_other_controller()):
                    raise PromotionDeferred(
                        f"{holder} leads in the cluster, so no worker runs build {self._build} yet. "
                        "The first one makes it current."
                    )
            except RPCError as error:
                reason = f"Temporal does not respond: {error.message}"
            if not reason:
                return builds
            if utc_now() > deadline:
                raise PromotionFailed(reason)
            self._report_once(reason)
            await asyncio.sleep(_POLL_SECONDS)

    def _describe_wait(self, builds: Builds) -> str:
        build, current = self._build, builds.current
        if build == current:
            return ""
        if is_newer(current, build) and not self._settings.allows_older:
            return f"build {build} is older than {current}, the current one; to use it, run `tenure build rollback`"
        return "" if build in builds.workers else f"no worker runs build {build} yet"

    async def _run_canary(self, task_queue: str) -> None:
        self._report_once(f"a canary workflow runs on build {self._build}")
        deadline = utc_now() + self._settings.canary_timeout
        while True:
            try:
                handle = await self._start_canary(task_queue)
                break
            except RPCError as error:
                if error.status is not RPCStatusCode.FAILED_PRECONDITION or utc_now() > deadline:
                    raise
                await asyncio.sleep(_POLL_SECONDS / 4)  # Its task queue does not know the build yet.
        try:
            await handle.result()
        except WorkflowFailureError as failure:
            reason = await _read_task_failure(handle) or f"no worker completed it in time ({failure.cause})"
            raise PromotionFailed(f"the canary workflow failed on build {self._build}: {reason}") from failure

    async def _start_canary(self, task_queue: str) -> WorkflowHandle[Any, Any]:
        return await self._temporal.start_workflow(
            "Canary",
            id=ids.canary(self._cluster, self._build),
            task_queue=task_queue,
            execution_timeout=self._settings.canary_timeout,
            id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
            versioning_override=PinnedVersioningOverride(deployment_version(self._cluster, self._build)),
        )

    async def _ramp(self) -> None:
        """Route a share of the workflows to the build, and back if their tasks fail there."""
        builds = await self._read()
        if builds.ramping != self._build:
            await set_ramping_build(self._temporal, self._cluster, self._build, self._settings.ramp_percentage, builds)
            builds = await self._read()
        current, ends = builds.current, (builds.ramp_started or utc_now()) + self._settings.ramp_duration
        self._report_once(
            f"build {self._build} gets {builds.ramp_percentage:g} % of the workflows until {ends:%H:%M:%S}Z"
        )
        while utc_now() < ends and current in builds.workers:
            await asyncio.sleep(_POLL_SECONDS)
            builds = await self._read()
            if (builds.ramping, builds.current) != (self._build, current):
                raise PromotionFailed("another command or process ended the ramp")
            failing = [f"no worker runs build {self._build}"] if self._build not in builds.workers else []
            failing += await self._list_failing()
            if failing:
                await set_ramping_build(self._temporal, self._cluster, "", 0, builds)
                raise PromotionFailed(f"the ramp ended, and {current} stays current: {'; '.join(failing)}")

    async def _list_failing(self) -> list[str]:
        """Workflows whose tasks fail on this build. Empty if the server does not report problems."""
        query = (
            "TemporalReportedProblems IN ('category=WorkflowTaskFailed', 'category=WorkflowTaskTimedOut') AND "
            f"ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{self._cluster}/'"
        )
        try:
            reported = [one async for one in self._temporal.list_workflows(query, limit=_MAX_FAILING)]
        except RPCError as error:
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                return []
            raise
        return [f"tasks of {one.id} fail" for one in reported if await self._is_on_build(one)]

    async def _is_on_build(self, execution: WorkflowExecution) -> bool:
        handle = self._temporal.get_workflow_handle(execution.id, run_id=execution.run_id)
        info = (await handle.describe()).raw_description.workflow_execution_info.versioning_info
        versions = (info.version_transition.deployment_version, info.deployment_version)
        return next((one.build_id for one in versions if one.build_id), "") == self._build

    async def _read(self) -> Builds:
        return await read_builds(self._temporal, self._cluster)

    def _report_once(self, step: str) -> None:
        if step != self._reported:
            self._report(step)
        self._reported = step


async def _read_task_failure(handle: WorkflowHandle[Any, Any]) -> str:
    events = (await handle.fetch_history()).events
    failed = [one for one in events if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    return failed[-1].workflow_task_failed_event_attributes.failure.message if failed else ""


def find_rollback_target(builds: Builds) -> str:
    """The build with workers that became current last, except the current one; empty if there is none."""
    others = [one for one in builds.workers if one != builds.current]
    return max(others, key=lambda one: (builds.became_current.get(one, _LONG_AGO), one), default="")
