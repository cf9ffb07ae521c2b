"""Permits for voluntary disruption: the NodePool workflow grants, renews, releases and revokes them.

A permit is a lease, so an unused permit expires. `tenure/policy/disruption/permits.py` decides which requests are
granted, and when the budgets are read again. An activity reads the remaining budgets, windows and rates from live
objects: after a new request, after the watch reports possible headroom, and at the polling times.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

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
from workflows.activity_options import PATCH, try_signal, with_summary
from workflows.disruption.cluster_budget import NO_RESPONSE, BudgetPollSchedule, ClusterPermitReservations
from workflows.rollout import RolloutController


def build_allowed_disruptions_request(
    state: NodePoolState, reason: DisruptionReason, reserved_uids: tuple[str, ...]
) -> AllowedDisruptionsRequest:
    """`reserved_uids`: UIDs of NodeClaims for which other NodePools have granted or reserved permits."""
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
    """UIDs of the NodeClaims whose own workflow, not a command, requests a permit."""
    cluster = state.cluster
    return {
        one.claim_uid
        for one in state.pending_requests
        if one.workflow_id == ids.nodeclaim(cluster, one.claim_name, one.claim_uid)
    }


LEASE = timedelta(minutes=2)
"""A permit expires after this time, unless its NodeClaim is being deleted and therefore counts against the budget. The
permit of a command counts until the command can no longer begin."""
BATCH_WINDOW = timedelta(milliseconds=200)
"""Time to collect the requests of nodes that become empty together."""
READ_TIMEOUT = timedelta(minutes=1)
"""Time limit of a read of the budget, since replicas and rollouts wait for it."""
RESERVATION_TTL = timedelta(minutes=2)
"""Lifetime of a reservation during the decision. A decision after half of this time grants nothing, since another
NodePool may get the reservation before the response arrives."""


class DisruptionPermits:
    """`state` and `update_state` are of the NodePool. `blocked` returns the cause that blocks it, and its end."""

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
        """By reason, from the last poll."""
        self._blocked_by: dict[str, str] = {}
        """Why each request was rejected, by request key, from the last poll."""
        self._awaits_reservation = False
        """A request waits for the end of another NodePool's reservation, or for a response of the Cluster workflow."""
        self._pending_responses: list[tuple[PermitRequest, PermitResult]] = []
        self._revocations: list[tuple[Permit, str]] = []

    # --- signal handlers ---

    def request_permit(self, request: PermitRequest) -> None:
        """Replace an earlier request of the same workflow. A holder of the permit renews its lease."""
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
        """The request is already pending, and its requester was notified of the cause."""
        key, state = request_key(request), self._state()
        waits = any(request_key(one) == key and one.reason == request.reason for one in state.pending_requests)
        return waits and key in state.rejected and key in self._blocked_by

    def release_permit(self, release: PermitRelease) -> None:
        """Remove the permit and the request, so that the next request can use the budget immediately."""
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
        """Record the reservations of other NodePools."""
        self._reservations.on_response(response)

    def revoke(self, why: str, claim_uid: str = "") -> int:
        """Revoke all permits, or those of one NodeClaim. Returns their number."""
        revoked = [one for one in self._state().permits if claim_uid in ("", one.claim_uid)]
        # A command may be tainting its nodes now. It releases its permits after it has rolled back.
        self._update_state(
            permits=tuple(one for one in self._state().permits if one not in revoked or one.begins_within)
        )
        self._revocations += [(one, why) for one in revoked]
        return len(revoked)

    def reevaluate(self, *, renotify: bool = False) -> None:
        """Decide the requests again after a change. `renotify`: send the current cause to all pending requests."""
        self._has_changed = True
        if renotify:
            self._update_state(rejected=())

    # --- due times ---

    @property
    def has_work(self) -> bool:
        """A change without a pending request does not wake the workflow."""
        waited_for = self._has_changed and bool(self._state().pending_requests)
        return (
            bool(self._pending_responses) or waited_for or self._reservations.differs_from(self._desired_reservations())
        )

    @property
    def next_poll_at(self) -> datetime | None:
        """When the budgets are read again; None without a pending request."""
        return self._poll_schedule.next_at if self._state().pending_requests else None

    def _is_poll_due(self) -> bool:
        is_time = self._poll_schedule.next_at is None or workflow.now() >= self._poll_schedule.next_at
        return bool(self._state().pending_requests) and (self._has_changed or is_time)

    # --- processing ---

    async def process_requests(self) -> None:
        """Send due responses, and decide pending requests."""
        await self._send_pending_responses()
        if self._is_poll_due():
            await self._decide_requests()
        await self._reservations.sync(self._desired_reservations())

    async def send_remaining(self) -> None:
        """Before the run continues as new, send responses and revocations, which only this run knows."""
        while self._pending_responses or self._revocations:
            await self._send_pending_responses()
            await workflow.wait_condition(lambda: not self._revocations)

    async def _send_pending_responses(self) -> None:
        responses, self._pending_responses = self._pending_responses, []
        await asyncio.gather(*(self._send_response(request, response) for request, response in responses))

    async def send_revocations(self) -> None:
        """Until the run ends, signal the holders of revoked permits. A closed workflow needs no signal."""
        while True:
            await workflow.wait_condition(lambda: bool(self._revocations))
            revoked = [*self._revocations]
            await asyncio.gather(*(self._send_revocation(permit, why) for permit, why in revoked))
            del self._revocations[: len(revoked)]

    async def _send_revocation(self, permit: Permit, why: str) -> None:
        if permit.workflow_id:
            revoked = PermitRevoked(claim_uid=permit.claim_uid, why=why)
            await try_signal(permit.workflow_id, "permit_revoked", revoked)

    async def _decide_requests(self) -> None:
        """Read the remaining budgets, and decide all requests, oldest first."""
        await workflow.sleep(BATCH_WINDOW, summary="gather permit requests")
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
        """Decide by the remaining budgets.

        `reserved_uids`: NodeClaims of other NodePools with permits or reservations; None if unknown. `only`: the
        requests to decide, by key.
        """
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
        """Reserve for the requests that would be granted, and decide again: another NodePool may have been first."""
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
        """Apply the decision to the state. Returns the responses to send; the same cause is sent once."""
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
        """Whether the cause differs from the last one sent. Changed counts are not a new cause."""
        reported_cause = self._state().causes.get(key)
        return reported_cause is not None and reported_cause != stable_cause(why)

    def _shares_limits(self) -> bool:
        rules = self._state().observed.rules
        return rules is not None and rules.cluster_nodes is not None

    def _desired_reservations(self) -> dict[str, datetime]:
        """Deadline by UID of the reservations that this NodePool needs in the ledger of the Cluster workflow."""
        return {one.claim_uid: one.counts_until for one in self._state().permits} if self._shares_limits() else {}

    async def _read_allowed_disruptions(
        self, reason: DisruptionReason, reserved_uids: tuple[str, ...] | None
    ) -> AllowedDisruptions:
        state = self._state()
        if reserved_uids is None:
            return AllowedDisruptions(allowed=0, read=False, why=NO_RESPONSE)
        request = build_allowed_disruptions_request(state, reason, reserved_uids)
        options = {**with_summary(PATCH, "read the budget"), "schedule_to_close_timeout": READ_TIMEOUT}
        try:
            return await workflow.execute_activity_method(
                AllowedDisruptionsActivities.read_allowed_disruptions, request, **options
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
        """The permit of a closed workflow, which cannot receive the response, is released."""
        if not await try_signal(request.workflow_id, "permit_decided", response):
            self.release_permit(PermitRelease(claim_uid=request.claim_uid, workflow_id=request.workflow_id))


def _is_same_holder(claim_uid: str, workflow_id: str, uid: str, who: str) -> bool:
    return claim_uid == uid and (not who or workflow_id in ("", who))
