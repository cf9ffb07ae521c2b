"""`tenure history`: readable entries of a workflow history, and the export of histories."""

import re
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.history import open_folder
from tenure.cli.nodes.timeline import list_activity_calls, list_history_entries
from tests.replay.record import HISTORIES


def read_history(name: str) -> WorkflowHistory:
    return WorkflowHistory.from_json("stored", (HISTORIES / f"{name}.json").read_text())


def stored_entries(name: str) -> list[str]:
    return [f"{one.kind}: {one.text}" for one in list_history_entries(read_history(name).events)]


def scheduled_by(event: HistoryEvent) -> int:
    """ID of the event that scheduled the activity of this event, or 0."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    return getattr(attributes, "scheduled_event_id", 0)


def test_stored_history_has_entries_from_start_to_end() -> None:
    entries = stored_entries("nodeclaim_vanished")
    assert entries[0] == "life: started" and entries[-1] == "life: ended"
    assert any(line.startswith("shown: ") and "Phase Registration" in line for line in entries)
    assert any(line.startswith("activity: ") and line.endswith(" completed") for line in entries)


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
def test_every_stored_history_is_readable(path: Path) -> None:
    assert stored_entries(path.stem)[0] == "life: started"


def test_calls_have_outcome_attempts_and_duration() -> None:
    events = read_history("nodeclaim_faults").events
    lines = [one.format_line() for one in list_activity_calls(events)]
    launch = [one for one in events if one.HasField("activity_task_scheduled_event_attributes")][1]
    begun = next(one for one in events if scheduled_by(one) == launch.event_id)
    failed = next(one for one in events if scheduled_by(one) == launch.event_id and one.event_id > begun.event_id)
    tries = begun.activity_task_started_event_attributes.attempt
    seconds = (failed.event_time.ToDatetime() - launch.event_time.ToDatetime()).total_seconds()
    name = launch.activity_task_scheduled_event_attributes.activity_type.name
    assert tries > 20 and seconds > 240
    assert lines[1] == f"{name} (CreateFleet) failed: 503 at attempt {tries}, {seconds:.1f} s"
    assert any(re.fullmatch(r"register_node \(register node-a\) failed: no, \d\.\d s", line) for line in lines)


def test_calls_without_end_are_running() -> None:
    calls = [call for path in HISTORIES.glob("*.json") for call in list_activity_calls(read_history(path.stem).events)]
    under_way = [one for one in calls if one.format_line().endswith("is running")]
    assert {one.as_json()["end"] for one in under_way} == {None}


@pytest.mark.parametrize("to", ["gs://bucket", "s3://bucket/prefix"])
def test_invalid_export_target_is_rejected(to: str) -> None:
    with pytest.raises(UsageError, match="expected a folder"):
        open_folder(to)
