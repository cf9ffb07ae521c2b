"""`tenure get`: nodes from visibility, filtered by the server, one line each."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.get import (
    PhaseName,
    SortKey,
    build_condition,
    find_changes,
    format_blockers,
    format_stopped,
    format_table,
    nodes_as_json,
    sort_nodes,
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
    assert " ".join(head.split()) == "NODECLAIM NODE NODEPOOL PHASE SINCE DEADLINE TYPE ZONE CAPACITY $/H BLOCKED BY"
    assert first.split() == ["a", "-", "web", "Ready", "2h00m", "-", "-", "-", "-", "0.2500", "-"]
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
    assert format_columns(("a", "b"), [("long", "1"), ("x", "22")]) == "A      B\nlong   1\nx      22"


LONG = NodeClaimSummary(
    "demo/nodeclaim/general-purpose-x7k2p/1",
    "general-purpose-x7k2p",
    "Initialization",
    "general-purpose",
    since=NOW - timedelta(minutes=4),
    deadline=NOW + timedelta(minutes=11, seconds=30),
    blocked_by="PodDisruptionBudget",
    instance_type="c6a.2xlarge",
    zone="eu-west-1a",
    capacity_type="on-demand",
    price=0.25,
    node_name="ip-192-168-12-34.eu-west-1.compute.internal",
)


def test_columns_that_do_not_fit_are_omitted() -> None:
    wide, narrow = (format_table([LONG], NOW, width).splitlines()[:2] for width in (None, 80))
    assert "ip-192-168-12-34" in wide[1] and "eu-west-1a" in wide[1]
    assert max(map(len, narrow)) <= 80
    assert narrow[0].split() == ["NODECLAIM", "PHASE", "SINCE", "DEADLINE", "BLOCKED", "BY"]
    assert format_table([LONG], NOW, 100).splitlines()[0].split()[4] == "TYPE"
    assert "PodDisruptionBudget" in format_table([LONG], NOW, 10)


def test_nodes_are_sorted() -> None:
    cheap, late = replace(LONG, name="cheap", price=0.1), replace(LONG, name="late", deadline=None, phase="Launch")
    names = {key: [one.name for one in sort_nodes([LONG, cheap, late], key)] for key in get_args(SortKey)}
    assert names["price"] == ["general-purpose-x7k2p", "late", "cheap"]
    assert names["deadline"] == ["general-purpose-x7k2p", "cheap", "late"]
    assert names["phase"][0] == "late" and names["name"][0] == "cheap"
    assert sort_nodes([late, cheap], None) == [late, cheap]


def test_watch_prints_new_changed_and_deleted_nodes() -> None:
    same, changed = replace(LONG, name="same"), replace(LONG, name="changed")
    before = {one.name: one for one in (same, changed, LONG)}
    after = [same, replace(changed, phase="Ready"), replace(LONG, name="new")]
    found = [(one.name, one.phase) for one in find_changes(before, after)]
    assert found == [("changed", "Ready"), ("new", "Initialization"), ("general-purpose-x7k2p", "Deleted")]


@pytest.mark.parametrize("pool", ["a' OR 'b", "Web", "-"])
def test_invalid_nodepool_name_is_rejected_before_query(pool: str) -> None:
    with pytest.raises(UsageError, match="--nodepool"):
        build_condition(pool, "", overdue=False)


def test_every_phase_except_deleted_can_be_filtered() -> None:
    assert get_args(PhaseName) == tuple(phase.value for phase in Phase if phase is not Phase.DELETED)
