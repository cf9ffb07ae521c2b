"""Permits for voluntary disruption: how the NodePool workflow hands them out, takes them back and calls them back.

A permit is a lease that lapses: a node that never uses it frees it by time. `tenure/policy/disruption/permits.py`
decides; what is left of budgets, windows and rates is read from live objects whenever somebody wishes for something,
whenever the watch tells that they may have room, and at the times of `tenure/policy/disruption/permits.py`.

What a NodePool with wishes asks of its budgets: for whom, and what it knows that live objects do not show.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.nodepool.allowed_disruptions import AllowedDisruptionsActivities
from tenure.model.disruption.commands import PermitRevoked
from tenure.model.disruption.permits import AllowedDisruptionsRequest, ReservationResult
from tenure.model.signals import DisruptionReason, PermitRelease, PermitRequest, PermitResult
from tenure.model.workflow_states import NodePoolState, Permit
from tenure.policy.disruption.budgets import AllowedDisruptions
from tenure.policy.disruption.limits import longest_rate
from tenure.policy.disruption.permits import (
    PermitDecisions,
    decide_permits,
    is_granted_to,
    new_permit,
    request_key,
    stable_cause,
    update_record,
)
from workflows import ids
from workflows.activity_options import PATCH, with_summary
from workflows.disruption.cluster_budget import NO_RESPONSE, BudgetPollSchedule, ClusterPermitReservations
from workflows.rollout import RolloutController


def build_allowed_disruptions_request(
    state: NodePoolState, reason: DisruptionReason, reserved_uids: tuple[str, ...]
) -> AllowedDisruptionsRequest:
    """`reserved_uids`: UIDs of what other NodePools have permits for."""
    requested_uids, permitted_uids = (
        {one.claim_uid for one in state.pending_requests},
        {one.claim_uid for one in state.permits},
    )
    return AllowedDisruptionsRequest(
        name=state.name,
        reason=reason,
        rules=state.observed.rules,
        unread=state.observed.unread,
        past=state.past,
        permits=state.permits,
        candidates=tuple(sorted(requested_uids | permitted_uids)),
        requesting=tuple(sorted(_uids_without_command(state) - permitted_uids)),
        reserved_uids=reserved_uids,
    )


def _uids_without_command(state: NodePoolState) -> set[str]:
    """UIDs of the NodeClaims whose own workflows wish, not those of commands."""
    cluster = state.cluster
    return {
        one.claim_uid
        for one in state.pending_requests
        if one.workflow_id == ids.nodeclaim(cluster, one.claim_name, one.claim_uid)
    }


LEASE = timedelta(minutes=2)
"""A permit lapses after this long, unless its NodeClaim is being deleted by then and so counts by itself. That of a
command counts until it cannot have begun any more."""
BATCH_WINDOW = timedelta(milliseconds=200)
"""Nodes that empty together are answered together."""
RESERVATION_TTL = timedelta(minutes=2)
"""So long a place is kept while it is decided whether it is needed. Half of it is for the decision: a later one is
none, since another NodePool may have the place by the time that is told."""


class DisruptionPermits:
    """`state` and `update_state` are the NodePool's; `blocked`: why no node may be disrupted, and for how long."""

    def __init__(
        self,
        state: Callable[[], NodePoolState],
        update_state: Callable[..., None],
        blocked: Callable[[], tuple[str, datetime | None]],
        rollouts: RolloutController,
    ) -> None:
        self._state, self._update_state, self._blocked = state, update_state, blocked
        self._rollouts = rollouts
        self._reservations = ClusterPermitReservations(state().name, ids.cluster(state().cluster))
        self._has_changed = bool(state().pending_requests)
        self._poll_schedule = BudgetPollSchedule()
        self._allowed_disruptions: dict[str, AllowedDisruptions] = {}
        """By reason, as the last look found it."""
        self._blocked_by: dict[str, str] = {}
        """What wishes wait for, likewise."""
        self._awaits_reservation = False
        """Some wait for others' places in the book, or for an answer about them."""
        self._pending_responses: list[tuple[PermitRequest, PermitResult]] = []
        self._revocations: list[tuple[Permit, str]] = []

    # --- what is heard ---

    def request_permit(self, request: PermitRequest) -> None:
        """A wish takes the place of an earlier one of the same workflow; one that has the permit keeps it longer."""
        now = workflow.now()
        permit = next((one for one in self._state().permits if is_granted_to(one, request) and one.until > now), None)
        if permit is not None:
            self._renew_lease(permit, request, now + LEASE)
            return
        key = request_key(request)
        if self._is_already_reported(request):
            rejection = PermitResult(
                granted=False, claim_uid=request.claim_uid, reason=request.reason, blocked_by=self._blocked_by[key]
            )
            self._pending_responses.append((request, rejection))
            return
        others = tuple(one for one in self._state().pending_requests if request_key(one) != key)
        rejected = tuple(one for one in self._state().rejected if one not in (key, request.claim_uid))
        self._update_state(pending_requests=(*others, request), rejected=rejected)
        self._has_changed = True

    def _is_already_reported(self, request: PermitRequest) -> bool:
        """It waits already, and what it waits for was told."""
        key, state = request_key(request), self._state()
        waits = any(request_key(one) == key and one.reason == request.reason for one in state.pending_requests)
        return waits and key in state.rejected and key in self._blocked_by

    def release_permit(self, release: PermitRelease) -> None:
        """A permit given back is for the next in line at once."""
        uid, who = release.claim_uid, release.workflow_id
        state = self._state()
        remaining = tuple(one for one in state.permits if not _is_same_holder(one.claim_uid, one.workflow_id, uid, who))
        if release.used:
            used = [one for one in state.permits if one not in remaining]
            since = workflow.now() - longest_rate(state.observed.rules, state.observed.unread)
            self._update_state(past=update_record(state.past, used, state.name, since))
        pending_requests = tuple(
            one
            for one in self._state().pending_requests
            if not _is_same_holder(one.claim_uid, one.workflow_id, uid, who)
        )
        self._has_changed = self._has_changed or remaining != self._state().permits
        self._update_state(pending_requests=pending_requests, permits=remaining)

    def on_reservation_response(self, response: ReservationResult) -> None:
        """Where other NodePools were before this one."""
        self._reservations.on_response(response)

    def revoke(self, why: str, claim_uid: str = "") -> int:
        """Call permits back: all of them, or those for one NodeClaim. How many."""
        revoked = [one for one in self._state().permits if claim_uid in ("", one.claim_uid)]
        # A command may be taking its nodes out of service just now: it gives permits back once it has put them back.
        self._update_state(
            permits=tuple(one for one in self._state().permits if one not in revoked or one.begins_within)
        )
        self._revocations += [(one, why) for one in revoked]
        return len(revoked)

    def reevaluate(self, *, renotify: bool = False) -> None:
        """Something changed that wishes depend on. `renotify`: those who wait are told what they wait for now."""
        self._has_changed = True
        if renotify:
            self._update_state(rejected=())

    # --- when something is due ---

    @property
    def has_work(self) -> bool:
        """A change that nobody wishes anything of is no reason to wake."""
        waited_for = self._has_changed and bool(self._state().pending_requests)
        return (
            bool(self._pending_responses) or waited_for or self._reservations.differs_from(self._desired_reservations())
        )

    @property
    def next_poll_at(self) -> datetime | None:
        """When the budget is due for another look; None while nobody waits for it."""
        return self._poll_schedule.next_at if self._state().pending_requests else None

    @property
    def is_revoking(self) -> bool:
        """Permits are being called back: no moment to roll over."""
        return bool(self._revocations)

    def _is_poll_due(self) -> bool:
        is_time = self._poll_schedule.next_at is None or workflow.now() >= self._poll_schedule.next_at
        return bool(self._state().pending_requests) and (self._has_changed or is_time)

    # --- what is done ---

    async def process_requests(self) -> None:
        """Answer what can be answered."""
        responses, self._pending_responses = self._pending_responses, []
        await asyncio.gather(*(self._send_response(request, response) for request, response in responses))
        if self._is_poll_due():
            await self._decide_requests()
        await self._reservations.sync(self._desired_reservations())

    async def send_revocations(self) -> None:
        """For as long as the run lasts: tell those whose permits were called back. A workflow that is over needs no
        telling."""
        while True:
            await workflow.wait_condition(lambda: bool(self._revocations))
            revoked = [*self._revocations]
            await asyncio.gather(*(self._send_revocation(permit, why) for permit, why in revoked))
            del self._revocations[: len(revoked)]

    async def _send_revocation(self, permit: Permit, why: str) -> None:
        if permit.workflow_id:
            holder = workflow.get_external_workflow_handle(permit.workflow_id)
            with suppress(ApplicationError):
                await holder.signal("permit_revoked", PermitRevoked(claim_uid=permit.claim_uid, why=why))

    async def _decide_requests(self) -> None:
        """Read what is left now, and answer every wish, oldest first."""
        await workflow.sleep(BATCH_WINDOW, summary="gather wishes")
        self._poll_schedule.start_poll(has_changed=self._has_changed)
        self._has_changed, self._awaits_reservation, self._allowed_disruptions = False, False, {}
        decision = await self._evaluate()
        if decision.granted and self._shares_limits():
            decision = await self._evaluate_with_reservations(decision)
        responses = self._apply_decision(decision, workflow.now())
        state, reserved_until = self._state(), self._reservations.next_expiry if self._awaits_reservation else None
        self._poll_schedule.finish_poll(
            self._allowed_disruptions,
            state.permits,
            self._blocked(),
            has_pending=bool(state.pending_requests),
            is_transient=self._awaits_reservation,
            reserved_until=reserved_until,
        )
        await asyncio.gather(*(self._send_response(one, response) for one, response in responses))

    async def _evaluate(
        self, reserved_uids: tuple[str, ...] | None = (), only: Mapping[str, PermitRequest] | None = None
    ) -> PermitDecisions:
        """By what is left now. `reserved_uids`: what other NodePools have, None when that is not known; `only`: these
        wishes, by key."""
        requests = [one for one in self._state().pending_requests if only is None or request_key(one) in only]
        reasons: set[DisruptionReason] = {one.reason for one in requests} or {"Empty"}
        allowed_disruptions: dict[str, AllowedDisruptions] = {
            reason: await self._read_allowed_disruptions(reason, reserved_uids) for reason in sorted(reasons)
        }
        blocked_by, _ = self._blocked()
        if "Drifted" in allowed_disruptions:
            allowed_disruptions["Drifted"] = await self._rollouts.limit_allowed_disruptions(
                allowed_disruptions["Drifted"], blocked_by=blocked_by
            )
            current_blocked_by, _ = self._blocked()
            blocked_by = current_blocked_by
        self._allowed_disruptions |= allowed_disruptions
        now, state = workflow.now(), self._state()
        pending_requests = [one for one in state.pending_requests if only is None or request_key(one) in only]
        return decide_permits(
            state.name, pending_requests, state.permits, allowed_disruptions, now, blocked_by=blocked_by
        )

    async def _evaluate_with_reservations(self, first: PermitDecisions) -> PermitDecisions:
        """Again, once places are booked for those that would be granted: another NodePool may have been before."""
        granted_requests = {request_key(one): one for one in first.granted}
        reserved_until = workflow.now() + RESERVATION_TTL
        others = await self._reservations.reserve(
            {**dict.fromkeys((one.claim_uid for one in first.granted), reserved_until), **self._desired_reservations()}
        )
        second = await self._evaluate(others, granted_requests)
        if workflow.now() >= reserved_until - RESERVATION_TTL / 2:
            second = replace(second, granted=(), waiting=(*second.granted, *second.waiting))
        self._awaits_reservation = bool(second.waiting)
        remaining = (one for one in self._state().pending_requests if request_key(one) not in granted_requests)
        return replace(second, waiting=(*second.waiting, *remaining), why={**first.why, **second.why})

    def _apply_decision(self, decision: PermitDecisions, now: datetime) -> list[tuple[PermitRequest, PermitResult]]:
        """Take the decision into the state; who is to be told. What makes one wait is told once."""
        state, until = self._state(), now + LEASE
        granted_uids = {one.claim_uid for one in decision.granted}
        self._rollouts.record_granted(one.claim_uid for one in decision.granted if one.reason == "Drifted")
        responses = [
            (one, PermitResult(granted=True, claim_uid=one.claim_uid, reason=one.reason, until=until))
            for one in decision.granted
        ]
        evaluated = [one for one in decision.waiting if request_key(one) in decision.why]
        for one in evaluated:
            why = decision.why[request_key(one)]
            if not {request_key(one), one.claim_uid} & {*state.rejected} or self._has_new_cause(request_key(one), why):
                rejection = PermitResult(granted=False, claim_uid=one.claim_uid, reason=one.reason, blocked_by=why)
                responses.append((one, rejection))
        self._blocked_by = {request_key(one): decision.why[request_key(one)] for one in evaluated}
        since = now - longest_rate(state.observed.rules, state.observed.unread)
        self._update_state(
            permits=(
                *(one for one in decision.active if one.claim_uid not in granted_uids),
                *(new_permit(one, now, until) for one in decision.granted),
            ),
            past=update_record(state.past, decision.deleted, state.name, since),
            pending_requests=decision.waiting,
            rejected=tuple(request_key(one) for one in evaluated),
            causes={request_key(one): stable_cause(decision.why[request_key(one)]) for one in evaluated},
            blocked_by=decision.why[request_key(evaluated[0])] if evaluated else "",
        )
        return responses

    def _has_new_cause(self, key: str, why: str) -> bool:
        """What it waits for is not what it was told: that is told again, where counts alone are not."""
        reported_cause = self._state().causes.get(key)
        return reported_cause is not None and reported_cause != stable_cause(why)

    def _shares_limits(self) -> bool:
        rules = self._state().observed.rules
        return rules is not None and rules.cluster_nodes is not None

    def _desired_reservations(self) -> dict[str, datetime]:
        """What this NodePool is to have in the book that all share."""
        return {one.claim_uid: one.counts_until for one in self._state().permits} if self._shares_limits() else {}

    async def _read_allowed_disruptions(
        self, reason: DisruptionReason, reserved_uids: tuple[str, ...] | None
    ) -> AllowedDisruptions:
        state = self._state()
        if reserved_uids is None:
            return AllowedDisruptions(allowed=0, read=False, why=NO_RESPONSE)
        request = build_allowed_disruptions_request(state, reason, reserved_uids)
        try:
            return await workflow.execute_activity_method(
                AllowedDisruptionsActivities.read_allowed_disruptions, request, **with_summary(PATCH, "read the budget")
            )
        except ActivityError as error:
            return AllowedDisruptions(
                allowed=0, read=False, why=f"the budget could not be read: {error.cause or error}"
            )

    def _renew_lease(self, permit: Permit, request: PermitRequest, until: datetime) -> None:
        permits = self._state().permits
        self._update_state(
            permits=tuple(one.model_copy(update={"until": until}) if one is permit else one for one in permits)
        )
        response = PermitResult(granted=True, claim_uid=request.claim_uid, reason=request.reason, until=until)
        self._pending_responses.append((request, response))

    async def _send_response(self, request: PermitRequest, response: PermitResult) -> None:
        """A node that is gone needs no answer; its lease lapses."""
        try:
            await workflow.get_external_workflow_handle(request.workflow_id).signal("permit_decided", response)
        except ApplicationError:
            self.release_permit(PermitRelease(claim_uid=request.claim_uid, workflow_id=request.workflow_id))


def _is_same_holder(claim_uid: str, workflow_id: str, uid: str, who: str) -> bool:
    return claim_uid == uid and (not who or workflow_id in ("", who))
