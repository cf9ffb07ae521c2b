"""Kubernetes manifests from files, for commands that need no cluster: YAML or JSON, single, listed or many to a file.

What cannot be read is `Refused` in one line that names file, object, field and value.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError

from cli.exits import Refused

T = TypeVar("T")
Object = dict[str, Any]

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CREATED: Final = "2000-01-01T00:00:00Z"
"""Of objects that were never created."""


def read_objects(path: Path) -> list[Object]:
    """Every object in a file, those of lists one by one."""
    try:
        text = path.read_text()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}; name a file that can be read") from error
    found: list[Object] = []
    for document in _documents(path, text):
        if document is None:
            continue
        if not isinstance(document, (dict, list)):
            raise Refused(f"{path}: {str(document)[:40]!r} is no object; write a Kubernetes object or a list of them")
        found += _flattened(path, document)
    return found


def of_kind(path: Path, objects: Iterable[Object], *kinds: str) -> list[Object]:
    """All of them have to be of these kinds; an empty file is one too, since it is never meant."""
    chosen = list(objects)
    for one in chosen:
        if one.get("kind") not in kinds:
            raise Refused(f"{path}: {described(one)}: kind {one.get('kind')!r}; write {' or '.join(kinds)}")
    if not chosen:
        raise Refused(f"{path}: it has no object; write {' or '.join(kinds)}")
    return chosen


def parsed(path: Path, one: Object, read: Callable[[Mapping[str, Any]], T]) -> T:
    """The object as `read` sees it, with what an API server would have filled in."""
    metadata = one.setdefault("metadata", {})
    if not metadata.get("name"):
        raise Refused(f"{path}: {described(one)}: metadata.name is missing; give it a name")
    metadata.setdefault("namespace", "default")
    metadata.setdefault("uid", f"{one.get('kind')}/{metadata['namespace']}/{metadata['name']}")
    metadata.setdefault("creationTimestamp", CREATED)
    try:
        return read(one)
    except KeyError as error:
        raise Refused(f"{path}: {described(one)}: the field {error} is missing") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(f"{path}: {described(one)}: {where}: {first['msg']}; it is {first['input']!r:.60}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: {described(one)}: {error}") from error


def described(one: Object) -> str:
    name = (one.get("metadata") or {}).get("name") if isinstance(one.get("metadata"), dict) else None
    return f"{one.get('kind') or 'object'} {name or '(no name)'}"


def _documents(path: Path, text: str) -> Iterator[Any]:
    try:
        if text.lstrip()[:1] in ("{", "["):
            yield json.loads(text)
        else:
            yield from yaml.load_all(text, Loader=_LOADER)
    except json.JSONDecodeError:
        # Flow style begins like JSON.
        yield from _yaml(path, text)
    except yaml.YAMLError as error:
        raise Refused(f"{path}: neither YAML nor JSON: {' '.join(str(error).split())[:160]}") from error


def _yaml(path: Path, text: str) -> Iterator[Any]:
    try:
        yield from yaml.load_all(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise Refused(f"{path}: neither YAML nor JSON: {' '.join(str(error).split())[:160]}") from error


def _flattened(path: Path, document: Object | list[Any]) -> list[Object]:
    if isinstance(document, dict):
        if "items" not in document or not str(document.get("kind", "List")).endswith("List"):
            return [document]
        document = document["items"] or []
    found: list[Object] = []
    for one in document:
        if not isinstance(one, dict):
            raise Refused(f"{path}: {str(one)[:40]!r} in a list is no object; write Kubernetes objects")
        found += _flattened(path, one)
    return found
