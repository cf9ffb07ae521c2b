"""The record of nodes that went voluntarily, by which rates count: put together, and as an annotation of the NodePool.

`workflows/permits.py` keeps it; the annotation is for a workflow that has lost it. Pure.
"""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from model.disruption import Disrupted

MOST: Final = 1000
"""Entries that are written, the newest: an object's annotations have room for 256 KiB in all."""


def merged(*records: Iterable[Disrupted], since: datetime) -> tuple[Disrupted, ...]:
    """What any of them tells of, once, and not before `since`; oldest first."""
    found: Counter[Disrupted] = Counter()
    for record in records:
        found |= Counter(one for one in record if one.at >= since)
    return tuple(sorted(found.elements(), key=lambda one: (one.at, one.uid)))


def written(record: Iterable[Disrupted]) -> str:
    lines = [[one.reason, one.at.isoformat(), one.uid] for one in record]
    return json.dumps(lines[-MOST:], separators=(",", ":")) if lines else ""


def read(text: str, pool: str) -> tuple[Disrupted, ...]:
    """Nothing of what cannot be read: people may write there too."""
    try:
        return tuple(
            Disrupted(pool=pool, reason=reason, at=datetime.fromisoformat(at), uid=uid)
            for reason, at, uid in json.loads(text or "[]")
        )
    except (ValueError, TypeError, ValidationError):
        return ()
