"""Durations of Karpenter's API: Go's format, such as `1h30m`, and `Never`, which is None throughout the model."""

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

NEVER: Final = "Never"
_MICROSECONDS: Final[dict[str, int]] = {
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
}
MAX_LENGTH: Final = 64
"""Characters. Longer text is rejected before parsing: it could be slow, or exceed Python's limit for int digits."""
_PART: Final = r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION: Final = re.compile(rf"[+-]?(?:{_PART})+")
_PARTS: Final = re.compile(_PART)
_LONGEST: Final = timedelta(microseconds=(2**63 - 1) // 1000)


class DurationError(ValueError):
    """Invalid duration; the message has the expected form."""


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> timedelta | None:
    """The duration of `text`, truncated to microseconds; None for `Never`.

    Raises DurationError for text that Go's parser rejects or that is longer than MAX_LENGTH.
    """
    if len(text) > MAX_LENGTH:
        raise DurationError(f"{quote(text)} has {len(text)} characters, a duration has at most {MAX_LENGTH}")
    if text == NEVER:
        return None
    sign = -1 if text.startswith("-") else 1
    if text.lstrip("+-") == "0" and len(text) <= 2:
        return timedelta()
    if not _DURATION.fullmatch(text):
        raise DurationError(_error_message(text))
    micros = sum(_part_microseconds(number, unit) for number, unit in _PARTS.findall(text))
    if micros > _LONGEST // timedelta(microseconds=1):
        raise DurationError(f"{quote(text)} is too long for a duration: write '{NEVER}' or less than 2562047h")
    return timedelta(microseconds=sign * micros)


def parse_duration_or_none(text: str | None) -> timedelta | None:
    """None for `Never`, and for missing or invalid text."""
    try:
        return parse_duration(text) if text else None
    except DurationError:
        return None


def format_duration(duration: timedelta | None) -> str:
    """Go's canonical form of a duration, such as `1h30m0s`, `45s`, `1.5s` or `100ms`; `Never` for None."""
    if duration is None:
        return NEVER
    micros = duration // timedelta(microseconds=1)
    if micros == 0:
        return "0s"
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    return sign + (_below_a_second(micros) if micros < 1_000_000 else _from_a_second(micros))


def quote(text: str, length: int = 40) -> str:
    """Quote `text` for a one-line message: truncated to `length` characters, control characters escaped."""
    shown = text if len(text) <= length else f"{text[:length]}..."
    return repr(shown) if shown.isprintable() else ascii(shown)


def _part_microseconds(number: str, unit: str) -> int:
    integer, _, fraction = number.partition(".")
    if unit == "ns":
        return int(integer or "0") // 1000
    scale = _MICROSECONDS[unit]
    part = int(fraction) * scale // 10 ** len(fraction) if fraction else 0
    return int(integer or "0") * scale + part


def _below_a_second(micros: int) -> str:
    if micros < 1000:
        return f"{micros}µs"
    return f"{_format_decimal(micros, 1000)}ms"


def _from_a_second(micros: int) -> str:
    seconds = _format_decimal(micros % 60_000_000, 1_000_000)
    minutes = micros // 60_000_000
    if minutes == 0:
        return f"{seconds}s"
    if minutes < 60:
        return f"{minutes}m{seconds}s"
    return f"{minutes // 60}h{minutes % 60}m{seconds}s"


def _format_decimal(value: int, unit: int) -> str:
    integer, rest = divmod(value, unit)
    if not rest:
        return str(integer)
    digits = len(str(unit)) - 1
    return f"{integer}.{rest:0{digits}d}".rstrip("0")


def _error_message(text: str) -> str:
    days = re.fullmatch(r"([0-9]+)\s*d(ays?)?", text.strip())
    if days:
        return f"{quote(text)}: invalid duration, days are not a unit, expected '{int(days[1]) * 24}h'"
    if re.fullmatch(r"[0-9]+", text.strip()):
        return f"{quote(text)} has no unit: write '{text.strip()}s', '{text.strip()}m' or '{text.strip()}h'"
    if text.strip().lower() == NEVER.lower():
        return f"{quote(text)}: invalid duration, expected '{NEVER}'"
    return f"{quote(text)}: invalid duration, expected hours, minutes and seconds, e.g. '30s' or '1h30m', or '{NEVER}'"
