"""`tenure history`: what happened, in words; and histories that outlive Temporal."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.history import open_archive
from tenure.cli.nodes.timeline import list_activity_calls, list_history_entries
from tests.replay.record import HISTORIES


def stored_entries(name: str) -> list[str]:
    history = WorkflowHistory.from_json("stored", (HISTORIES / f"{name}.json").read_text())
    return [f"{one.kind}: {one.text}" for one in list_history_entries(history.events)]


def test_a_stored_life_reads_from_its_begin_to_its_end() -> None:
    entries = stored_entries("nodeclaim_by_hand")
    assert entries[0] == "life: begins" and entries[-1] == "life: ended"
    assert any(line.startswith("shown: ") and "Phase Registration" in line for line in entries)
    assert any(line.startswith("activity: ") and line.endswith("is done") for line in entries)


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
def test_every_stored_history_can_be_told(path: Path) -> None:
    assert stored_entries(path.stem)[0] == "life: begins"


def test_calls_say_how_they_ended_after_how_many_tries_and_how_long_they_took() -> None:
    history = WorkflowHistory.from_json("stored", (HISTORIES / "nodeclaim_faults.json").read_text())
    lines = [one.format_line() for one in list_activity_calls(history.events)]
    assert lines[1] == "launch_alone (CreateFleet) failed: 503 at try 23, 285.2 s"
    assert "register_node (register node-a) failed: no, 0.0 s" in lines
    history = WorkflowHistory.from_json("stored", (HISTORIES / "interruption_reads.json").read_text())
    under_way = [one for one in list_activity_calls(history.events) if one.format_line().endswith("is under way")]
    assert {one.as_json()["end"] for one in under_way} == {None}


@pytest.mark.parametrize("to", ["gs://bucket", "s3://"])
def test_what_is_no_place_is_refused_with_what_to_write(to: str) -> None:
    with pytest.raises(UsageError, match="s3://bucket/prefix"):
        open_archive(to)
