"""Kubernetes quantities (`100m`, `1.5Gi`, `2e3`), parsed and formatted exactly, with integer arithmetic.

Follows `resource.Quantity`: fractions below a billionth round away from zero, as do conversions to integers. The
canonical form keeps the format (decimal, binary, exponent) of the input.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from tenure.apis.durations import quote

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

NANO: Final = 10**9
_DECIMAL: Final[dict[str, int]] = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final[dict[str, int]] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)
_TEXT: Final = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?", re.ASCII
)
# The API server caps binary quantities at this, but not decimal ones.
_LARGEST_BINARY: Final = (2**63 - 1) * NANO
MAX_KEY: Final = 100
"""Characters of a resource name in an error."""
MAX_LENGTH: Final = 64
"""Characters. Longer text is rejected before parsing."""
MAX_AMOUNT: Final = 2**53
"""Larger amounts are capped at this: no instance type has as much, and the sum of 1,000 stays below 64 bits."""
# A larger exponent would let a short text exhaust the memory.
_MAX_EXPONENT: Final = 1000


class QuantityError(ValueError):
    """Invalid quantity; the message has the expected form."""


class Quantity(NamedTuple):
    """An exact amount: `nano` billionths of the base unit (core, byte, piece), and its format."""

    nano: int
    format: Format = "DecimalSI"

    def value(self) -> int:
        """Whole base units (bytes, pieces), rounded away from zero."""
        return _divide_rounding_outward(self.nano, NANO)

    def millis(self) -> int:
        """Thousandths of the base unit (millicores), rounded away from zero."""
        return _divide_rounding_outward(self.nano, NANO // 1000)

    def __str__(self) -> str:
        return _write(self.nano, self.format)


def parse(text: str | float) -> Quantity:
    """Parse text, or a plain number as in manifests.

    Raises QuantityError for any other value, and for text longer than MAX_LENGTH.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return Quantity(text * NANO)
    if isinstance(text, float):
        return _parse(repr(text))
    if not isinstance(text, str):
        raise QuantityError(_error_message(repr(text)[:MAX_LENGTH]))
    if len(text) > MAX_LENGTH:
        raise QuantityError(f"{quote(text)} has {len(text)} characters, a quantity has at most {MAX_LENGTH}")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _TEXT.fullmatch(text)
    if not match:
        raise QuantityError(_error_message(text))
    sign, integer, fraction, suffix, exponent = match.groups(default="")
    nano, form = _parse_magnitude(integer, fraction, suffix, exponent)
    return Quantity(-nano if sign == "-" else nano, form)


def parse_quantity(text: str | float) -> int:
    """Whole base units (bytes of memory, number of pods), rounded up. Raises QuantityError."""
    return parse(text).value()


def cpu_millis(text: str | float) -> int:
    """Millicores, rounded up. Raises QuantityError."""
    return parse(text).millis()


def parse_amount(resource: str, text: str | float) -> int:
    """Millicores for `cpu`, else base units, between -MAX_AMOUNT and MAX_AMOUNT. Raises QuantityError."""
    amount = cpu_millis(text) if resource == "cpu" else parse_quantity(text)
    return max(-MAX_AMOUNT, min(amount, MAX_AMOUNT))


def parse_resources(resources: Mapping[str, str | float] | None) -> dict[str, int]:
    """A Kubernetes ResourceList as integers; empty for None. Raises QuantityError with the name of the resource."""
    amounts: dict[str, int] = {}
    for resource, text in (resources or {}).items():
        try:
            amounts[resource] = parse_amount(resource, text)
        except QuantityError as error:
            raise QuantityError(f"{resource[:MAX_KEY]}: {error}") from None
    return amounts


def format_quantity(value: int, form: Format = "DecimalSI") -> str:
    """The canonical form of whole base units."""
    return _write(value * NANO, form)


def format_cpu(millis: int) -> str:
    """The canonical form of millicores: `1500m`, `2`."""
    return _write(millis * (NANO // 1000), "DecimalSI")


def format_amount(resource: str, amount: int) -> str:
    """The canonical form of an amount of `tenure.apis.resources`: memory and storage in Ki, Mi, Gi."""
    if resource == "cpu":
        return format_cpu(amount)
    binary = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return format_quantity(amount, "BinarySI" if binary else "DecimalSI")


def format_resources(amounts: Mapping[str, int]) -> dict[str, str]:
    """A Kubernetes ResourceList from integers; keeps the order of the keys."""
    return {resource: format_amount(resource, amount) for resource, amount in amounts.items()}


def _parse_magnitude(integer: str, fraction: str, suffix: str, exponent: str) -> tuple[int, Format]:
    digits = int((integer + fraction) or "0")
    if suffix in _BINARY:
        shift = _BINARY[suffix]
        nano = _divide_rounding_outward((digits << shift) * NANO, 10 ** len(fraction))
        # There is no binary suffix for a fraction of a byte, so it is formatted as a decimal.
        form: Format = "DecimalSI" if 0 < nano < NANO else "BinarySI"
        return min(nano, _LARGEST_BINARY), form
    scale = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(exponent))) if exponent else _DECIMAL[suffix]
    power = scale + 9 - len(fraction)
    nano = digits * 10**power if power >= 0 else _divide_rounding_outward(digits, 10**-power)
    return nano, "DecimalExponent" if exponent else "DecimalSI"


def _divide_rounding_outward(number: int, by: int) -> int:
    return -(-number // by) if number >= 0 else number // by


def _write(nano: int, form: Format) -> str:
    if nano == 0:
        return "0"
    sign, size = ("-", -nano) if nano < 0 else ("", nano)
    if form == "BinarySI" and size >= 1024 * NANO and size % NANO == 0:
        return sign + _write_binary(size // NANO)
    return sign + _write_decimal(size, exponent_form=form == "DecimalExponent")


def _write_binary(size: int) -> str:
    index = 0
    while size % 1024 == 0 and index < len(_BINARY_SUFFIX) - 1:
        size //= 1024
        index += 1
    return f"{size}{_BINARY_SUFFIX[index]}"


def _write_decimal(nano: int, *, exponent_form: bool) -> str:
    exponent = -9
    while nano % 1000 == 0 and (exponent_form or exponent < 18):
        nano //= 1000
        exponent += 3
    if exponent_form:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[exponent]}"


def _error_message(text: str) -> str:
    stripped = text.replace(" ", "")
    fixed = re.sub(r"(?<=[0-9])(KB|K|kb)$", "k", stripped)
    fixed = re.sub(r"(?<=[0-9])([MGTPE])B$", r"\1", fixed)
    fixed = re.sub(r"(?<=[0-9])([KMGTPE])(iB|I|IB)$", r"\1i", fixed)
    if fixed != text and _TEXT.fullmatch(fixed):
        return f"{quote(text)} is not a quantity: write '{fixed}'"
    return f"{quote(text)} is not a quantity: write a number with a suffix such as '500m', '2', '1.5Gi' or '100M'"
