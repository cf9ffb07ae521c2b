"""`tenure get`: nodes as visibility knows them, narrowed by the service, one line each."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.get import PhaseName, build_condition, format_table, nodes_as_json
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.cli.output import format_columns
from tenure.model.nodeclaim.state import Phase

NOW = datetime.now(UTC)


def test_each_node_is_one_line_and_the_last_sums_up() -> None:
    ready = NodeClaimSummary("demo/nodeclaim/a/1", "a", "Ready", "web", NOW - timedelta(hours=2), price=0.25)
    late = NodeClaimSummary(
        "demo/nodeclaim/b/1", "b", "Drain", deadline=NOW, overdue=True, blocked_by="[pdb] default/web"
    )
    head, first, second, _, last = format_table([ready, late], NOW).splitlines()
    assert " ".join(head.split()) == "NodeClaim node NodePool phase since deadline type zone capacity $/h blocked by"
    assert first.split() == ["a", "-", "web", "Ready", "2h00m", "ago", "-", "-", "-", "-", "0.2500", "-"]
    assert "Drain overdue" in second and second.endswith("[pdb] default/web")
    assert last == "2 nodes, 0.25 $/h without 1 of unknown price, 1 overdue: `tenure stuck` shows the next action"


def test_a_node_that_is_paused_says_so() -> None:
    paused = NodeClaimSummary("demo/nodeclaim/a/1", "a", "Ready", "web", NOW, paused=True)
    assert "Ready paused" in format_table([paused], NOW)
    assert nodes_as_json([paused])["nodes"][0]["paused"] is True


def test_where_there_is_no_node_it_says_where_to_look() -> None:
    assert "tenure doctor" in format_table([], NOW)


def test_columns_are_aligned_and_the_last_is_not_padded() -> None:
    assert format_columns(("a", "b"), [("long", "1"), ("x", "22")]) == "a      b\nlong   1\nx      22"


@pytest.mark.parametrize("pool", ["a' OR 'b", "Web", "-"])
def test_what_is_no_name_of_a_pool_never_reaches_a_query(pool: str) -> None:
    with pytest.raises(UsageError, match="--nodepool"):
        build_condition(pool, "", overdue=False)


def test_nodes_of_every_phase_can_be_asked_for_but_of_those_that_are_gone() -> None:
    assert get_args(PhaseName) == tuple(phase.value for phase in Phase if phase is not Phase.DELETED)
