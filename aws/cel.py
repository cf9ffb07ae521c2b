"""Expressions in CEL for amounts that differ by instance type: read, type-checked and evaluated.

Behind Karpenter's gate NodeClassCEL (reference 1.3). `kubelet_computed.py` says which values are expressions and what
becomes of the numbers. An expression of an unknown variable or of mismatched types is refused when it is read.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from aws.cel_expression import Expression

_KEPT: Final = 256
"""Expressions; each takes some kilobytes."""


class ExpressionError(ValueError):
    """An expression that cannot be read or has no value; the message quotes it."""


class Variables(TypedDict):
    """What an expression may name."""

    vcpus: int
    memory_mib: int
    default_enis: int
    ips_per_eni: int
    max_pods: int
    instance_type: str


@lru_cache(maxsize=_KEPT)
def expression(text: str) -> "Expression":
    """Raises ExpressionError."""
    from aws.cel_expression import Expression  # noqa: PLC0415 - its library takes 5 MB, and few write expressions

    return Expression(text)
