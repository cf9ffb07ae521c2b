"""The launch groups of Provisioning, which run concurrently: each from its draft to instances or to a rejection.

A request is recorded in the history before EC2 is called. Members without an instance stay in the group for another
attempt with its own token: immediately if other offerings remain, otherwise after a pause.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from math import ceil
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclaim.launch import LaunchActivities
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import (
    DELETED,
    JOINED_PREFIX,
    GroupOutcome,
    LaunchGroup,
    LaunchGroupMember,
    LaunchRejection,
    LaunchRequest,
    PreparedLaunchRequest,
    latest_unavailable_offerings,
)
from tenure.model.nodeclaim.requests import GroupLaunchRequest, GroupRejection, NodeClaimRef, PreparationResult
from tenure.model.observations import LaunchGroupJoinRequest
from tenure.model.plan import LaunchDraft
from tenure.model.workflow_states import ProvisioningState
from tenure.tracing import workflow_spans
from workflows.activity_options import CREATE_FLEET, PATCH, PREPARE, launch_options, with_summary

MAX_ATTEMPTS = 10
"""Consecutive attempts without a pause. Each excludes the offerings that were unavailable before."""
JOIN_WINDOW = timedelta(seconds=1)
"""Idle time after which NodeClaims that no plan created launch together; at least the idle time of a batch of pods."""
MAX_GROUP_SIZE = 500
MAX_FAILURES = 20
"""They take about a quarter of an hour. NodeClaims reach their launch deadline long before."""
PAUSE = timedelta(seconds=5)
"""After the first failure. It doubles, so that a second failure blocks the members within ten seconds."""
MAX_PAUSE = timedelta(seconds=60)
_NODECLAIM_DELETED = "NodeClaimGone"
_RETRIED_AT_ONCE = "LaunchTemplateNotFound"


class LaunchGroups:
    """`state` and `update_state` are of Provisioning, whose state has each group until its end."""

    def __init__(self, state: Callable[[], ProvisioningState], update_state: Callable[..., None]) -> None:
        self._state, self._update_state = state, update_state
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def has_running_groups(self) -> bool:
        return bool(self._tasks)

    def resume(self) -> None:
        """At the start of a run, repeat the pending requests with the same tokens."""
        if self._state().joining:
            self._start_task(self._batch_joining())
        for group in self._state().groups:
            self._start_task(self._resume_group(group))
        for draft in self._state().drafts:
            self._start_task(self._run_group(draft, draft))

    def start_group(self, draft: LaunchDraft) -> None:
        self._update_state(drafts=(*self._state().drafts, draft))
        self._start_task(self._run_group(draft, draft))

    def add_joining(self, one: LaunchGroupJoinRequest) -> None:
        """Add a NodeClaim that no plan created, or whose plan left it out. A repeated signal is ignored, and one for a
        plan whose groups are not known yet."""
        state = self._state()
        is_plan_pending = state.plan_id != "" and one.group_id.startswith(f"{state.plan_id}-")
        if is_plan_pending or one.uid in self._known_uids():
            return
        self._update_state(joining=(*state.joining, one))
        if not state.joining:
            self._start_task(self._batch_joining())

    def _known_uids(self) -> set[str]:
        """UIDs of all NodeClaims that are in a group or joining one."""
        state = self._state()
        groups: tuple[LaunchDraft | LaunchGroup, ...] = (*state.drafts, *state.groups)
        return {one.uid for one in state.joining} | {member.uid for group in groups for member in group.members}

    async def _batch_joining(self) -> None:
        """Wait until no NodeClaim has joined for one pause, or for the longest time of a batch, counted in pauses. Then
        start the groups."""
        known, window = -1, self._state().window
        pause = max(window.idle, JOIN_WINDOW)
        for _ in range(max(1, ceil(window.longest / pause))):
            if len(self._state().joining) <= known:
                break
            known = len(self._state().joining)
            await workflow.sleep(pause, summary="collect NodeClaims without a launch group")
        joining = self._state().joining
        self._update_state(joining=())
        by_equality: dict[str, list[LaunchGroupJoinRequest]] = {}
        for one in sorted(joining, key=lambda one: one.uid):
            by_equality.setdefault(f"{one.pool}/{one.launch_hash}", []).append(one)
        batch = workflow.uuid4().hex[:8]
        chunks = [
            ones[at : at + MAX_GROUP_SIZE]
            for ones in by_equality.values()
            for at in range(0, len(ones), MAX_GROUP_SIZE)
        ]
        for number, ones in enumerate(chunks):
            self.start_group(
                LaunchDraft(
                    group_id=f"{JOINED_PREFIX}{batch}-{number}",
                    pool=ones[0].pool,
                    node_class=ones[0].node_class,
                    members=tuple(LaunchGroupMember(name=one.name, uid=one.uid) for one in ones),
                    joined=True,
                )
            )

    async def _resume_group(self, group: LaunchGroup) -> None:
        await self._run_group(group, await self._launch_group(group, resumed=True))

    async def _run_group(self, started: LaunchDraft | LaunchGroup, draft: LaunchDraft | None) -> None:
        started_at = workflow.now()
        while draft is not None:
            group = await self._prepare_group(draft)
            draft = await self._launch_group(group) if group else None
        workflow_spans.record_group(started, started_at)

    async def _prepare_group(self, draft: LaunchDraft) -> LaunchGroup | None:
        """Build the request of a draft, which determines the token; None if the launch failed or is not needed."""
        while True:
            request = GroupLaunchRequest(
                draft=draft,
                unavailable=self._unavailable_offerings(),
                retry=draft.attempt > 1 or draft.failures > 0,
                discovered=self._discovered_capacity(draft.node_class),
            )
            try:
                prepared = await workflow.execute_activity_method(
                    LaunchActivities.prepare_launch_group,
                    request,
                    **with_summary(PREPARE, f"prepare {_format_group(draft)}"),
                )
            except ActivityError as error:
                prepared = PreparationResult(preparation=_launch_failure(error))
            if prepared.members is not None:
                await self._dismiss_members(draft, [one for one in draft.members if one not in prepared.members])
                draft = draft.model_copy(update={"members": prepared.members})
            match prepared.preparation:
                case PreparedLaunchRequest(request=launch_request):
                    return self._store_group(draft, launch_request)
                case LaunchRejection() as rejection:
                    next_draft = _draft_after_failure(draft, rejection)
                    if next_draft is None:
                        await self._fail_group(draft, rejection)
                        return None
                    draft = await self._wait_before_retry(next_draft)
                case None:
                    return None

    def _store_group(self, draft: LaunchDraft, request: LaunchRequest) -> LaunchGroup:
        group = LaunchGroup(
            group_id=draft.group_id,
            attempt=draft.attempt,
            pool=draft.pool,
            members=draft.members,
            request=request,
            failures=draft.failures,
        )
        self._update_state(drafts=self._drafts_without(draft), groups=(*self._state().groups, group))
        return group

    async def _launch_group(self, group: LaunchGroup, *, resumed: bool = False) -> LaunchDraft | None:
        """Launch, and return the draft of the next attempt for members without an instance; None if the group ends."""
        summary = f"CreateFleet {_format_group(group)}: {len(group.members)} x {group.pool}"
        queue = launch_options(self._state().cluster, group.pool, len(group.members))
        call_fields = {"discovered": self._discovered_capacity(group.request.node_class), "resumed": resumed}
        request = group.model_copy(update=call_fields)
        try:
            outcome = await workflow.execute_activity_method(
                LaunchActivities.launch_group, request, **with_summary(CREATE_FLEET, summary), **queue
            )
        except ActivityError as error:
            outcome = GroupOutcome(group_id=group.group_id, rejected=group.members, rejection=_launch_failure(error))
        unavailable_offerings = latest_unavailable_offerings(
            (*self._state().unavailable, *outcome.unavailable), workflow.now()
        )
        rejection, draft = outcome.rejection, _next_attempt_draft(group, outcome)
        groups = tuple(one for one in self._state().groups if one.group_id != group.group_id)
        if rejection is None or not outcome.rejected:
            self._update_state(groups=groups, unavailable=unavailable_offerings)
            return None
        self._update_state(groups=groups, unavailable=unavailable_offerings, drafts=(*self._state().drafts, draft))
        has_other_offerings = rejection.final and bool(outcome.unavailable) and group.attempt < MAX_ATTEMPTS
        if has_other_offerings:
            return draft
        next_draft = _draft_after_failure(draft, rejection)
        if next_draft is None:
            await self._fail_group(draft, rejection)
            return None
        return await self._wait_before_retry(next_draft)

    async def _wait_before_retry(self, draft: LaunchDraft) -> LaunchDraft:
        """Store the draft and pause. A run that continues as new does not wait for the rest of the pause."""
        self._update_state(drafts=(*self._drafts_without(draft), draft))
        if pause := _retry_pause(draft):
            await workflow.sleep(pause, summary=f"{_format_group(draft)}: {draft.why}"[:100])
        return draft

    async def _dismiss_members(self, draft: LaunchDraft, members: Sequence[LaunchGroupMember]) -> None:
        """Notify deleted members and members with an instance: they wait for the group's result."""
        if members:
            dismissed = draft.model_copy(update={"members": tuple(members)})
            await self._notify_members(
                dismissed, LaunchRejection(reason=DELETED, message="it was deleted before its launch")
            )

    async def _fail_group(self, draft: LaunchDraft, rejection: LaunchRejection) -> None:
        """Notify the members of the final rejection, unless all their NodeClaims are deleted."""
        if rejection.reason != _NODECLAIM_DELETED:
            await self._notify_members(draft, rejection)
        self._update_state(drafts=self._drafts_without(draft))

    async def _notify_members(self, draft: LaunchDraft, rejection: LaunchRejection) -> None:
        request = GroupRejection(
            group_id=draft.group_id,
            members=tuple(NodeClaimRef(name=one.name, uid=one.uid) for one in draft.members),
            reason=rejection.reason,
            message=rejection.message,
            final=rejection.final,
        )
        await workflow.execute_activity_method(
            LaunchActivities.fail_launch_group,
            request,
            **with_summary(PATCH, f"reject {_format_group(draft)}: {rejection.reason}"),
        )

    def _unavailable_offerings(self) -> tuple[UnavailableOffering, ...]:
        return latest_unavailable_offerings(self._state().unavailable, workflow.now())

    def _discovered_capacity(self, node_class: str) -> DiscoveredCapacity:
        return self._state().discovered_capacity.for_node_class(node_class)

    def _drafts_without(self, draft: LaunchDraft) -> tuple[LaunchDraft, ...]:
        return tuple(one for one in self._state().drafts if one.group_id != draft.group_id)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _next_attempt_draft(group: LaunchGroup, outcome: GroupOutcome) -> LaunchDraft:
    return LaunchDraft(
        group_id=group.group_id,
        pool=group.pool,
        node_class=group.request.node_class,
        members=outcome.rejected,
        attempt=group.attempt + 1,
        failures=group.failures,
        why=_format_rejection(outcome.rejection) if outcome.rejection else "",
    )


def _draft_after_failure(draft: LaunchDraft, rejection: LaunchRejection) -> LaunchDraft | None:
    """The draft after one more failure; None if there is no further attempt."""
    if rejection.final or draft.failures >= MAX_FAILURES:
        return None
    return draft.model_copy(update={"failures": draft.failures + 1, "why": _format_rejection(rejection)})


def _format_rejection(rejection: LaunchRejection) -> str:
    return rejection.describe()[:200]


def _retry_pause(draft: LaunchDraft) -> timedelta:
    """Pause before the next attempt; zero after a first missing launch template, which the attempt recreates."""
    if draft.why.startswith(_RETRIED_AT_ONCE) and draft.failures == 1:
        return timedelta(0)
    return min(MAX_PAUSE, PAUSE * (1 << min(draft.failures, 5) - 1))


def _format_group(one: LaunchDraft | LaunchGroup) -> str:
    return one.group_id if one.attempt == 1 else f"{one.group_id} (attempt {one.attempt})"


def _launch_failure(error: ActivityError) -> LaunchRejection:
    """Not final: the failure is not caused by the members and may be temporary. A final rejection would only reschedule
    their pods immediately."""
    return LaunchRejection(reason="LaunchFailed", message=str(error.cause or error), final=False)
