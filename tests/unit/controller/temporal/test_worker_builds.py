"""Which build becomes the current one without a promotion, and why the others wait."""

from datetime import UTC, datetime

import pytest

from tenure.controller.temporal.promotion import find_rollback_target
from tenure.controller.temporal.worker_versioning import Builds, describe_wait, is_newer, takes_over

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("build", "than", "newer"),
    [
        ("0.10.0", "0.9.0", True),
        ("0.9.0", "0.10.0", False),
        ("v1.0.0", "1.0.0-rc.1", True),
        ("0.3.0+0123456789ab", "0.2.0", True),
        ("0.3.0+b", "0.3.0+a", False),
        ("0.3.0", "main-4f2c", False),
        ("main-4f2c", "0.3.0", False),
    ],
)
def test_builds_are_compared_by_version(build: str, than: str, newer: bool) -> None:
    assert is_newer(build, than) is newer


@pytest.mark.parametrize(
    ("current", "workers", "expected"),
    [
        ("", {}, True),
        ("0.2.0", {"0.2.0": 1, "0.3.0": 1}, False),
        ("0.2.0", {"0.3.0": 1}, True),
        ("main-4f2c", {"main-4f2c": 1, "0.3.0": 1}, False),
        ("main-4f2c", {"0.3.0": 1}, True),
        ("0.4.0", {"0.3.0": 1}, False),
        ("0.3.0", {}, False),
    ],
    ids=["first", "current-polls", "current-is-gone", "not-comparable", "not-comparable-gone", "older", "same"],
)
def test_build_takes_over_only_from_one_without_workers_that_is_not_newer(
    current: str, workers: dict[str, int], expected: bool
) -> None:
    assert takes_over("0.3.0", Builds(current=current, workers=workers)) is expected


def test_waiting_worker_names_the_current_build_and_the_command() -> None:
    polling = describe_wait("0.3.0", Builds(current="0.2.0", workers={"0.2.0": 2}), "demo")
    assert "0.2.0 is current" in polling and "tenure build promote --build 0.3.0" in polling
    without = describe_wait("0.3.0", Builds(current="0.4.0"), "demo")
    assert "newer than 0.3.0" in without and "tenure build rollback --cluster-name demo --build 0.3.0" in without
    assert describe_wait("0.3.0", Builds(current="0.3.0"), "demo") == ""


def test_rollback_selects_the_build_with_workers_that_was_current_last() -> None:
    became = {"0.1.0": NOON.replace(hour=9), "0.2.0": NOON.replace(hour=10), "0.2.1": NOON.replace(hour=11)}
    builds = Builds(current="0.3.0", workers={"0.1.0": 1, "0.2.0": 1, "0.3.0": 1, "0.4.0": 1}, became_current=became)
    assert find_rollback_target(builds) == "0.2.0"
    assert find_rollback_target(Builds(current="0.3.0", workers={"0.3.0": 1})) == ""
