"""Node tables of the demo and of `tenure stuck`: a live table on a terminal, otherwise a line per change."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rich.console import Console

from tenure.cli.demo.screen import Screen, nodeclaims_table
from tenure.cli.nodes.workflows import NodeClaimSummary, format_span
from tenure.cli.sandbox.environment import ClusterView
from tenure.cli.sandbox.probes import PodCount, pod_state

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def make_nodeclaim(name: str = "default-1", **fields: object) -> NodeClaimSummary:
    defaults: dict[str, object] = {"phase": "Launch", "since": NOW - timedelta(seconds=3)} | fields
    return NodeClaimSummary(workflow_id=f"demo/nodeclaim/{name}/1", name=name, **defaults)  # type: ignore[arg-type]


READY = make_nodeclaim(
    phase="Ready",
    instance_id="i-0a",
    instance_type="m7i.2xlarge",
    capacity_type="on-demand",
    zone="us-west-2a",
    node_name="ip-10-0-0-1",
)


def make_console() -> Console:
    return Console(width=200, highlight=False)


def table_text(*nodeclaims: NodeClaimSummary, pods: dict[str, int] | None = None) -> str:
    terminal = make_console()
    with terminal.capture() as capture:
        terminal.print(nodeclaims_table(nodeclaims, pods or {}, NOW, terminal.width))
    return capture.get()


def test_overdue_node_shows_delay() -> None:
    text = table_text(make_nodeclaim(phase="Registration", overdue=True, deadline=NOW - timedelta(seconds=65)))
    assert "Registration overdue" in text
    assert "1m05s late" in text


def test_node_shows_instance_and_running_pods() -> None:
    row = next(line for line in table_text(READY, pods={"ip-10-0-0-1": 7}).splitlines() if "i-0a" in line)
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    assert cells == ["default-1", "Ready", "3s ago", "-", "i-0a", "m7i.2xlarge on-demand", "us-west-2a", "7"]


def test_blocked_by_column_appears_only_with_blocked_nodes() -> None:
    assert "blocked by" not in table_text(READY)
    assert "pdb default/web" in table_text(READY, make_nodeclaim("other", phase="Drain", blocked_by="pdb default/web"))


def test_table_has_only_the_columns_that_fit_the_terminal() -> None:
    blocked = replace(READY, name="default-2", phase="Drain", overdue=True, blocked_by="PodDisruptionBudget")
    terminal = Console(width=80)
    with terminal.capture() as capture:
        terminal.print(nodeclaims_table([READY, blocked], {}, NOW, 80))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in capture.get()
    for value in ("default-2", "Drain overdue", "PodDisruptionBudget"):
        assert value in capture.get()


def test_spans_are_formatted_briefly() -> None:
    spans = [format_span(timedelta(seconds=seconds)) for seconds in (-4, 0, 59, 61, 3600, 7384)]
    assert spans == ["0s", "0s", "59s", "1m01s", "1h00m", "2h03m"]


def test_each_change_is_printed_once() -> None:
    terminal = make_console()
    screen = Screen(terminal)
    waiting = ClusterView(PodCount(pending=3), [make_nodeclaim()])
    running = ClusterView(PodCount(running=3), [READY])
    with terminal.capture() as capture:
        for view in (waiting, waiting, running, running):
            screen.update(view)
    lines = [line.partition(" s  ")[2] for line in capture.get().splitlines()]
    assert [" ".join(line.split()) for line in lines] == [
        "default-1 Launch",
        "pods: 0 Running, 3 Pending",
        "default-1 Ready i-0a m7i.2xlarge on-demand us-west-2a",
        "pods: 3 Running",
    ]


def test_live_table_shows_running_nodes_only() -> None:
    terminal = Console(width=200, force_terminal=True, color_system=None)
    screen = Screen(terminal)
    screen.update(ClusterView(PodCount(running=1), [READY, make_nodeclaim("gone-1", phase="Gone", status="COMPLETED")]))
    with terminal.capture() as capture:
        terminal.print(screen.render())
    assert "default-1" in capture.get()
    assert "gone-1" not in capture.get()


def test_terminal_shows_headings_and_table() -> None:
    terminal = Console(width=200, force_terminal=True, color_system=None)
    with terminal.capture() as capture, Screen(terminal) as screen:
        screen.update(ClusterView(PodCount(running=1), [READY]))
        screen.print_heading("Scale the Deployment")
        screen.clear()
    assert "Scale the Deployment ──" in capture.get() and "pods: 1 Running   nodes: 1" in capture.get()


def test_log_shows_headings_without_table() -> None:
    log = make_console()
    with log.capture() as capture, Screen(log) as screen:
        screen.print_heading("Scale the Deployment")
        screen.clear()
    assert [line.partition(" s  ")[2] for line in capture.get().splitlines()] == ["== Scale the Deployment"]


def test_deleting_pod_is_not_running() -> None:
    pod = {"metadata": {}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    assert pod_state(pod) == ("Running", "n1")
    assert pod_state({**pod, "metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"}}) == ("Leaving", "n1")
    assert pod_state({"metadata": {}}) == ("Pending", "")
