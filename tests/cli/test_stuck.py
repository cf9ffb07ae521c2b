"""`tenure stuck` and `tenure startups`: what is overdue with what follows, slow ones apart, the slowest first."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from cli.lives import NodeLife
from cli.startups import slowest, table
from cli.stuck import OVERDUE, SLOW_ONES, show
from model.facts import ClaimFact

NOW = datetime.now(UTC)


def life(name: str, **more: Any) -> NodeLife:
    fields: dict[str, Any] = {"phase": "Initialization", "pool": "gpu", "since": NOW - timedelta(hours=1), **more}
    return NodeLife(workflow_id=f"demo/nodeclaim/{name}/u", name=name, **fields)


def shown(overdue: list[NodeLife], slow: list[NodeLife], follows: dict[str, str]) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    code = show(console, overdue, slow, follows, NOW)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_an_overdue_node_is_shown_with_its_deadline_what_follows_and_who_is_waited_for() -> None:
    late = life("a", overdue=True, deadline=NOW - timedelta(minutes=30), blocked_by="waits for a person: mend it")
    code, said = shown([late], [], {late.workflow_id: "alarm"})
    assert code == 1
    for part in ("gpu", "Initialization", "1h00m ago", "30m", "late", "alarm", "waits for a person: mend it"):
        assert part in said


def test_slow_nodes_stand_apart_and_are_no_failure() -> None:
    code, said = shown([], [life("b", deadline=NOW + timedelta(minutes=5), blocked_by="slow: NodeNotReady")], {})
    assert code == 0
    assert said.index("No node is overdue") < said.index("Slow") < said.index("slow: NodeNotReady")


def test_nothing_wrong_is_one_line() -> None:
    assert shown([], [], {}) == (0, "No node is overdue.\n")


def test_the_two_queries_ask_for_running_nodes_alone() -> None:
    assert all("ExecutionStatus = 'Running'" in one for one in (OVERDUE, SLOW_ONES))


def claim(name: str, *ends: float | None, **more: Any) -> ClaimFact:
    """`ends`: seconds from birth until launched, registered, initialized."""
    born = NOW - timedelta(seconds=1000)
    moments = [born + timedelta(seconds=one) if one is not None else None for one in ends]
    names = ("launched_at", "registered_at", "initialized_at")
    fields: dict[str, Any] = {"uid": name, "created": born, "pool": "gpu", "initialized": moments[2] is not None}
    return ClaimFact(name=name, **{**fields, **dict(zip(names, moments, strict=True)), **more})


def test_the_slowest_comes_first_and_one_under_way_counts_with_the_time_so_far() -> None:
    claims = [claim("quick", 5, 35, 60), claim("under-way", 5, None, None), claim("slow", 5, 40, 500)]
    found = slowest(claims, NOW)
    assert [(one.claim.name, one.running) for one in found] == [
        ("under-way", "registration"),
        ("slow", ""),
        ("quick", ""),
    ]
    assert found[1].initialization == timedelta(seconds=460) and found[0].initialization is None
    console = Console(file=io.StringIO(), width=200)
    console.print(table(found))
    assert "16m35s so far" in console.file.getvalue()  # type: ignore[attr-defined]


def test_one_that_is_ended_before_it_was_ready_is_no_start_up() -> None:
    assert slowest([claim("a", 5, None, None, deleting=True)], NOW) == []
