"""Cron schedules as Karpenter parses them: `ParseStandard` of robfig/cron v3, which Karpenter evaluates in UTC.

If day of month and day of week are both restricted, either may match. `*/2` is a restriction; `*`, `?` and `*/1` are
not. A day of week of 7 means Sunday; Karpenter rejects it. A schedule that never fires is valid.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

from tenure.apis.durations import quote

MAX_LENGTH: Final = 200
"""Characters. Longer text is rejected before parsing."""
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class ScheduleError(ValueError):
    """Invalid schedule; the message has the expected form."""


class _Field(NamedTuple):
    name: str
    minimum: int
    maximum: int
    numbers: str
    """Regular expression of its numbers."""
    names: Mapping[str, int] = {}
    aliases: Mapping[int, int] = {}
    """Accepted numbers above the maximum, and the numbers that they mean."""

    @property
    def largest(self) -> int:
        return max((self.maximum, *self.aliases))


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _Field("minute", 0, 59, "[1-5]?[0-9]"),
    _Field("hour", 0, 23, "1?[0-9]|2[0-3]"),
    _Field("day of month", 1, 31, "[1-9]|[12][0-9]|3[01]"),
    _Field("month", 1, 12, "[1-9]|1[0-2]", {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day of week", 0, 6, "[0-7]", {name: number for number, name in enumerate(_DAYS)}, {7: 0}),
)


def _field_pattern(field: _Field) -> str:
    names = f"|(?i:{'|'.join(field.names)})" if field.names else ""
    number = rf"(?:\+?0*(?:{field.numbers}){names})"
    part = rf"(?:[*?](?:-[^,/\s]*)?|{number}(?:-{number})?)(?:/\+?0*[1-9][0-9]*)?"
    return rf"(?:,+|,*{part}(?:,+{part})*,*)"


_SPACE: Final = r"[\t-\r ]"
PATTERN: Final = (
    rf"^{_SPACE}*(?:@(?:{'|'.join(name[1:] for name in MACROS)})|"
    rf"{f'{_SPACE}+'.join(map(_field_pattern, _FIELDS))}){_SPACE}*$"
)
"""For Tenure's own kinds: what `next_time` accepts, and ranges in falling order, which it rejects. Separators are ASCII
spaces."""


def next_time(schedule: str, after: datetime) -> datetime | None:
    """The first time after `after`, in its time zone; None for a schedule that never fires. Raises ScheduleError."""
    expression, last = _parse(schedule), after.astimezone(UTC)
    try:
        # In the hour that the end of daylight saving time repeats, CronSim also returns times before `after`.
        return next(one for one in CronSim(expression, after) if one > last) if expression else None
    except (CronSimError, StopIteration):
        return None


@lru_cache(maxsize=1024)
def _parse(schedule: str) -> str:
    """Translate a schedule into the syntax that CronSim shares; empty if a field has no values."""
    if len(schedule) > MAX_LENGTH:
        raise ScheduleError(f"{quote(schedule)} has {len(schedule)} characters, a schedule has at most {MAX_LENGTH}")
    parts = MACROS.get(schedule.strip(), schedule).split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(f"{quote(schedule)}: expected five cron fields, or a macro such as @daily")
    try:
        fields = [_parse_field(text, field) for text, field in zip(parts, _FIELDS, strict=True)]
    except ScheduleError as error:
        raise ScheduleError(f"{quote(schedule)}: {error}") from error
    return " ".join(fields) if all(fields) else ""


def _parse_field(text: str, field: _Field) -> str:
    values: set[int] = set()
    unrestricted = False
    for part in filter(None, text.split(",")):
        numbers, star = _parse_range(part, field)
        values |= {field.aliases.get(number, number) for number in numbers}
        unrestricted |= star
    return "*" if unrestricted else ",".join(map(str, sorted(values)))


def _parse_range(text: str, field: _Field) -> tuple[range, bool]:
    """Parse `2`, `1-5`, `*`, `?`, `1-9/2`, `*/2` or `3/2` into its numbers, and whether the field is unrestricted."""
    bounds, *steps = text.split("/")
    low, *high = bounds.split("-")
    star = low in ("*", "?")
    start = field.minimum if star else _parse_number(low, field)
    to_maximum = star or (bool(steps) and not high)
    end = field.maximum if to_maximum else _parse_number(high[0], field) if high else start
    if len(steps) > 1 or (len(high) > 1 and not star):
        raise ScheduleError(f"{field.name} {quote(text)}: expected a number, a range or a step, e.g. 1-5 or */10")
    step = _parse_number(steps[0], field, is_step=True) if steps else 1
    if not field.minimum <= start <= end <= field.largest or step == 0:
        raise ScheduleError(f"{field.name} {quote(text)}: expected {field.minimum} to {field.largest} in rising order")
    return range(start, end + 1, step), star and step == 1


def _parse_number(text: str, field: _Field, *, is_step: bool = False) -> int:
    if not is_step and text.lower() in field.names:
        return field.names[text.lower()]
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        raise ScheduleError(f"{field.name} {quote(text)}: expected a number, e.g. {field.minimum}")
    return int(digits)
