"""Objects for the comparison of Tenure's CRDs with Karpenter's: the rows of the tables, and systematic changes of them.

The objects follow from the tables alone, so that a name denotes the same object in every run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tests.support.apis.crd_rows import (
    CAPACITYBUFFER,
    NODECLAIM,
    NODECLASS,
    NODEOVERLAY,
    NODEPOOL,
    Object,
    apply_patch,
    load_table,
    rows_of,
)

KARPENTER_BASES: Final = (NODEPOOL, NODECLAIM, NODECLASS, NODEOVERLAY, CAPACITYBUFFER)
"""A valid object of each of Karpenter's kinds."""
_TABLES: Final = Path(__file__).parents[2] / "adapters" / "apis" / "rows"
VERDICTS: Final = _TABLES / "karpenter-1.15.1.json"
"""The verdicts of Karpenter's CRDs."""
_MAPS: Final = ("annotations", "labels", "limits", "matchLabels", "tags")
_Location = tuple[str | int, ...]
_TEXTS: Final = ("", "x", "-1", "1h", "1d", "Never", "10%", "101%", "5Gi", "a b", "é", "x" * 64, "x" * 300, "true", "*")
_NUMBERS: Final = (-1, 0, 1, 2, 101, 65536, 0.5)
"""None beyond 32 bits: Kubernetes 1.37 rejects such a number for `format: int32`, and 1.34 does not."""


def build_corpus(base: Object) -> dict[str, Object]:
    """Objects of the kind of `base` by name."""
    rows = rows_of(load_table(_TABLES / f"{base['kind'].lower()}.yaml"))
    corpus = {str(row): apply_patch(base, row.patch) for row in rows}
    seen = set[tuple[str, str]]()
    for row in rows:
        if not row.rejection and "spec" in corpus[str(row)]:
            valid = corpus[str(row)]
            for location in _locations(valid["spec"], ("spec",)):
                path = ".".join("[]" if isinstance(one, int) else one for one in location)
                value = _value_at(valid, location)
                if (key := (path, type(value).__name__)) not in seen:
                    seen.add(key)
                    corpus |= {f"{path} of {row}: {name}": one for name, one in _changes(valid, location, value)}
    return corpus


def _locations(value: Any, location: _Location) -> Iterator[_Location]:
    """The value and everything in it; of a list and of a map of labels, tags or resources, the first item."""
    yield location
    if isinstance(value, Mapping):
        for key in [*value][: 1 if location[-1] in _MAPS else None]:
            yield from _locations(value[key], (*location, key))
    elif isinstance(value, list) and value:
        yield from _locations(value[0], (*location, 0))


def _changes(valid: Object, location: _Location, value: Any) -> Iterator[tuple[str, Object]]:
    yield "removed", _with(valid, location, remove=True)
    for name, changed in _values_for(value):
        yield name, _with(valid, location, changed)


def _values_for(value: Any) -> Iterator[tuple[str, Any]]:
    yield "null", None
    yield "a list", [] if not isinstance(value, list) else {}
    yield "an object", {} if not isinstance(value, Mapping) else []
    yield "a boolean", True
    if isinstance(value, bool):
        yield "the opposite", not value
    for text in _TEXTS if not isinstance(value, Mapping | list) else ():
        yield f"{text[:5]!r} of {len(text)}", text
    for number in _NUMBERS if not isinstance(value, Mapping | list) else ():
        yield str(number), number
    if isinstance(value, Mapping):
        yield "an unknown field", {**value, "colour": "blue"}
        yield "a numeric field", {**value, "colour": 1}
        yield "an empty key", {**value, "": ""}
        yield "a long key", {**value, "x" * 130: "x"}
        yield "many fields", {**value, **{f"k{number}": "v" for number in range(110)}}
    if isinstance(value, list):
        yield "repeated items", [*value, *value]
        for count in (31, 51, 101):
            yield f"{count} items", [deepcopy(value[0]) for _ in range(count)] if value else ["x"] * count
        yield "null in it", [*value, None]
        yield "an empty object in it", [*value, {}]
    if isinstance(value, str):
        yield "upper case", value.upper()
        yield "with a suffix", f"{value}x"
        yield "with a blank", f" {value}"


def _value_at(found: Any, location: Sequence[str | int]) -> Any:
    for one in location:
        found = found[one]
    return found


def _with(valid: Object, location: _Location, value: Any = None, *, remove: bool = False) -> Object:
    changed = deepcopy(valid)
    *parents, last = location
    parent = _value_at(changed, parents)
    if remove:
        del parent[last]
    else:
        parent[last] = deepcopy(value)
    return changed


def build_all() -> dict[str, Object]:
    """The objects of all kinds, with the kind before their names."""
    return {f"{base['kind']} {name}": one for base in KARPENTER_BASES for name, one in build_corpus(base).items()}


def digest(found: Object) -> str:
    """Eight hexadecimal digits that identify an object in the file of the verdicts."""
    return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:8]
