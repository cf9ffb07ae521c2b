"""Base classes of all models, identifier types, and helpers without further dependencies."""

import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Literal, NewType, Self

from pydantic import BaseModel, ConfigDict, ValidationError

_UNTRACKED_FIELDS: Final[set[str]] = set()


class _CompactModel(BaseModel):
    """Drops pydantic's set of given field names: no caller reads it, and it takes half of a value's memory."""

    def model_post_init(self, context: Any, /) -> None:
        object.__setattr__(self, "__pydantic_fields_set__", _UNTRACKED_FIELDS)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        object.__setattr__(copied, "__pydantic_fields_set__", _UNTRACKED_FIELDS)
        return copied

    def __eq__(self, other: object) -> bool:
        """As in pydantic, but without its checks for private and extra fields: plans compare thousands of values."""
        return type(self) is type(other) and self.__dict__ == other.__dict__


class Value(_CompactModel):
    """A frozen value; an unknown field name is an error at construction."""

    # Without `ser_json_inf_nan`, an infinite number is stored as null, and the workflow that reads it stops.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, ser_json_inf_nan="strings")


class SparseValue(Value):
    """A value of which tens of thousands are in memory. It stores only fields that differ from their defaults, and its
    class has the defaults. Pydantic cannot serialize it."""

    _defaults: ClassVar[Mapping[str, Any]]

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._defaults = {
            name: one.get_default(call_default_factory=True)
            for name, one in cls.model_fields.items()
            if not one.is_required()
        }
        for name, default in cls._defaults.items():
            setattr(cls, name, default)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._drop_defaults()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied._drop_defaults()
        return copied

    def _drop_defaults(self) -> None:
        defaults, fields = self._defaults, self.__dict__.items()
        stored = {name: value for name, value in fields if name not in defaults or defaults[name] != value}
        object.__setattr__(self, "__dict__", stored)


class Message(_CompactModel):
    """A value stored in workflow histories. Unknown fields, which another version may have written, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, ser_json_inf_nan="strings")


InstanceId = NewType("InstanceId", str)


def parse_instance_id(provider_id: str) -> InstanceId:
    """`i-0123` from `aws:///us-west-2a/i-0123`; raises ValueError for any other form."""
    prefix, _, tail = provider_id.rpartition("/")
    if not prefix.startswith("aws:///") or not tail.startswith("i-"):
        raise ValueError(f"provider id {provider_id!r} is not of the form aws:///<zone>/<instance id>")
    return InstanceId(tail)


def instance_id_of(provider_id: str) -> str:
    """The last part of a provider ID, whatever form the rest has; empty if the ID is."""
    return provider_id.rpartition("/")[2]


def parse_timestamp(text: str) -> datetime | None:
    """None if the text is not a timestamp or has no time zone."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return timestamp if timestamp.tzinfo is not None else None


def format_timestamp(at: datetime) -> str:
    """RFC 3339 in UTC with seconds, as Kubernetes writes it: `2026-06-01T18:00:00Z`."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def format_number(value: float, digits: int = 4) -> str:
    """At most `digits` significant digits and six decimals, without scientific notation. Large numbers are complete."""
    if not math.isfinite(value) or not value:
        return f"{value:g}"
    decimals = max(0, min(6, digits - 1 - math.floor(math.log10(abs(value)))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def format_count(number: int, noun: str) -> str:
    """`1 node` or `2 nodes`."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def object_log_fields(**names: str) -> dict[str, Any]:
    """Karpenter's form of objects in a log line: `Node={"name": "node-a"}` for `Node="node-a"`. Omits empty names."""
    return {kind: {"name": name} for kind, name in names.items() if name}


def log_seconds(duration: timedelta) -> float:
    """Of a log line: at least 0, rounded to milliseconds."""
    return max(0.0, round(duration.total_seconds(), 3))


def format_short_list(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


RequestPriority = Literal["", "bulk"]
"""`bulk`: mass requests, which get at most every other slot while others wait."""

REQUEST_PRIORITY: Final[ContextVar[RequestPriority]] = ContextVar("request_priority", default="")


def first_validation_error(error: ValidationError) -> tuple[str, str, Any]:
    """The field as a dotted path, the problem, and the value."""
    first = error.errors(include_url=False)[0]
    return ".".join(str(part) for part in first["loc"]), first["msg"], first["input"]
