"""Reservations of one NodePool in the permit ledger of the Cluster workflow, and the schedule of its budget polls.

Only a NodePool whose LifecyclePolicy sets `disruption.clusterNodes` sends reservations. It reserves first and then
reads the cluster, so that of two NodePools the second sees the reservation of the first.
`tenure/policy/disruption/permits.py` decides when a NodePool with pending requests reads its budgets again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow

from tenure.model.disruption.permits import ReservationRequest, ReservationResult
from tenure.model.workflow_states import Permit
from tenure.policy.disruption.budgets import AllowedDisruptions
from tenure.policy.disruption.permits import CHECK_INTERVAL, is_fixed, next_check_at
from workflows.activity_options import try_signal

RESPONSE_TIMEOUT: Final = timedelta(seconds=20)
NO_RESPONSE: Final = "the Cluster workflow, which keeps the permits that clusterNodes limits, does not respond"


class ClusterPermitReservations:
    """`cluster`: ID of the Cluster workflow."""

    def __init__(self, pool: str, cluster: str) -> None:
        self._pool, self._cluster = pool, cluster
        self._sent: Mapping[str, datetime] = {}
        self._response = ReservationResult()

    def on_response(self, response: ReservationResult) -> None:
        self._response = response

    @property
    def next_expiry(self) -> datetime | None:
        """When the first reservation of another NodePool expires, by the last response."""
        return self._response.until

    def differs_from(self, desired: Mapping[str, datetime]) -> bool:
        """The ledger has reservations of this NodePool that differ from the desired ones."""
        return bool(self._sent) and self._sent != desired

    async def reserve(self, desired: Mapping[str, datetime]) -> tuple[str, ...] | None:
        """Replace the reservations. Returns the UIDs that other NodePools have reserved; None without a response."""
        token = str(workflow.uuid4())
        if not await self._send(desired, token):
            return None
        try:
            await workflow.wait_condition(
                lambda: self._response.token == token, timeout=RESPONSE_TIMEOUT, timeout_summary="permit reservations"
            )
        except TimeoutError:
            return None
        return self._response.others

    async def sync(self, desired: Mapping[str, datetime]) -> None:
        """Replace the reservations if they differ. If the Cluster workflow does not receive the signal, they expire."""
        if self.differs_from(desired):
            await self._send(desired, "")

    async def _send(self, desired: Mapping[str, datetime], token: str) -> bool:
        self._sent = dict(desired)
        request = ReservationRequest(
            pool=self._pool, workflow_id=workflow.info().workflow_id, desired=dict(desired), token=token
        )
        return await try_signal(self._cluster, "reserve_cluster_permit", request)


class BudgetPollSchedule:
    def __init__(self) -> None:
        self._polls_since_change = 0
        """Includes the first poll after the change."""
        self._started_at: datetime | None = None
        self.next_at: datetime | None = None
        """When the next poll is due; None before the first."""

    def start_poll(self, *, has_changed: bool) -> None:
        """`has_changed`: since the last poll."""
        self._polls_since_change = 1 if has_changed else self._polls_since_change + 1
        self._started_at = workflow.now()

    def finish_poll(
        self,
        allowed_disruptions: Mapping[str, AllowedDisruptions],
        permits: Sequence[Permit],
        blocked: tuple[str, datetime | None],
        *,
        has_pending: bool,
        is_transient: bool,
        reserved_until: datetime | None,
    ) -> None:
        """Compute `next_at`.

        `blocked`: the cause that blocks all requests, and its end. `has_pending`: requests are pending. `is_transient`:
        they wait for a condition that ends within minutes without a signal. `reserved_until`: when the first
        reservation of another NodePool expires.
        """
        now = self._started_at or workflow.now()
        why, until = blocked
        if is_transient:
            self._polls_since_change = 1
        if (self._polls_since_change > 1 or reserved_until or is_fixed(allowed_disruptions, why)) and has_pending:
            self.next_at = next_check_at(
                self._polls_since_change,
                allowed_disruptions,
                permits,
                now,
                blocked_by=why,
                until=until,
                reserved_until=reserved_until,
            )
            return
        default_at = now + CHECK_INTERVAL
        self.next_at = min(default_at, until) if why and until and until > workflow.now() else default_at
