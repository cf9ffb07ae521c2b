"""Whether a Node has what its NodeClaim was launched for: nine tenths of it at least (reference 3.7)."""

from collections.abc import Mapping
from typing import Final

from model.quantity import format_resources

ENOUGH: Final = 0.9


def decide_lacking(requests: Mapping[str, int], expected: Mapping[str, int], has: Mapping[str, int]) -> str:
    """What the Node lacks, resource by resource; empty when it is as it should be. Amounts as in `model.resources`."""
    lacking = []
    for resource in sorted(requests):
        wanted, found = expected.get(resource, 0), has.get(resource, 0)
        if requests[resource] and found < wanted * ENOUGH:
            lacking.append(_words(resource, found, wanted))
    return "; ".join(lacking)


def _words(resource: str, found: int, wanted: int) -> str:
    has, expected = format_resources({resource: found})[resource], format_resources({resource: wanted})[resource]
    return f"{resource}: the Node has {has} of {expected} ({100 * found // wanted} %)"
