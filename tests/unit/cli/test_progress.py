"""Progress of long operations: bars on a terminal, a few plain lines in logs."""

import io

import pytest
from _pytest.capture import CaptureFixture
from rich.console import Console
from rich.progress import Progress, TextColumn

from tenure.progress import BarProgress, LineProgress, report_progress


def test_logs_get_a_line_per_step_and_every_ten_seconds(
    capsys: CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("tenure.progress.time.monotonic", lambda: now)
    with report_progress() as lines:
        assert isinstance(lines, LineProgress)
        lines.step("adopt: NodeClaims", 40)
        for now in (1.0, 9.9, 10.0, 11.0, 20.0):
            lines.advance(now, f"at {now:.0f}")
        lines.step("done")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "adopt: NodeClaims",
        "adopt: NodeClaims: 25 % at 10",
        "adopt: NodeClaims: 50 % at 20",
        "done",
    ]
    assert "\r" not in err and "\x1b" not in err


def test_next_step_completes_the_bar_of_the_last_one() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    bars = Progress(TextColumn("{task.description}"), console=console)
    progress = BarProgress(bars)
    progress.step("one", 10)
    progress.advance(3, "detail")
    assert [(one.completed, one.fields["detail"]) for one in bars.tasks] == [(3, "detail")]
    progress.step("two")
    assert [(one.completed, one.total, one.finished) for one in bars.tasks] == [(10, 10, True), (0, None, False)]
