"""Leader election: one replica leads, and another one follows it after a release, a kill or a lost connection."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from unittest.mock import AsyncMock

import pytest

from tenure.clock import CLOCK, utc_now
from tenure.kube.adapters.cluster import ObservedLease
from tenure.kube.leader_election import LeaderElector, LeaseStore
from tenure.model.errors import BadInput, Conflict, Fault, TryLater
from tenure.worker.election import LeaderElection, holder_identity
from tests.support.product.eventually import wait_until


class FakeLeases:
    """One Lease in memory, with resource versions."""

    def __init__(self) -> None:
        self.lease: ObservedLease | None = None
        self.fault: Fault | None = None
        self.reads = self.writes = 0

    async def get(self, namespace: str, name: str) -> ObservedLease | None:
        await asyncio.sleep(0)
        self.reads += 1
        if self.fault:
            raise self.fault
        return self.lease

    async def write(self, lease: ObservedLease) -> ObservedLease:
        if self.fault:
            raise self.fault
        if lease.version != (self.lease.version if self.lease else ""):
            raise Conflict("changed")
        self.writes += 1
        self.lease = lease.model_copy(update={"version": str(self.writes)})
        return self.lease

    @property
    def holder(self) -> str:
        return self.lease.holder if self.lease else ""


class Connection:
    """Of one process to the API server."""

    def __init__(self, leases: FakeLeases) -> None:
        self._leases = leases
        self.fault: Fault | None = None

    async def get(self, namespace: str, name: str) -> ObservedLease | None:
        if self.fault:
            raise self.fault
        return await self._leases.get(namespace, name)

    async def write(self, lease: ObservedLease) -> ObservedLease:
        if self.fault:
            raise self.fault
        return await self._leases.write(lease)


class Replica:
    """A process that takes part in the election."""

    def __init__(self, leases: LeaseStore, identity: str) -> None:
        self.identity, self.leading, self.led, self.lost = identity, False, 0, False
        self.fault: Exception | None = None
        self.elector = LeaderElector(leases, "tenure", identity, is_leader_lost=self.is_leader_lost)

    async def is_leader_lost(self) -> bool:
        return self.lost

    async def lead(self) -> None:
        self.leading, self.led = True, self.led + 1
        try:
            if self.fault:
                fault, self.fault = self.fault, None
                raise fault
            await asyncio.Event().wait()
        finally:
            self.leading = False


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> FakeLeases:
    """With short intervals. The Lease is written with them too."""
    values = {
        "LEASE_DURATION": timedelta(seconds=0.3),
        "RENEW_SECONDS": 0.02,
        "RENEW_RETRY_SECONDS": 0.02,
        "RENEW_DEADLINE_SECONDS": 0.2,
        "LEASE_RETRY_SECONDS": 0.02,
        "RETRY_AFTER_FAULT_SECONDS": 0.05,
        "NEW_LEADER_SECONDS": 0.1,
        "LEADER_CHECK_SECONDS": 0.02,
    }
    for name, value in values.items():
        monkeypatch.setattr(f"tenure.kube.leader_election.{name}", value)
    return FakeLeases()


@asynccontextmanager
async def electing(*replicas: Replica) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(one.elector.run(one.lead)) for one in replicas]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_until_leading(replica: Replica, times: int = 1) -> None:
    async def assert_leading() -> None:
        assert replica.leading and replica.led >= times

    await wait_until(assert_leading, seconds=20, poll_interval=0.01)


async def test_one_of_two_replicas_leads_and_hands_over_at_its_end(leases: FakeLeases) -> None:
    first, second = Replica(leases, "1@a"), Replica(leases, "1@b")
    async with electing(first) as (task,):
        await wait_until_leading(first)
        async with electing(second):
            renewals = leases.writes
            await wait_until(partial(assert_written, leases, renewals + 3), seconds=20, poll_interval=0.01)
            assert not second.led and leases.holder == "1@a"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert leases.holder == ""
            await wait_until_leading(second)
            assert not first.leading and leases.lease and leases.lease.transitions == 1


async def test_leader_renews_its_lease_without_reading_it(leases: FakeLeases) -> None:
    first = Replica(leases, "1@a")
    async with electing(first):
        await wait_until_leading(first)
        reads = leases.reads
        await wait_until(partial(assert_written, leases, leases.writes + 3), seconds=20, poll_interval=0.01)
        assert leases.reads == reads


async def test_leader_continues_after_another_client_changed_its_lease(leases: FakeLeases) -> None:
    first = Replica(leases, "1@a")
    async with electing(first):
        await wait_until_leading(first)
        assert leases.lease
        leases.lease = leases.lease.model_copy(update={"version": "changed"})
        await wait_until(partial(assert_written, leases, leases.writes + 3), seconds=20, poll_interval=0.01)
        assert first.leading and first.led == 1


async def assert_written(leases: FakeLeases, writes: int) -> None:
    assert leases.writes >= writes


async def test_killed_leader_is_replaced_after_the_duration_of_its_lease(leases: FakeLeases) -> None:
    first, second = Replica(leases, "1@a"), Replica(leases, "1@b")
    async with electing(first):
        await wait_until_leading(first)
        killed_at = leases.lease
    assert killed_at is not None
    leases.lease = killed_at.model_copy(update={"version": leases.lease.version if leases.lease else ""})
    async with electing(second):
        began = asyncio.get_running_loop().time()
        await wait_until_leading(second)
        assert asyncio.get_running_loop().time() - began >= 0.3


async def test_new_leader_continues_the_numbers_of_a_leader_whose_clock_is_ahead(
    leases: FakeLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workflows ignore observations with a lower number, and the new leader does not repeat its observations."""
    monkeypatch.setattr(CLOCK, "_last_number", 0)
    ahead = utc_now() + timedelta(seconds=20)
    leases.lease = ObservedLease(
        namespace="tenure",
        name="x",
        holder="1@a",
        renewed=ahead,
        acquired=ahead,
        duration=timedelta(seconds=0.1),
        version="1",
    )
    second = Replica(leases, "1@b")
    async with electing(second):
        await wait_until_leading(second)
        assert CLOCK.next_number() > ahead.timestamp() * 1e9


