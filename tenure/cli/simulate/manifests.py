"""Kubernetes manifests from files: YAML or JSON, single objects, lists, or several documents.

Errors are `UsageError`, one line that names file, object, field and value.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError

from tenure.cli.exit_codes import UsageError
from tenure.model.base import first_validation_error

T = TypeVar("T")
Object = dict[str, Any]

CREATED: Final = "2000-01-01T00:00:00Z"
"""Creation time of objects from files."""
MAX_VALUES: Final = 2_000_000
"""Limit per document, about 20,000 pods. A few lines of YAML aliases can expand to any number of values."""
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Does not convert dates, which remain text."""

    yaml_implicit_resolvers: Final = {
        first: [(tag, form) for tag, form in rules if tag != _TIMESTAMP]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; expected a readable file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def read_objects(path: Path) -> list[Object]:
    """All objects, also those in lists. Null fields are dropped, as by the API server."""
    found: list[Object] = []
    try:
        for document in _parse_documents(path, read_text(path)):
            if document is None:
                continue
            if not isinstance(document, (dict, list)):
                raise UsageError(
                    f"{path}: {str(document)[:40]!r}: invalid document, expected a Kubernetes object or a list of them"
                )
            if count_values(document) > MAX_VALUES:
                raise UsageError(
                    f"{path}: its aliases expand to more than {MAX_VALUES:,} values, expected fewer aliases"
                )
            found += _flatten_lists(path, _without_nulls(document))
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply, expected plain Kubernetes objects") from error
    for one in found:
        if not isinstance(one.get("kind", ""), str):
            raise UsageError(f"{path}: kind: {one['kind']!r:.60}: invalid kind, expected a string, e.g. Pod")
    return found


def count_values(document: Any) -> int:
    """Values of a document with all aliases expanded, in time linear to its text."""
    counts: dict[int, int] = {}

    def count(value: Any) -> int:
        if not isinstance(value, (dict, list)):
            return 1
        if id(value) not in counts:
            counts[id(value)] = 1 + sum(map(count, value.values() if isinstance(value, dict) else value))
        return counts[id(value)]

    return count(document)


def check_metadata(path: Path, objects: Sequence[Object]) -> None:
    """Requires names that are unique in the file."""
    for one in objects:
        with raising_usage_error(f"{path}: {describe_object(one)}"):
            name = read_metadata(one, "metadata").get("name")
        if not name:
            raise UsageError(f"{path}: {describe_object(one)}: metadata.name: missing, expected a name, e.g. web")
        if not isinstance(name, str):
            raise UsageError(f"{path}: {describe_object(one)}: metadata.name: {name!r:.60} is not a string")
        owners = one["metadata"].get("ownerReferences", [])
        if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
            where = f"{path}: {describe_object(one)}: metadata.ownerReferences"
            raise UsageError(f"{where}: {owners!r:.60} is not a list of objects")
    named = Counter((one["kind"], namespace_of(one), str(one["metadata"]["name"])) for one in objects)
    for (kind, _, name), times in named.items():
        if times > 1:
            raise UsageError(f"{path}: {kind} {name}: metadata.name occurs {times} times, expected unique names")


def read_metadata(holder: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Empty if it is missing. Raises ValueError unless it, its labels and its annotations are objects."""
    metadata: Any = holder.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ValueError(f"{field}: {metadata!r:.60} is not an object, expected e.g. {{name: web}}")
    for key in ("labels", "annotations"):
        if not isinstance(found := metadata.get(key, {}), dict):
            raise ValueError(f"{field}.{key}: {found!r:.60} is not an object, expected e.g. {{team: web}}")
    return metadata


def format_kinds(kinds: Counter[str]) -> str:
    """`2 Service, 1 ConfigMap`."""
    return ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())


def parse_object(path: Path, one: Object, read: Callable[[Mapping[str, Any]], T]) -> T:
    """Call `read` with the object and the metadata that an API server would set."""
    metadata = {"namespace": "default", "creationTimestamp": CREATED, **one["metadata"]}
    metadata.setdefault("uid", f"{one.get('kind')}/{metadata['namespace']}/{metadata['name']}")
    with raising_usage_error(f"{path}: {describe_object(one)}"):
        _check_time(metadata["creationTimestamp"])
        return read({**one, "metadata": metadata})


@contextmanager
def raising_usage_error(subject: str) -> Iterator[None]:
    """Convert errors of an object to `UsageError` with file, name, field and value."""
    try:
        yield
    except KeyError as error:
        raise UsageError(f"{subject}: the field {error} is missing") from error
    except ValidationError as error:
        field, problem, value = first_validation_error(error)
        raise UsageError(f"{subject}: {field}: {problem}; the value is {value!r:.60}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{subject}: {error}") from error


def namespace_of(one: Object) -> str:
    return str(one["metadata"].get("namespace", "default"))


def describe_object(one: Object) -> str:
    name = (one.get("metadata") or {}).get("name") if isinstance(one.get("metadata"), dict) else None
    return f"{one.get('kind') or 'object'} {name or '(no name)'}"


def _parse_documents(path: Path, text: str) -> Iterator[Any]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield json.loads(text)
            return
        except json.JSONDecodeError:
            pass  # YAML's flow style starts like JSON.
    try:
        yield from yaml.load_all(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path}: neither YAML nor JSON: {' '.join(str(error).split())[:160]}") from error


def _check_time(value: object) -> None:
    try:
        aware = datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise ValueError(f"metadata.creationTimestamp: {value!r}: invalid time, expected RFC 3339, e.g. {CREATED}")


def _flatten_lists(path: Path, document: Object | list[Any]) -> list[Object]:
    if isinstance(document, dict):
        if "items" not in document or not str(document.get("kind", "List")).endswith("List"):
            return [document]
        document = document["items"] or []
    if not isinstance(document, list):
        raise UsageError(f"{path}: items: {str(document)[:40]!r}: invalid value, expected a list of Kubernetes objects")
    found: list[Object] = []
    for one in document:
        if not isinstance(one, dict):
            raise UsageError(f"{path}: {str(one)[:40]!r}: invalid list item, expected a Kubernetes object")
        found += _flatten_lists(path, one)
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
