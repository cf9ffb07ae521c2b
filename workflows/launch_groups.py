"""The launch groups of Provisioning: each from its draft to instances or to a last word, beside all others.

A request is frozen in the history before EC2 hears of it. Members that get nothing stay in the group for another
attempt, with a token of its own: at once where other offerings are left, after a pause where something else is wrong.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from math import ceil
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclaim.launch import LaunchActivities
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import (
    DELETED,
    GroupOutcome,
    LaunchGroup,
    LaunchPrepared,
    LaunchRefused,
    LaunchRequest,
    Member,
    latest,
)
from tenure.model.nodeclaim_requests import ClaimRef, GroupAsked, GroupRefused, Prepared
from tenure.model.observations import Joining
from tenure.model.provisioning import LaunchDraft
from tenure.model.workflow_states import ProvisioningState
from workflows.activity_options import CREATE_FLEET, PATCH, PREPARE, launch_options, named

MOST_ATTEMPTS = 10
"""Each leaves out what the ones before were refused."""
GATHER = timedelta(seconds=1)
"""No further NodeClaim that no plan made came for so long, or for as long as a batch of pods is waited for: those that
did launch."""
MOST_IN_GROUP = 500
MOST_FAILURES = 20
"""About a quarter of an hour; NodeClaims are given up at their launch deadline long before."""
PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(seconds=60)
_GONE = "NodeClaimGone"
_AT_ONCE = "LaunchTemplateNotFound"


class LaunchGroups:
    """`state` and `change` are Provisioning's: a group stands in its state until it is over."""

    def __init__(self, state: Callable[[], ProvisioningState], change: Callable[..., None]) -> None:
        self._state, self._change = state, change
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def resume(self) -> None:
        """At the beginning of a run: what was asked is asked again with the same token."""
        if self._state().joining:
            self._start(self._gather())
        for group in self._state().groups:
            self._start(self._from(group))
        for draft in self._state().drafts:
            self._start(self._run(draft))

    def begin(self, draft: LaunchDraft) -> None:
        self._change(drafts=(*self._state().drafts, draft))
        self._start(self._run(draft))

    def join(self, one: Joining) -> None:
        """A NodeClaim that no plan made; a repeated word of it is dropped."""
        state = self._state()
        if one.uid in self._known():
            return
        self._change(joining=(*state.joining, one))
        if not state.joining:
            self._start(self._gather())

    def _known(self) -> set[str]:
        """UIDs of those that are in a group, or on their way into one."""
        state = self._state()
        groups: tuple[LaunchDraft | LaunchGroup, ...] = (*state.drafts, *state.groups)
        return {one.uid for one in state.joining} | {member.uid for group in groups for member in group.members}

    async def _gather(self) -> None:
        """Until none came for a moment, or the longest time that a batch may take is over, counted in moments."""
        known, window = -1, self._state().window
        pause = max(window.idle, GATHER)
        for _ in range(max(1, ceil(window.longest / pause))):
            if len(self._state().joining) <= known:
                break
            known = len(self._state().joining)
            await workflow.sleep(pause, summary="NodeClaims that no plan made")
        joining = self._state().joining
        self._change(joining=())
        alike: dict[str, list[Joining]] = {}
        for one in sorted(joining, key=lambda one: one.uid):
            alike.setdefault(f"{one.pool}/{one.alike}", []).append(one)
        batch = workflow.uuid4().hex[:8]
        chunks = [ones[at : at + MOST_IN_GROUP] for ones in alike.values() for at in range(0, len(ones), MOST_IN_GROUP)]
        for number, ones in enumerate(chunks):
            self.begin(
                LaunchDraft(
                    group_id=f"joined-{batch}-{number}",
                    pool=ones[0].pool,
                    node_class=ones[0].node_class,
                    members=tuple(Member(name=one.name, uid=one.uid) for one in ones),
                    joined=True,
                )
            )

    async def _run(self, draft: LaunchDraft | None) -> None:
        while draft is not None:
            group = await self._freeze(draft)
            draft = await self._launch(group) if group else None

    async def _from(self, group: LaunchGroup) -> None:
        await self._run(await self._launch(group))

    async def _freeze(self, draft: LaunchDraft) -> LaunchGroup | None:
        """From a draft to a group with a frozen request and so a token; None when it was refused for good."""
        while True:
            asked = GroupAsked(draft=draft, unavailable=self._marks(), again=_tried(draft))
            try:
                prepared = await workflow.execute_activity_method(
                    LaunchActivities.prepare_group, asked, **named(PREPARE, f"prepare {_called(draft)}")
                )
            except ActivityError as error:
                prepared = Prepared(preparation=_failed(error))
            if prepared.members is not None:
                await self._leave(draft, [one for one in draft.members if one not in prepared.members])
                draft = draft.model_copy(update={"members": prepared.members})
            match prepared.preparation:
                case LaunchPrepared(request=request):
                    return self._frozen(draft, request)
                case LaunchRefused() as refused:
                    following = _after(draft, refused)
                    if following is None:
                        await self._refuse(draft, refused)
                        return None
                    draft = await self._pause(following)
                case None:
                    return None

    def _frozen(self, draft: LaunchDraft, request: LaunchRequest) -> LaunchGroup:
        group = LaunchGroup(
            group_id=draft.group_id,
            attempt=draft.attempt,
            pool=draft.pool,
            members=draft.members,
            request=request,
            failures=draft.failures,
        )
        self._change(drafts=self._without(draft), groups=(*self._state().groups, group))
        return group

    async def _launch(self, group: LaunchGroup) -> LaunchDraft | None:
        """The draft of the next attempt, for those that got nothing; None when the group is over."""
        summary = f"CreateFleet {_called(group)}: {len(group.members)} x {group.pool}"
        queue = launch_options(self._state().cluster, group.pool, len(group.members))
        try:
            outcome = await workflow.execute_activity_method(
                LaunchActivities.launch_group, group, **named(CREATE_FLEET, summary), **queue
            )
        except ActivityError as error:
            outcome = GroupOutcome(group_id=group.group_id, refused=group.members, refusal=_failed(error))
        learnt = latest((*self._state().unavailable, *outcome.unavailable), workflow.now())
        refused, draft = outcome.refusal, _draft_of(group, outcome)
        groups = tuple(one for one in self._state().groups if one.group_id != group.group_id)
        if refused is None or not outcome.refused:
            self._change(groups=groups, unavailable=learnt)
            return None
        self._change(groups=groups, unavailable=learnt, drafts=(*self._state().drafts, draft))
        elsewhere = refused.final and bool(outcome.unavailable) and group.attempt < MOST_ATTEMPTS
        if elsewhere:
            return draft
        following = _after(draft, refused)
        if following is None:
            await self._refuse(draft, refused)
            return None
        return await self._pause(following)

    async def _pause(self, draft: LaunchDraft) -> LaunchDraft:
        """The draft stands in the state meanwhile; a run that continues as new does not wait out the rest."""
        self._change(drafts=(*self._without(draft), draft))
        if pause := _pause_of(draft):
            await workflow.sleep(pause, summary=f"{_called(draft)}: {draft.why}"[:100])
        return draft

    async def _leave(self, draft: LaunchDraft, members: Sequence[Member]) -> None:
        """Those that go, or have an instance, are told: they wait for the group's word, whatever else they hear."""
        if members:
            left = draft.model_copy(update={"members": tuple(members)})
            await self._tell(left, LaunchRefused(reason=DELETED, message="it was deleted before its launch"))

    async def _refuse(self, draft: LaunchDraft, refused: LaunchRefused) -> None:
        """The last word to the members; nothing is said where none is left."""
        if refused.reason != _GONE:
            await self._tell(draft, refused)
        self._change(drafts=self._without(draft))

    async def _tell(self, draft: LaunchDraft, refused: LaunchRefused) -> None:
        told = GroupRefused(
            group_id=draft.group_id,
            members=tuple(ClaimRef(name=one.name, uid=one.uid) for one in draft.members),
            reason=refused.reason,
            message=refused.message,
            final=refused.final,
        )
        await workflow.execute_activity_method(
            LaunchActivities.refuse_group, told, **named(PATCH, f"refuse {_called(draft)}: {refused.reason}")
        )

    def _marks(self) -> tuple[UnavailableOffering, ...]:
        return latest(self._state().unavailable, workflow.now())

    def _without(self, draft: LaunchDraft) -> tuple[LaunchDraft, ...]:
        return tuple(one for one in self._state().drafts if one.group_id != draft.group_id)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _draft_of(group: LaunchGroup, outcome: GroupOutcome) -> LaunchDraft:
    return LaunchDraft(
        group_id=group.group_id,
        pool=group.pool,
        node_class=group.request.node_class,
        members=outcome.refused,
        attempt=group.attempt + 1,
        failures=group.failures,
        why=_said(outcome.refusal) if outcome.refusal else "",
    )


