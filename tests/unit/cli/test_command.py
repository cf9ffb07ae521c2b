"""Durations in options."""

from datetime import timedelta

import pytest

from tenure.cli.command import parse_length
from tenure.cli.exit_codes import UsageError


@pytest.mark.parametrize(("text", "hours"), [("24h", 24), ("90m", 1.5), ("168h", 168), ("0s", 0)])
def test_duration_is_parsed(text: str, hours: float) -> None:
    assert parse_length("--since", text, "24h") == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["yesterday", "Never", "-1h", "0s"])
def test_invalid_duration_is_rejected_with_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--since: "):
        parse_length("--since", text, "24h", zero=False)
