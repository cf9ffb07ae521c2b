"""Workers are counted by their pollers, and a stopped worker is counted for little more than a minute."""

from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.taskqueue.v1 import PollerInfo

from tenure.controller.temporal.pollers import count_live_pollers

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def poller(identity: str, *, seconds_ago: float = 1) -> PollerInfo:
    last_access = Timestamp()
    last_access.FromDatetime(NOW - timedelta(seconds=seconds_ago))
    return PollerInfo(identity=identity, last_access_time=last_access)


def test_worker_with_several_pollers_counts_once() -> None:
    assert count_live_pollers([poller("1@a"), poller("1@a", seconds_ago=3), poller("1@b")], NOW) == 2


def test_killed_worker_is_counted_for_little_more_than_a_minute() -> None:
    assert count_live_pollers([poller("1@a"), poller("1@b", seconds_ago=60)], NOW) == 2
    assert count_live_pollers([poller("1@a"), poller("1@b", seconds_ago=75)], NOW) == 1


def test_calling_worker_counts_without_pollers() -> None:
    assert count_live_pollers([], NOW) == 1
