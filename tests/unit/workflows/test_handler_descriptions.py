"""Whoever opens a workflow in Temporal's UI is told what its signals, updates and queries are for."""

import json

import pytest
from temporalio import workflow

from tenure.model.base import Message
from workflows.runner import WORKFLOWS


@pytest.mark.parametrize("kind", WORKFLOWS)
def test_every_handler_says_what_it_is_for(kind: type) -> None:
    found = workflow._Definition.must_from_class(kind)
    descriptions = {name: one.description for name, one in found.signals.items()}
    descriptions |= {name: one.description for name, one in found.updates.items()}
    descriptions |= {name: one.description for name, one in found.queries.items()}
    assert [name for name, description in descriptions.items() if not description] == []


def test_what_people_send_is_told_apart_from_what_the_worker_sends() -> None:
    """The first word says so: where a signal does not come from a person it says from whom."""
    signals = {
        (kind.__name__, name): one.description or ""
        for kind in WORKFLOWS
        for name, one in workflow._Definition.must_from_class(kind).signals.items()
    }
    of_people = {name for (_, name), description in signals.items() if name and not description.startswith("From ")}
    assert of_people == {
        "approve_rollout",
        "approve_event",
        "reject_event",
        "cancel",
        "pause_disruption",
        "reject_rollout",
        "resume_disruption",
    }


def test_an_update_shows_what_to_send_and_that_is_what_it_takes() -> None:
    updates = [one for kind in WORKFLOWS for one in workflow._Definition.must_from_class(kind).updates.values()]
    assert updates
    for one in updates:
        description, [model] = one.description or "", one.arg_types or []
        example = json.loads(description[description.index("{") :])
        assert issubclass(model, Message), model
        assert model.model_validate(example).model_dump(mode="json").items() >= example.items(), description