def _after(draft: LaunchDraft, refused: LaunchRefused) -> LaunchDraft | None:
    """The draft after one more failure; None where no further attempt helps."""
    if refused.final or draft.failures >= MOST_FAILURES:
        return None
    return draft.model_copy(update={"failures": draft.failures + 1, "why": _said(refused)})


def _said(refused: LaunchRefused) -> str:
    return f"{refused.reason}: {refused.message}"[:200]


def _pause_of(draft: LaunchDraft) -> timedelta:
    """Before the next attempt. What a new attempt makes again itself is not waited for."""
    if draft.why.startswith(_AT_ONCE) and draft.failures == 1:
        return timedelta(0)
    return min(LONGEST_PAUSE, PAUSE * (1 << max(0, min(draft.failures, 5) - 2)))


def _tried(draft: LaunchDraft) -> bool:
    return draft.attempt > 1 or draft.failures > 0


def _called(one: LaunchDraft | LaunchGroup) -> str:
    return one.group_id if one.attempt == 1 else f"{one.group_id} (attempt {one.attempt})"


def _failed(error: ActivityError) -> LaunchRefused:
    """Not the members' fault and perhaps mended soon: to give them up would only have them planned again at once."""
    return LaunchRefused(reason="LaunchFailed", message=str(error.cause or error), final=False)
