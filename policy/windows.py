"""Times in which something holds: by cron line and duration in a time zone, and once from one moment to another.

Used for budgets (`budgets.py`) and for windows and freezes of LifecyclePolicies (`allowances.py`).
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from model.durations import parse_duration

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FORM: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?")


def is_open(schedule: str, duration: str, now: datetime, zone: str = "") -> bool:
    """Whether no more than `duration` has passed since the schedule hit last. Raises ValueError."""
    lasting = parse_duration(duration) or timedelta(0)
    hit = next_hit(schedule, now - lasting, zone)
    return hit is not None and hit <= now


def next_hit(schedule: str, after: datetime, zone: str = "") -> datetime | None:
    """When the schedule hits next, in the zone's own time; None for never. Raises ValueError."""
    try:
        return next(CronSim(MACROS.get(schedule, schedule), after.astimezone(zone_of(zone))))
    except CronSimError as error:
        raise ValueError(f"schedule {schedule!r}: {error}; write five cron fields or a macro such as @daily") from error
    except StopIteration:
        return None


def zone_of(name: str) -> tzinfo:
    """UTC for an empty name. Raises ValueError."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"timeZone {name!r} is not known: write a name of the IANA database such as Europe/Berlin, or leave it out "
            "for UTC"
        ) from error


def moment(text: str, zone: str = "") -> datetime:
    """A date, a time of a zone, or a time with an offset. Raises ValueError."""
    try:
        if not _FORM.fullmatch(text):
            raise ValueError("unknown form")
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no moment: write 2026-12-20, 2026-12-20T18:00 or 2026-12-20T18:00:00Z"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=zone_of(zone))
