"""A worker reads messages and states of a newer version: during a rollout, after a rollback, and in a mixed fleet."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import activities
from workflows.runner import WORKFLOWS

_MARKS = (
    "__temporal_workflow_run",
    "__temporal_signal_definition",
    "__temporal_query_definition",
    "__temporal_update_definition",
    "__temporal_activity_definition",
)


def handlers() -> Iterator[Callable[..., Any]]:
    """Every run method, signal, query, update and activity."""
    modules = (import_module(one.name) for one in pkgutil.walk_packages(activities.__path__, "activities."))
    classes = {found for module in modules for _, found in inspect.getmembers(module, inspect.isclass)}
    for one in (*WORKFLOWS, *sorted(classes, key=lambda found: found.__qualname__)):
        for _, function in inspect.getmembers(one, inspect.isfunction):
            if any(hasattr(function, mark) for mark in _MARKS):
                yield function


def models_of(annotation: Any, found: set[type[BaseModel]]) -> None:
    """Add the models that values of this type contain, at any depth."""
    for part in get_args(annotation):
        models_of(part, found)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel) and annotation not in found:
        found.add(annotation)
        for field in annotation.model_fields.values():
            models_of(field.annotation, found)


def sent_and_stored_models() -> list[type[BaseModel]]:
    found = set[type[BaseModel]]()
    for function in handlers():
        for annotation in get_type_hints(function).values():
            models_of(annotation, found)
    return sorted(found, key=lambda model: model.__qualname__)


@pytest.mark.parametrize("model", sent_and_stored_models(), ids=lambda model: model.__name__)
def test_model_accepts_unknown_fields(model: type[BaseModel]) -> None:
    assert model.model_config.get("extra") != "forbid"
