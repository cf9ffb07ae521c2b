"""Guards that record the error of one object, so that all other objects are still handled."""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from tenure.apis.durations import quote
from tenure.model.base import first_validation_error
from tenure.model.errors import InvalidObject, InvalidObjectReport
from tenure.model.facts import PodFact

MAX_REPORTED: Final = 50
INVALID_ANNOTATION: Final = "InvalidAnnotation"
"""The code of `tenure.kube.facts.pods.AnnotationError`, whose message states the effect."""
PLANNER_STEPS: Final = "plan"
"""Prefix of the steps of the planner process."""
_MAX_MESSAGE: Final = 300


class ObjectKey(NamedTuple):
    kind: str
    name: str
    uid: str = ""
    step: str = "read"
    """The part of the controller that handles the object."""

    @property
    def namespace(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def object_name(self) -> str:
        return self.name.rpartition("/")[2]


def object_key(raw: Mapping[str, Any], kind: str) -> ObjectKey:
    """From raw JSON. Never raises: an object without metadata has an empty name."""
    metadata = raw.get("metadata")
    fields = metadata if isinstance(metadata, Mapping) else {}
    name, namespace = str(fields.get("name", "")), str(fields.get("namespace", ""))
    return ObjectKey(kind, f"{namespace}/{name}" if namespace else name, str(fields.get("uid", "")))


def pod_key(pod: PodFact, step: str) -> ObjectKey:
    return ObjectKey("Pod", f"{pod.namespace}/{pod.name}", pod.uid, step)


def describe_error(error: Exception) -> tuple[str, str]:
    """A short code, and a message with field, value and problem if the error has them."""
    match error:
        case ValidationError():
            field, problem, value = first_validation_error(error)
            code, text = "InvalidField", f"{field}: {problem}, not {quote(repr(value))}"
        case KeyError():
            code, text = "MissingField", f"the field {error} is missing"
        case ValueError():
            code, text = f"Invalid{type(error).__name__.removesuffix('Error')}", str(error)
        case TypeError() | AttributeError():
            code, text = "UnexpectedType", f"a field has an unexpected type: {error}"
        case _:
            code, text = type(error).__name__, f"{type(error).__name__}: {error}"
    return code, text.encode(errors="replace").decode()[:_MAX_MESSAGE]


Guard = Callable[[Any, str], AbstractContextManager[None]]
"""Takes a fact and a step. Records an error that the body raises instead of raising it."""


def no_guard(_: object, __: str) -> AbstractContextManager[None]:
    """For callers that handle errors themselves."""
    return nullcontext()


class InvalidObjects:
    """Invalid objects by key. A guard handles one object; a later success for the same object clears its entry."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._found: dict[ObjectKey, InvalidObject] = {}
        self._keys: dict[tuple[str, str], set[ObjectKey]] = {}
        """By kind and UID, and by kind and name."""
        self._changed = True

    def guard(self, key: ObjectKey) -> AbstractContextManager[None]:
        """Record an error that the body raises, instead of raising it. The entry stays until the body succeeds."""
        return _ObjectGuard(self, key)

    def end_guard(self, key: ObjectKey, before: InvalidObject | None, error: Exception | None) -> None:
        """`before`: the entry at the start of the body. A success clears it unless the body has recorded another."""
        if error is not None:
            self.record(key, error)
        elif before is not None and self._found.get(key) is before:
            self._remove(key)
        if self._found.get(key) != before:
            self._set_changed()

    def get(self, key: ObjectKey) -> InvalidObject | None:
        return self._found.get(key)

    def guard_change(self, raw: Mapping[str, Any], kind: str, *, is_deleted: bool) -> AbstractContextManager[None]:
        """`guard` for a watch event. The entries of a deleted object are dropped."""
        key = object_key(raw, kind)
        if is_deleted:
            self.forget_object(kind, key.uid, key.name)
        return self.guard(key)

    def forget_object(self, kind: str, *identities: str) -> None:
        """Drop the entries of all steps for the deleted object with this UID or name."""
        self._remove_all({key for one in identities if one for key in self._keys.get((kind, one), ())})

    def retain(self, step: str, uids: Container[str]) -> None:
        """Drop the entries of the step for all other objects, which no body handles any more."""
        self._remove_all({key for key in self._found if key.step == step and key.uid not in uids})

    def replace_steps(self, prefix: str, found: Mapping[ObjectKey, InvalidObject]) -> None:
        """Replace all entries of the steps with this prefix by the entries of another process."""
        before = {key: one for key, one in self._found.items() if key.step.startswith(prefix)}
        for key in before.keys() - found.keys():
            self._remove(key)
        for key, one in found.items():
            self._add(key, one)
        if before != found:
            self._set_changed()

    def _add(self, key: ObjectKey, one: InvalidObject) -> None:
        self._found[key] = one
        for identity in (key.uid, key.name):
            self._keys.setdefault((key.kind, identity), set()).add(key)

    def _remove_all(self, keys: Set[ObjectKey]) -> None:
        for key in keys:
            self._remove(key)
        if keys:
            self._set_changed()

    def _remove(self, key: ObjectKey) -> None:
        del self._found[key]
        for identity in {key.uid, key.name}:
            keys = self._keys[key.kind, identity]
            keys.remove(key)
            if not keys:
                del self._keys[key.kind, identity]

    def _set_changed(self) -> None:
        self._changed = True
        self._on_change()

    def take_changed(self) -> bool:
        """Whether an entry changed since the last call; True for the first."""
        changed, self._changed = self._changed, False
        return changed

    def record(self, key: ObjectKey, error: Exception) -> str:
        """For the body of a guard that continues after an error. Returns the message."""
        reason, message = describe_error(error)
        self._add(key, InvalidObject(kind=key.kind, name=key.name, reason=reason, message=message))
        return message

    def items(self) -> Mapping[ObjectKey, InvalidObject]:
        return dict(self._found)

    def report(self) -> InvalidObjectReport:
        """Sorted by kind and name."""
        found = sorted(self._found.values(), key=lambda one: (one.kind, one.name))
        return InvalidObjectReport(objects=tuple(found[:MAX_REPORTED]), omitted=max(0, len(found) - MAX_REPORTED))

    def count(self) -> Counter[tuple[str, ...]]:
        """By kind and reason."""
        return Counter((one.kind, one.reason) for one in self._found.values())


class _ObjectGuard(AbstractContextManager[None]):
    """Not a generator-based context manager, which takes twice the time. Plans enter thousands of guards."""

    __slots__ = ("_before", "_invalid_objects", "_key")

    def __init__(self, invalid_objects: InvalidObjects, key: ObjectKey) -> None:
        self._invalid_objects, self._key = invalid_objects, key

    def __enter__(self) -> None:
        self._before = self._invalid_objects.get(self._key)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        self._invalid_objects.end_guard(self._key, self._before, error)
        return True
