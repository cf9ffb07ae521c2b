"""Delivers the cache's events. An error of a subscriber affects only the object that caused it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from tenure.controller.cache.changes import CacheChanged, CacheEvent, ChangeBatch
from tenure.model.invalid_objects import InvalidObjects, ObjectKey

E = TypeVar("E", bound=CacheEvent)

log = structlog.get_logger(__name__)


class ChangeDispatcher:
    """Calls the subscribers of an event in the order of subscription."""

    def __init__(self) -> None:
        self._handlers: dict[type[Any], list[Callable[[Any], None]]] = {}
        self.invalid_objects = InvalidObjects(lambda: self.publish(CacheChanged()))

    def subscribe(self, event: type[E], handler: Callable[[E], None]) -> None:
        self._handlers.setdefault(event, []).append(handler)

    def publish(self, event: CacheEvent) -> None:
        for position, handler in enumerate(self._handlers.get(type(event), ())):
            if isinstance(event, ChangeBatch):
                self._publish_batch(handler, event, f"handle/{position}/{handler.__qualname__}")
            else:
                handler(event)

    def _publish_batch(self, handler: Callable[[ChangeBatch], None], batch: ChangeBatch, step: str) -> None:
        """An error of one object affects neither the other objects of the batch nor the other handlers."""
        try:
            handler(batch)
        except Exception as error:
            log.exception("changes are handled one by one", handler=handler.__qualname__, error=str(error))
            for kind, name, changes in tuple(batch.changes.split()):
                with self.invalid_objects.guard(ObjectKey(kind, name, step=step)):
                    handler(replace(batch, changes=changes))
                batch.changes.merge(changes)
            return
        for key in [one for one in self.invalid_objects.items() if one.step == step]:
            if batch.changes.has_object(key.kind, key.name):
                with self.invalid_objects.guard(key):
                    """The object succeeded with the others."""
