"""Pauses: whether one is active, its end, and its annotation, which users can also write.

kubectl annotate nodepool gpu tenure.sh/pause='until=2026-06-01T18:00:00Z, by=ann, reason=training runs'

`reason` comes last and may contain commas. An invalid annotation still pauses, since its author wanted to stop
disruption; its error is reported.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from tenure.apis.durations import quote
from tenure.apis.labels import PAUSE
from tenure.model.base import format_timestamp
from tenure.model.disruption.commands import ActivePause
from tenure.model.signals import Pause

NEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a pause from an invalid annotation."""
LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""A later end is probably a typing error."""
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""An earlier end, such as Go's zero time, has no other effect. `datetime` cannot express its time in other zones."""
RECHECK_DELAY: Final = timedelta(seconds=1)
EXAMPLE: Final = "until=2026-06-01T18:00:00Z, by=ann, reason=database upgrade"
MAX_REASON_LENGTH: Final = 300
MAX_REQUESTER_LENGTH: Final = 100
_REASON: Final = re.compile(r"(?:^|,)\s*reason=(.*)$", re.DOTALL)
_KEYS: Final = ("until", "by")


class PauseError(ValueError):
    """Invalid pause annotation; the message has the expected form."""


def is_pause_active(pause: Pause | None, now: datetime) -> bool:
    return pause is not None and now < pause.until


def pause_end(pause: Pause | None) -> datetime | None:
    """When the pause expires; None if it does not."""
    return None if pause is None or pause.until == NEVER else pause.until


def recheck_at(pause: Pause | None) -> datetime | None:
    """When to check whether the pause has ended. `workflows/pausable.py` ends it earlier; this is a fallback."""
    end = pause_end(pause)
    return end + RECHECK_DELAY if end else None


def describe_pause(pause: Pause) -> str:
    if pause.until == NEVER:
        return f"is paused by {pause.by}, which is invalid: {pause.reason}"
    return f"is paused by {pause.by} until {format_timestamp(pause.until)}: {pause.reason}"


def problem_of(pause: Pause, now: datetime) -> str:
    if not pause.by.strip() or "," in pause.by or len(pause.by) > MAX_REQUESTER_LENGTH:
        return f"by: {pause.by!r}: invalid name, expected the requester without commas, e.g. ann@example.com"
    if not pause.reason.strip() or len(pause.reason) > MAX_REASON_LENGTH:
        return (
            f"reason: {pause.reason[:60]!r} of {len(pause.reason)} characters, expected 1 to {MAX_REASON_LENGTH} "
            "characters"
        )
    if pause.until.tzinfo is None:
        return f"until: {pause.until.isoformat()}: missing time zone, expected RFC 3339, e.g. 2026-06-01T18:00:00Z"
    if pause.until <= now:
        return f"until: {pause.until.isoformat()}: in the past, expected a future time"
    if pause.until >= LATEST:
        return f"until: {pause.until.isoformat()}: too far in the future, expected a time before {LATEST.year}"
    return ""


def normalize_pause(pause: Pause) -> Pause:
    """The pause in canonical form: whole seconds, UTC, single spaces, and defaults for requester and reason."""
    aware = pause.until if pause.until.tzinfo else pause.until.replace(tzinfo=UTC)
    until = min(max(aware, EARLIEST), NEVER).astimezone(UTC)
    if until.microsecond and until < LATEST:
        until = until.replace(microsecond=0) + timedelta(seconds=1)
    by = " ".join(pause.by.replace(",", " ").split())[:MAX_REQUESTER_LENGTH].strip() or "somebody"
    reason = " ".join(pause.reason.split())[:MAX_REASON_LENGTH].strip() or "no reason given"
    return Pause(by=by, reason=reason, until=until)


def write_pause(pause: Pause | None) -> str:
    """The annotation's value; empty without a pause. `pause_from_annotation` restores a normalized pause exactly."""
    return f"until={format_timestamp(pause.until)}, by={pause.by}, reason={pause.reason}" if pause else ""


def read_pause(text: str) -> Pause:
    """Raises PauseError with the problem and the expected form."""
    reason = _REASON.search(text)
    if reason is None:
        raise PauseError(f"{quote(text)} has no reason, expected it last, e.g. {EXAMPLE!r}")
    found: dict[str, str] = {}
    for part in text[: reason.start()].split(","):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS or not separator or key in found:
            raise PauseError(f"{quote(part.strip())} is unknown, expected until, by and reason, e.g. {EXAMPLE!r}")
        found[key] = value
    for key in _KEYS:
        if not found.get(key):
            raise PauseError(f"{quote(text)} has no {key}, expected e.g. {EXAMPLE!r}")
    pause = Pause(by=found["by"], reason=reason.group(1), until=max(_parse_timestamp(found["until"]), EARLIEST))
    # A pause that has ended is not an error.
    if problem := problem_of(pause, EARLIEST - timedelta(seconds=1)):
        raise PauseError(problem)
    return normalize_pause(pause)


def pause_from_annotation(text: str) -> Pause | None:
    """The pause of an annotation; an invalid one pauses until it is fixed or removed."""
    if not text:
        return None
    try:
        return read_pause(text)
    except PauseError as error:
        why = f"{error}, or remove the annotation"
        return Pause(by=f"the annotation {PAUSE}", reason=why, until=NEVER)


def pause_blocker(scope: Literal["cluster", "pool", "node"], name: str, text: str, now: datetime) -> ActivePause | None:
    pause = pause_from_annotation(text)
    if pause is None or not is_pause_active(pause, now):
        return None
    return make_active_pause(scope, name, pause)


def make_active_pause(scope: Literal["cluster", "pool", "node"], name: str, pause: Pause) -> ActivePause:
    """The reason contains neither the scope nor the end, so that a message states each once."""
    return ActivePause(scope=scope, name=name, why=f"by {pause.by}: {pause.reason}", until=pause_end(pause))


def _parse_timestamp(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise PauseError(
            f"until={quote(text)}: invalid time, expected RFC 3339, e.g. until=2026-06-01T18:00:00Z"
        ) from error
    if at.tzinfo is None:
        raise PauseError(f"until={quote(text)}: missing time zone, expected RFC 3339, e.g. until=2026-06-01T18:00:00Z")
    return at
