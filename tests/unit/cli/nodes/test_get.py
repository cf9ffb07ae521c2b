"""`tenure get`: nodes from visibility, filtered by the server, one line each."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.get import (
    PhaseName,
    build_condition,
    format_blockers,
    format_stopped,
    format_table,
    nodes_as_json,
)
from tenure.cli.nodes.workflows import NodeClaimSummary, StoppedWorkflow
from tenure.cli.output import format_columns
from tenure.model.nodeclaim.state import Phase

NOW = datetime.now(UTC)


def test_each_node_is_one_line_and_last_line_sums_up() -> None:
    ready = NodeClaimSummary("demo/nodeclaim/a/1", "a", "Ready", "web", NOW - timedelta(hours=2), price=0.25)
    late = NodeClaimSummary(
        "demo/nodeclaim/b/1", "b", "Drain", deadline=NOW, overdue=True, blocked_by="[pdb] default/web"
    )
    head, first, second, _, last = format_table([ready, late], NOW).splitlines()
    assert " ".join(head.split()) == "NodeClaim node NodePool phase since deadline type zone capacity $/h blocked by"
    assert first.split() == ["a", "-", "web", "Ready", "2h00m", "ago", "-", "-", "-", "-", "0.2500", "-"]
    assert "Drain overdue" in second and second.endswith("[pdb] default/web")
    assert last == "2 nodes, 0.25 $/h without 1 of unknown price, 1 overdue: `tenure stuck` shows the next action"


def test_paused_node_is_marked() -> None:
    paused = NodeClaimSummary("demo/nodeclaim/a/1", "a", "Ready", "web", NOW, paused=True)
    assert "Ready paused" in format_table([paused], NOW)
    assert nodes_as_json([paused])["nodes"][0]["paused"] is True


def test_blocked_node_has_code_and_sentence() -> None:
    known = NodeClaimSummary(
        "demo/nodeclaim/a/1", "a", "Drain", blocked_by="PodDoNotDisrupt", sentence="pod default/web"
    )
    unknown = NodeClaimSummary("demo/nodeclaim/b/1", "b", "Drain", blocked_by="PodDoNotDisrupt")
    (text,) = format_blockers([known, unknown])
    assert text == "a: PodDoNotDisrupt: pod default/web\n1 more blocked: `tenure why NODE` explains each"
    found = nodes_as_json([known, unknown])["nodes"]
    assert [(one["blockedBy"], one["code"], one["sentence"]) for one in found] == [
        ("PodDoNotDisrupt: pod default/web", "PodDoNotDisrupt", "pod default/web"),
        ("PodDoNotDisrupt", "PodDoNotDisrupt", ""),
    ]
    assert format_blockers([unknown]) == []


def test_terminated_workflow_is_listed_below_nodes() -> None:
    stopped = StoppedWorkflow("demo/provisioning", "Terminated", NOW - timedelta(seconds=30))
    (text,) = format_stopped([stopped], NOW)
    assert text == (
        "workflow demo/provisioning: Terminated 30s ago; a running worker starts it again within two minutes"
    )
    assert nodes_as_json([], [stopped])["stoppedWorkflows"][0]["workflow"] == "demo/provisioning"
    assert format_stopped([], NOW) == []


def test_empty_list_names_doctor_command() -> None:
    assert "tenure doctor" in format_table([], NOW)


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert format_columns(("a", "b"), [("long", "1"), ("x", "22")]) == "a      b\nlong   1\nx      22"


@pytest.mark.parametrize("pool", ["a' OR 'b", "Web", "-"])
def test_invalid_nodepool_name_is_rejected_before_query(pool: str) -> None:
    with pytest.raises(UsageError, match="--nodepool"):
        build_condition(pool, "", overdue=False)


def test_every_phase_except_deleted_can_be_filtered() -> None:
    assert get_args(PhaseName) == tuple(phase.value for phase in Phase if phase is not Phase.DELETED)
