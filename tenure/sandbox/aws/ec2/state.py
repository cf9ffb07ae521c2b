"""The EC2 state of one region, its lock, and the timers of instance state transitions.

The dispatcher calls `run_due_transitions` before every handler, so that due transitions are visible.
"""

from __future__ import annotations

import datetime as dt
import heapq
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tenure.sandbox.aws.ec2.fleet import capacity
from tenure.sandbox.aws.ec2.fleet.capacity import CapacityPools
from tenure.sandbox.aws.ec2.network.vpc import PREFIX_ADDRESSES, Network
from tenure.sandbox.aws.ec2.records import Fleet, Image, Instance, LaunchTemplate, PlacementGroup, Reservation
from tenure.sandbox.aws.ec2.reservations.lifecycle import next_reservation_due, settle_reservations
from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.state.clock import SimClock

NEXT_STATE = {"pending": "running", "shutting-down": "terminated", "stopping": "stopped", "terminated": None}
StateListener = Callable[[Instance], None]
# Code and text for instances that AWS reclaims, by lifecycle.
TAKEN = {
    "spot": ("Server.SpotInstanceTermination", "Spot instance termination"),
    "interruptible-capacity-reservation": ("Server.CapacityReservationInterruption", "The capacity was reclaimed"),
}
# Maximum number of deleted instances that the control API still reports as changes.
MAX_DELETED = 20000


class Environment:
    def __init__(self, settings: SimSettings, clock: SimClock, region: str) -> None:
        self.settings = settings
        self.clock = clock
        self.region = region
        self.account = settings.account
        self.lock = threading.RLock()
        self.moved = threading.Condition(self.lock)
        self.network = Network(settings.account, region)
        # Called for every change of state, while the lock is held.
        self.listeners: list[StateListener] = []
        self.clear()

    def clear(self) -> None:
        """Reset the state. moto's state is reset separately."""
        self.instances: dict[str, Instance] = {}
        self.fleets: dict[str, Fleet] = {}
        self.templates: dict[str, LaunchTemplate] = {}
        self.template_names: dict[str, str] = {}
        self.images: dict[str, Image] = {}
        self.reservations: dict[str, Reservation] = {}
        self.placement_groups: dict[str, PlacementGroup] = {}
        self.tokens: dict[tuple[str, str], tuple[str, Any]] = {}
        self.pools = CapacityPools()
        # vCPUs by quota code: limits that differ from the default, and usage.
        self.quotas: dict[str, int] = {}
        self.vcpus_used: dict[str, int] = {}
        # Clock time from which EC2 knows an instance profile, by name.
        self.profiles_from: dict[str, float] = {}
        # Full placement groups: ID, zone or `*`, partition or None for all.
        self.full_groups: set[tuple[str, str, int | None]] = set()
        self.launched = 0
        self.terminated = 0
        self.sequence = 0
        self.revision = 0
        self.network.forget()
        self.deleted: deque[tuple[int, str]] = deque(maxlen=MAX_DELETED)
        self._timers: list[tuple[float, int, str]] = []
        self._timer_serial = 0
        self._reclaims: list[tuple[float, str]] = []

    def arn(self, kind: str, name: str, owner: str | None = None) -> str:
        return f"arn:aws:ec2:{self.region}:{owner or self.account}:{kind}/{name}"

    def start_timer(self, instance: Instance, due: float) -> None:
        """Move the instance to its next state at the clock time `due`."""
        self._timer_serial += 1
        instance.timer = self._timer_serial
        heapq.heappush(self._timers, (due, self._timer_serial, instance.id))

    def next_due(self) -> float | None:
        """Clock time of the next transition."""
        dues = [heap[0][0] for heap in (self._timers, self._reclaims) if heap]
        reservation = next_reservation_due(self)
        return min(dues if reservation is None else [*dues, reservation], default=None)

    def schedule_reclaim(self, instance: Instance, seconds: float) -> None:
        """Let AWS reclaim the instance after `seconds`, as after the notice of a spot interruption."""
        heapq.heappush(self._reclaims, (self.clock.now() + seconds, instance.id))
        self.moved.notify_all()

    def run_due_transitions(self) -> None:
        """Run all transitions that are due."""
        while self._timers and self._timers[0][0] <= self.clock.now():
            due, serial, instance_id = heapq.heappop(self._timers)
            instance = self.instances.get(instance_id)
            if instance is not None and instance.timer == serial:
                self._advance_state(instance, due)
        while self._reclaims and self._reclaims[0][0] <= self.clock.now():
            instance = self.instances.get(heapq.heappop(self._reclaims)[1])
            if instance is not None:
                self.reclaim(instance, *TAKEN.get(instance.lifecycle, TAKEN["spot"]))
        settle_reservations(self)

    def reclaim(self, instance: Instance, code: str, text: str) -> None:
        """Terminate the instance as AWS, for this reason, unless it is already shutting down."""
        if instance.state not in ("shutting-down", "terminated"):
            instance.reason_code = code
            instance.reason_message = f"{code}: {text}"
            instance.reason = f"{code} ({self.now():%Y-%m-%d %H:%M:%S} GMT)"
            self.enter_state(instance, "shutting-down")

    def enter_state(self, instance: Instance, state: str, at: float | None = None) -> None:
        """Change an instance's state, schedule the next transition, and notify listeners.

        `at` is the clock time of the change, so that one large clock step passes through several states.
        """
        instance.state = state
        instance.invalidate_view()
        settings = self.settings
        delay = {
            "pending": settings.pending_seconds,
            "shutting-down": settings.shutting_down_seconds,
            "stopping": settings.stopping_seconds,
            "terminated": settings.terminated_visible_seconds,
        }.get(state)
        capacity.charge_quota(self, instance, running=state not in ("terminated", "stopped"))
        if state == "terminated":
            self._release(instance)
        if delay is not None:
            self.start_timer(instance, (self.clock.now() if at is None else at) + delay)
        self._notify_listeners(instance)

    def reboot(self, instance: Instance) -> None:
        """The EC2 state remains `running`; the node boots again."""
        instance.reboots += 1
        self.bump_revision()
        instance.revision = self.revision

    def _advance_state(self, instance: Instance, due: float) -> None:
        following = NEXT_STATE.get(instance.state)
        if instance.state == "pending" and instance.failure is not None:
            self.reclaim(instance, *instance.failure)
        elif following is not None:
            self.enter_state(instance, following, due)
        elif instance.state == "terminated":
            del self.instances[instance.id]
            self.bump_revision()
            self.deleted.append((self.revision, instance.id))

    def _release(self, instance: Instance) -> None:
        self.terminated += 1
        self.pools.give_back(instance.pools)
        address_pool = self.network.address_pool(instance.subnet_id)
        for interface in instance.interfaces:
            if interface.private_ip:
                address_pool.give_back(interface.private_ip)
            address_pool.prefix_addresses -= PREFIX_ADDRESSES * len(interface.ipv4_prefixes)
        reservation = self.reservations.get(instance.capacity_reservation_id or "")
        if reservation is not None:
            reservation.used -= 1

    def _notify_listeners(self, instance: Instance) -> None:
        self.bump_revision()
        instance.revision = self.revision
        for listener in self.listeners:
            listener(instance)

    def bump_revision(self) -> None:
        """Increase the revision and wake waiters."""
        self.revision += 1
        self.moved.notify_all()

    def now(self) -> dt.datetime:
        return self.clock.wall_time()
