"""`tenure get`: nodes as visibility knows them, narrowed by the service, one line each."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.get import PhaseName, condition, listing, shown
from tenure.cli.nodes.workflows import NodeLife
from tenure.cli.output import columns
from tenure.model.nodeclaim_state import Phase

NOW = datetime.now(UTC)


def test_each_node_is_one_line_and_the_last_sums_up() -> None:
    ready = NodeLife("demo/nodeclaim/a/1", "a", "Ready", "web", NOW - timedelta(hours=2), price=0.25)
    late = NodeLife("demo/nodeclaim/b/1", "b", "Drain", deadline=NOW, overdue=True, blocked_by="[pdb] default/web")
    head, first, second, _, last = shown([ready, late], NOW).splitlines()
    assert " ".join(head.split()) == "NodeClaim node NodePool phase since deadline type zone capacity $/h blocked by"
    assert first.split() == ["a", "-", "web", "Ready", "2h00m", "ago", "-", "-", "-", "-", "0.2500", "-"]
    assert "Drain overdue" in second and second.endswith("[pdb] default/web")
    assert last == "2 nodes, 0.25 $/h without 1 of unknown price, 1 overdue: `tenure stuck` says what follows"


def test_a_node_that_is_paused_says_so() -> None:
    held = NodeLife("demo/nodeclaim/a/1", "a", "Ready", "web", NOW, paused=True)
    assert "Ready paused" in shown([held], NOW)
    assert listing([held])["nodes"][0]["paused"] is True


def test_where_there_is_no_node_it_says_where_to_look() -> None:
    assert "tenure doctor" in shown([], NOW)


def test_columns_are_aligned_and_the_last_is_not_padded() -> None:
    assert columns(("a", "b"), [("long", "1"), ("x", "22")]) == "a      b\nlong   1\nx      22"


@pytest.mark.parametrize("pool", ["a' OR 'b", "Web", "-"])
def test_what_is_no_name_of_a_pool_never_reaches_a_query(pool: str) -> None:
    with pytest.raises(Refused, match="--nodepool"):
        condition(pool, "", overdue=False)


def test_nodes_of_every_phase_can_be_asked_for_but_of_those_that_are_gone() -> None:
    assert get_args(PhaseName) == tuple(phase.value for phase in Phase if phase is not Phase.GONE)
