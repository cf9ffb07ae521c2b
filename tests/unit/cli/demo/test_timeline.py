"""The timeline shows the duration of each phase, and draws every phase."""

from datetime import UTC, datetime, timedelta

from rich.console import Console

from tenure.cli.demo.timeline import (
    CompletedNodeClaim,
    PhaseInterval,
    calls_table,
    phase_intervals,
    render_bar,
    timeline_table,
)
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.nodeclaim.state import NodeClaimOutcome, Phase, Step

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def step(phase: Phase, seconds: float, cause: str = "") -> Step:
    return Step(phase=phase, at=START + timedelta(seconds=seconds), cause=cause)


STEPS = (
    step(Phase.LAUNCH, 2),
    step(Phase.REGISTRATION, 3),
    step(Phase.INITIALIZATION, 9),
    step(Phase.READY, 10),
    step(Phase.DRAIN, 30, "Empty"),
    step(Phase.TERMINATION, 30.5),
    step(Phase.DELETED, 34),
)


def completed_nodeclaim(name: str, steps: tuple[Step, ...] = STEPS) -> CompletedNodeClaim:
    nodeclaim = NodeClaimSummary(workflow_id=f"demo/nodeclaim/{name}/1", name=name, phase="Gone", zone="us-west-2a")
    return CompletedNodeClaim(
        nodeclaim, NodeClaimOutcome(name=name, uid="1", reason="Empty", instance_type="m7i.large", history=steps)
    )


def rendered(table: object) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_steps_become_phase_intervals() -> None:
    assert [(interval.phase, interval.begin, interval.end) for interval in phase_intervals(STEPS, START)] == [
        (Phase.LAUNCH, 2, 3),
        (Phase.REGISTRATION, 3, 9),
        (Phase.INITIALIZATION, 9, 10),
        (Phase.READY, 10, 30),
        (Phase.DRAIN, 30, 30.5),
        (Phase.TERMINATION, 30.5, 34),
    ]


def test_bar_starts_at_first_phase_and_shows_every_phase() -> None:
    drawn = render_bar(phase_intervals(STEPS, START), total_seconds=34, width=34)
    assert {"L", "R", "I", "=", "T"} <= set(drawn)
    assert len(drawn) == 34


def test_zero_length_phase_at_the_end_is_drawn() -> None:
    assert (
        render_bar(
            [PhaseInterval(Phase.LAUNCH, 0, 10), PhaseInterval(Phase.TERMINATION, 10, 10)], total_seconds=10, width=5
        )
        == "LLLLT"
    )


def test_table_has_one_row_per_node_in_order_of_creation() -> None:
    later = tuple(step(one.phase, (one.at - START).total_seconds() + 5) for one in STEPS)
    text = rendered(timeline_table([completed_nodeclaim("second", later), completed_nodeclaim("first")], start=START))
    rows = [line for line in text.splitlines() if "Empty" in line]
    assert ["first" in rows[0], "second" in rows[1]] == [True, True]
    assert [cell.strip() for cell in rows[0].split("│")][5:11] == ["1.0", "6.0", "1.0", "20.0", "0.5", "3.5"]


def test_intervals_of_rebooted_node_are_summed_per_phase() -> None:
    steps = (*STEPS[:4], step(Phase.INITIALIZATION, 20), step(Phase.READY, 23), *STEPS[4:])
    row = next(
        line
        for line in rendered(timeline_table([completed_nodeclaim("n1", steps)], start=START)).splitlines()
        if "n1" in line
    )
    assert [cell.strip() for cell in row.split("│")][7:9] == ["4.0", "17.0"]


def test_aws_calls_are_sorted_by_count_with_sum() -> None:
    text = rendered(calls_table({"ec2:CreateFleet": 2, "ec2:DescribeInstances": 9, "ssm:GetParameter": 2}))
    assert "AWS calls: 13" in text
    order = [text.index(name) for name in ("DescribeInstances", "CreateFleet", "GetParameter")]
    assert order == sorted(order)
