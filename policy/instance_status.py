"""When what EC2 reports of an instance's status is worth telling its node, and when it is over. Reference 5.1.

A failing check counts once it has failed for two minutes, a scheduled event at once. What was told and is not reported
any more is over.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from model.base import Value
from model.interruptions import Notice
from model.status_reports import FailedCheck, OpenNotice, StatusReport

UNHEALTHY_AFTER: Final = timedelta(seconds=120)

Seen = Mapping[tuple[str, str], datetime]
"""By instance and kind: since when a check is seen to fail of which EC2 does not say since when."""


class StatusVerdict(Value):
    tell: dict[str, tuple[Notice, ...]]
    """By instance."""
    seen: dict[tuple[str, str], datetime]
    """To be handed in the next time."""


def decide_status(
    reports: Iterable[StatusReport], *, told: Sequence[OpenNotice], seen: Seen, now: datetime
) -> StatusVerdict:
    """`reports` is all that EC2 has to say of these nodes. A check of unknown age is as old as we have seen it fail:
    it is never taken to have failed for ever."""
    still: dict[tuple[str, str], datetime] = {}
    tell: dict[str, list[Notice]] = {}
    for report in reports:
        notices = tell.setdefault(report.instance_id, [])
        notices += report.events
        for check in report.failed:
            key = (report.instance_id, check.kind)
            since = check.since or still.setdefault(key, seen.get(key, now))
            known = [one.notice for one in told if (one.instance_id, one.notice.kind) == key]
            if check.since is None and known:
                notices += known
            elif now - since >= UNHEALTHY_AFTER:
                notices.append(_failing(check, since, now))
    for one in told:
        reported = tell.setdefault(one.instance_id, [])
        if not any(_same(one.notice, notice) for notice in reported):
            reported.append(one.notice.model_copy(update={"status": "over", "at": now}))
    return StatusVerdict(tell={key: tuple(notices) for key, notices in tell.items() if notices}, seen=still)


def still_open(told: Sequence[OpenNotice], instance_id: str, notices: Iterable[Notice]) -> tuple[OpenNotice, ...]:
    """What is open once a node was told these. What says nothing new stays as it was."""
    said = {(one.kind, one.id): one for one in notices}
    kept = []
    for one in told:
        new = said.pop((one.notice.kind, one.notice.id), None) if one.instance_id == instance_id else None
        if new is None or _as_before(one.notice, new):
            kept.append(one)
        elif new.status == "announced":
            kept.append(OpenNotice(instance_id=instance_id, notice=new))
    more = [OpenNotice(instance_id=instance_id, notice=one) for one in said.values() if one.status == "announced"]
    return (*kept, *more)


def _failing(check: FailedCheck, since: datetime, now: datetime) -> Notice:
    text = f"the check fails since {since.isoformat()}"
    return Notice(kind=check.kind, id=since.isoformat(), source="status", at=now, code="impaired", text=text)


def _same(one: Notice, other: Notice) -> bool:
    return (one.kind, one.id) == (other.kind, other.id)


def _as_before(one: Notice, other: Notice) -> bool:
    return (one.status, one.starts, one.ends) == (other.status, other.starts, other.ends)
