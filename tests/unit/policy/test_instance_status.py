"""What EC2 reports of an instance's status: when its node is told, and when it is over."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.model.interruption.notices import FailedCheck, Notice, OpenNotice, StatusReport
from tenure.policy.interruption.timing import StatusVerdict, decide_status, still_open

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ONE, OTHER = "i-one", "i-other"


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def failing(*, seconds: float | None, kind: Any = "instanceStatus", instance: str = ONE) -> StatusReport:
    since = None if seconds is None else at(-seconds)
    return StatusReport(instance_id=instance, failed=(FailedCheck(kind=kind, since=since),))


def event(status: str = "announced", *, starts: float = 86400, instance: str = ONE) -> StatusReport:
    notice = Notice.model_validate(
        {
            "kind": "scheduledChange",
            "id": "instance-event-1",
            "source": "status",
            "at": NOW,
            "starts": at(starts),
            "code": "instance-retirement",
            "status": status,
        }
    )
    return StatusReport(instance_id=instance, events=(notice,))


def decide(
    *reports: StatusReport, told: Sequence[OpenNotice] = (), seen: Any = None, now: datetime = NOW
) -> StatusVerdict:
    return decide_status(reports, told=told, seen=seen or {}, now=now)


def opened(*reports: StatusReport) -> tuple[OpenNotice, ...]:
    """What is open after nodes were told of these."""
    told: tuple[OpenNotice, ...] = ()
    for instance, notices in decide(*reports).tell.items():
        told = still_open(told, instance, notices)
    return told


def test_a_failing_check_counts_after_two_minutes() -> None:
    assert decide(failing(seconds=119)).tell == {}
    (notice,) = decide(failing(seconds=120)).tell[ONE]
    assert (notice.kind, notice.source, notice.status, notice.code) == (
        "instanceStatus",
        "status",
        "announced",
        "impaired",
    )
    assert decide(failing(seconds=120, kind="systemStatus")).tell[ONE][0].kind == "systemStatus"


def test_a_check_of_unknown_age_is_as_old_as_it_is_seen_to_fail() -> None:
    """Karpenter takes it to have failed since the year one, and ends the node at once (Q9)."""
    first = decide(failing(seconds=None))
    assert first.tell == {}
    again = decide(failing(seconds=None), seen=first.seen, now=at(119))
    assert again.tell == {}
    last = decide(failing(seconds=None), seen=again.seen, now=at(120))
    assert last.tell[ONE][0].id == NOW.isoformat()


def test_one_that_recovered_meanwhile_begins_anew() -> None:
    first = decide(failing(seconds=None))
    well = decide(seen=first.seen, now=at(60))
    assert well.seen == {}
    assert decide(failing(seconds=None), seen=well.seen, now=at(180)).tell == {}


def test_another_host_does_not_take_a_check_of_unknown_age_for_over() -> None:
    first = decide(failing(seconds=None))
    told = still_open((), ONE, decide(failing(seconds=None), seen=first.seen, now=at(120)).tell[ONE])
    verdict = decide(failing(seconds=None), told=told, now=at(130))
    assert [one.status for one in verdict.tell[ONE]] == ["announced"]
    assert still_open(told, ONE, verdict.tell[ONE]) == told


def test_a_scheduled_event_counts_at_once_however_far_ahead() -> None:
    (notice,) = decide(event(starts=14 * 86400)).tell[ONE]
    assert notice.starts == at(14 * 86400)


def test_a_check_that_passes_again_is_over() -> None:
    told = opened(failing(seconds=200), failing(seconds=200, instance=OTHER))
    verdict = decide(failing(seconds=260, instance=OTHER), told=told, now=at(60))
    (over,) = verdict.tell[ONE]
    assert (over.status, over.kind, over.at, over.id) == ("over", "instanceStatus", at(60), told[0].notice.id)
    assert still_open(told, ONE, verdict.tell[ONE]) == told[1:]


def test_an_event_that_is_done_or_called_off_is_open_no_more() -> None:
    told = opened(event())
    for status in ("over", "withdrawn"):
        verdict = decide(event(status), told=told)
        assert [one.status for one in verdict.tell[ONE]] == [status]
        assert still_open(told, ONE, verdict.tell[ONE]) == ()


def test_an_event_that_is_listed_no_more_is_over() -> None:
    assert [one.status for one in decide(told=opened(event())).tell[ONE]] == ["over"]


def test_what_is_reported_again_leaves_what_is_open_as_it_was() -> None:
    """Else a successor would have something to remember every minute."""
    told = opened(event(), failing(seconds=200, instance=OTHER))
    verdict = decide(event(), failing(seconds=200, instance=OTHER), told=told, now=at(60))
    after = told
    for instance, notices in verdict.tell.items():
        after = still_open(after, instance, notices)
    assert after == told


def test_an_event_that_is_moved_is_open_at_its_new_time() -> None:
    told = opened(event())
    moved = decide(event(starts=3 * 86400), told=told).tell[ONE]
    assert [one.notice.starts for one in still_open(told, ONE, moved)] == [at(3 * 86400)]
