"""Signals, updates and queries have descriptions in Temporal's UI."""

import json

import pytest
from temporalio import workflow

from tenure.model.base import Message
from workflows.runner import WORKFLOWS


@pytest.mark.parametrize("kind", WORKFLOWS)
def test_every_handler_has_a_description(kind: type) -> None:
    found = workflow._Definition.must_from_class(kind)
    descriptions = {name: one.description for name, one in found.signals.items()}
    descriptions |= {name: one.description for name, one in found.updates.items()}
    descriptions |= {name: one.description for name, one in found.queries.items()}
    assert [name for name, description in descriptions.items() if not description] == []


def test_operator_signals_differ_from_worker_signals_by_description() -> None:
    """The description of a signal from a component starts with "From"; the others are for operators."""
    signals = {
        (kind.__name__, name): one.description or ""
        for kind in WORKFLOWS
        for name, one in workflow._Definition.must_from_class(kind).signals.items()
    }
    operator_signals = {
        name for (_, name), description in signals.items() if name and not description.startswith("From ")
    }
    assert operator_signals == {
        "approve_rollout",
        "approve_event",
        "reject_event",
        "cancel",
        "pause_disruption",
        "pause_task",
        "reject_rollout",
        "resume_disruption",
        "resume_task",
    }


def test_update_description_contains_valid_example() -> None:
    updates = [one for kind in WORKFLOWS for one in workflow._Definition.must_from_class(kind).updates.values()]
    assert updates
    for one in updates:
        description, [model] = one.description or "", one.arg_types or []
        example = json.loads(description[description.index("{") :])
        assert issubclass(model, Message), model
        assert model.model_validate(example).model_dump(mode="json").items() >= example.items(), description
