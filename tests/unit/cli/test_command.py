"""Durations in options, and the log of commands."""

import json
from datetime import timedelta

import pytest
import structlog
from _pytest.capture import CaptureFixture

from tenure.cli.command import parse_length
from tenure.cli.exit_codes import UsageError
from tenure.cli.main import main
from tenure.settings import Settings


@pytest.mark.parametrize(("text", "hours"), [("24h", 24), ("90m", 1.5), ("168h", 168), ("0s", 0)])
def test_duration_is_parsed(text: str, hours: float) -> None:
    assert parse_length("--since", text, "24h") == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["yesterday", "Never", "-1h", "0s"])
def test_invalid_duration_is_rejected_with_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--since: "):
        parse_length("--since", text, "24h", zero=False)


def test_result_contains_no_log_of_the_worker_code(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    async def read(*_: Settings | str) -> tuple[()]:
        structlog.get_logger().warning("failed to read prices, using the last known ones")
        return ()

    monkeypatch.setattr("tenure.cli.simulate.instance_types.read", read)
    assert main(["instance-types", "export", "--cluster-name", "demo"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"instanceTypes": []}
    assert "failed to read prices" in captured.err