async def test_process_that_could_not_release_its_lease_continues_at_once(leases: FakeLeases) -> None:
    now = utc_now()
    leases.lease = ObservedLease(
        namespace="tenure", name="x", holder="1@a", renewed=now, acquired=now, duration=timedelta(hours=1), version="1"
    )
    leases.writes = 1
    first = Replica(leases, "1@a")
    async with electing(first):
        await wait_until_leading(first)
    assert leases.lease.acquired > now and leases.lease.transitions == 1


def test_restarted_container_has_the_identity_of_its_previous_process() -> None:
    assert holder_identity("7@tenure-0", pod_uid="b5f8", process_uid="2a") == "tenure-0_b5f8"
    assert holder_identity("7@tenure-0", pod_uid="", process_uid="2a") == "7@tenure-0_2a"


async def test_restarted_container_has_time_to_sync_before_it_counts_as_lost(
    leases: FakeLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.kube.leader_election.LEASE_DURATION", timedelta(seconds=30))
    connection = Connection(leases)
    killed, restarted, standby = Replica(connection, "a"), Replica(leases, "a"), Replica(leases, "b")
    async with electing(killed) as (task,):
        await wait_until_leading(killed)
        async with electing(standby):
            await asyncio.sleep(0.2)
            connection.fault = TryLater("killed")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            monkeypatch.setattr("tenure.kube.leader_election.NEW_LEADER_SECONDS", 3600.0)
            async with electing(restarted):
                await wait_until_leading(restarted)
                standby.lost = True
                await wait_until(partial(assert_written, leases, leases.writes + 10), seconds=20, poll_interval=0.01)
                assert restarted.leading and not standby.led


async def test_leader_that_cannot_renew_is_invalid_and_continues_later(leases: FakeLeases) -> None:
    first = Replica(leases, "1@a")
    async with electing(first):
        await wait_until_leading(first)
        assert first.elector.is_valid
        leases.fault = TryLater("no API server")
        await wait_until(partial(assert_valid, first, valid=False), seconds=20, poll_interval=0.01)
        leases.fault = None
        await wait_until(partial(assert_valid, first, valid=True), seconds=20, poll_interval=0.01)
        assert first.leading and first.led == 1


async def test_leader_that_cannot_renew_is_invalid_before_another_leads(leases: FakeLeases) -> None:
    connection = Connection(leases)
    first, second = Replica(connection, "1@a"), Replica(leases, "1@b")
    async with electing(first):
        await wait_until_leading(first)
        connection.fault = TryLater("no API server")
        async with electing(second):
            await wait_until_leading(second)
            assert not first.elector.is_valid and second.elector.is_valid
            connection.fault = None

            async def assert_stopped() -> None:
                assert not first.leading

            await wait_until(assert_stopped, seconds=20, poll_interval=0.01)
            assert second.leading and second.led == 1


async def assert_valid(replica: Replica, *, valid: bool) -> None:
    assert replica.elector.is_valid is valid


async def test_fault_of_the_session_releases_the_lease(leases: FakeLeases) -> None:
    first, second = Replica(leases, "1@a"), Replica(leases, "1@b")
    first.fault = TryLater("no watch")
    async with electing(first):
        await wait_until(partial(assert_written, leases, 2), seconds=20, poll_interval=0.01)
        async with electing(second):
            await wait_until_leading(second if leases.holder != "1@a" else first)


async def test_unexpected_error_of_the_session_starts_another_one(leases: FakeLeases) -> None:
    first = Replica(leases, "1@a")
    first.fault = ValueError("a defect")
    async with electing(first):
        await wait_until_leading(first, times=2)


async def test_leader_without_temporal_is_replaced(leases: FakeLeases) -> None:
    """It renews the Lease, but no worker polls the plan queue."""
    first, second = Replica(leases, "1@a"), Replica(leases, "1@b")
    async with electing(first):
        await wait_until_leading(first)
        async with electing(second):
            second.lost = True
            await wait_until_leading(second)

            async def assert_only_second() -> None:
                assert not first.leading and leases.holder == "1@b"

            await wait_until(assert_only_second, seconds=20, poll_interval=0.01)


def block_event_loop() -> None:
    """For twice the duration of the Lease."""
    time.sleep(0.6)


async def test_leader_keeps_its_lease_while_its_event_loop_is_busy(
    leases: FakeLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.worker.election.connect", AsyncMock())
    monkeypatch.setattr("tenure.worker.election.KubeLeases", lambda client: leases)
    first = Replica(leases, "1@a")
    election = LeaderElection("", "tenure", "1@a", is_leader_lost=first.is_leader_lost)
    leading = asyncio.create_task(election.run(first.lead))
    await wait_until_leading(first)
    writes = leases.writes
    block_event_loop()
    assert leases.writes > writes + 3 and leases.holder == "1@a" and election.is_valid
    await asyncio.sleep(0.1)
    assert first.leading and first.led == 1
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert not first.leading and leases.holder == "" and not election.is_valid


async def test_candidate_asks_about_the_leader_in_the_event_loop_of_the_worker(
    leases: FakeLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.worker.election.connect", AsyncMock())
    monkeypatch.setattr("tenure.worker.election.KubeLeases", lambda client: leases)
    first, second, loops = Replica(leases, "1@a"), Replica(leases, "1@b"), set[object]()

    async def is_leader_lost() -> bool:
        loops.add(asyncio.get_running_loop())
        return True

    election = LeaderElection("", "tenure", "1@b", is_leader_lost=is_leader_lost)
    async with electing(first):
        await wait_until_leading(first)
        electing_second = asyncio.create_task(election.run(second.lead))
        await wait_until_leading(second)
        electing_second.cancel()
        await asyncio.gather(electing_second, return_exceptions=True)
    assert loops == {asyncio.get_running_loop()}


async def test_error_in_the_thread_ends_the_election(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.worker.election.connect", AsyncMock(side_effect=BadInput("no Kubernetes cluster")))
    election = LeaderElection("", "tenure", "1@a", is_leader_lost=AsyncMock())
    with pytest.raises(BadInput, match="no Kubernetes cluster"):
        await election.run(AsyncMock())
