"""Blockers of initialization, missing resources of a Node, and expected startup durations."""

from datetime import timedelta

import pytest

from tenure.model.facts import Taint
from tenure.policy.lifecycle.initialization import (
    decide_expected,
    decide_waiting_for,
    default_expected_duration,
    describe_missing_resources,
    summary_of,
)

STARTUP = Taint(key="node.cilium.io/agent-not-ready", effect="NoExecute")
UNINITIALIZED = Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect="NoSchedule", value="true")
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
OWN = Taint(key="team", effect="NoSchedule", value="ml")


def waiting(
    *taints: Taint,
    ready: bool = True,
    startup: tuple[Taint, ...] = (STARTUP,),
    allocatable: dict[str, int] | None = None,
    requests: dict[str, int] | None = None,
) -> tuple[str, ...]:
    return decide_waiting_for(
        ready=ready,
        taints=taints,
        startup_taints=startup,
        allocatable=allocatable or {"cpu": 2000},
        requests=requests or {"cpu": 1000},
    )


@pytest.mark.parametrize(
    ("found", "reasons"),
    [
        (waiting(), []),
        (waiting(OWN), []),
        (waiting(ready=False), ["NodeNotReady"]),
        (waiting(STARTUP), ["StartupTaintsExist"]),
        (waiting(STARTUP, startup=()), []),
        (waiting(STARTUP.model_copy(update={"effect": "NoSchedule"})), []),
        (waiting(STARTUP.model_copy(update={"value": "anything"})), ["StartupTaintsExist"]),
        (waiting(UNINITIALIZED), ["KnownEphemeralTaintsExist"]),
        (waiting(NOT_READY), ["KnownEphemeralTaintsExist"]),
        (waiting(requests={"nvidia.com/gpu": 1}), ["ResourceNotRegistered"]),
        (waiting(requests={"nvidia.com/gpu": 1}, allocatable={"nvidia.com/gpu": 0}), ["ResourceNotRegistered"]),
        (waiting(requests={"nvidia.com/gpu": 1}, allocatable={"nvidia.com/gpu": 4}), []),
        (waiting(requests={"nvidia.com/gpu": 0}), []),
        (
            waiting(STARTUP, NOT_READY, ready=False, requests={"nvidia.com/gpu": 1}),
            ["NodeNotReady", "StartupTaintsExist", "KnownEphemeralTaintsExist", "ResourceNotRegistered"],
        ),
    ],
)
def test_initialization_waits_for(found: tuple[str, ...], reasons: list[str]) -> None:
    assert [one.partition(": ")[0] for one in found] == reasons


def test_blockers_of_initialization_are_named() -> None:
    assert waiting(STARTUP) == ("StartupTaintsExist: node.cilium.io/agent-not-ready:NoExecute",)
    missing = waiting(requests={"nvidia.com/gpu": 1, "vpc.amazonaws.com/pod-eni": 1, "cpu": 1})
    assert missing == ("ResourceNotRegistered: nvidia.com/gpu, vpc.amazonaws.com/pod-eni",)


def test_drivers_without_complete_slices_are_named_last() -> None:
    found = decide_waiting_for(
        ready=False,
        taints=(),
        startup_taints=(),
        allocatable={},
        requests={},
        missing_drivers=("a.example", "b.example"),
    )
    assert found[1:] == ("DRADriverPoolsNotPublished: no complete ResourceSlices of a.example, b.example",)


GI = 2**30
EXPECTED = {"cpu": 4000, "memory": 16 * GI, "nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("requests", "capacity", "missing"),
    [
        ({"cpu": 1}, {"cpu": 4000}, ""),
        ({"cpu": 1}, {"cpu": 3600}, ""),
        ({"cpu": 1}, {"cpu": 3599}, "expected 4 of resource cpu, but found 3599m (90.0% of expected)"),
        ({"cpu": 1}, {"cpu": 8000}, ""),
        ({"cpu": 0}, {"cpu": 1}, ""),
        ({"memory": 1}, {"cpu": 1, "memory": 16 * GI}, ""),
        (
            {"nvidia.com/gpu": 1},
            {"nvidia.com/gpu": 1},
            "expected 2 of resource nvidia.com/gpu, but found 1 (50.0% of expected)",
        ),
        ({"nvidia.com/gpu": 1}, {}, "expected 2 of resource nvidia.com/gpu, but found 0 (0.0% of expected)"),
        ({"example.com/nothing": 1}, {}, ""),
        (
            {"memory": 1, "cpu": 1},
            {"cpu": 1000, "memory": 8 * GI},
            "expected 4 of resource cpu, but found 1 (25.0% of expected)"
            "; expected 16Gi of resource memory, but found 8Gi (50.0% of expected)",
        ),
    ],
)
def test_requested_resources_need_ninety_percent_of_the_expected_capacity(
    requests: dict[str, int], capacity: dict[str, int], missing: str
) -> None:
    assert describe_missing_resources(requests, EXPECTED, capacity) == missing


def test_durations_are_summarized_by_rank() -> None:
    found = summary_of([5, 1, 3, 2, 4, 10, 9, 8, 7, 6, 100])
    assert (found.count, found.median, found.p90, found.longest) == (11, 6, 10, 100)
    with pytest.raises(ValueError, match="no durations"):
        summary_of([])


def test_single_slow_sample_does_not_change_the_expectation() -> None:
    assert decide_expected([40.0] * 20 + [600.0]) == timedelta(seconds=80)


def test_many_slow_samples_raise_the_expectation() -> None:
    assert decide_expected([40.0] * 5 + [400.0] * 5) == timedelta(seconds=500)


def test_too_few_samples_have_no_expectation() -> None:
    assert decide_expected([60.0, 60.0]) is None
    assert default_expected_duration(timedelta(minutes=30)) == timedelta(minutes=3)


def test_expectation_is_at_least_ten_seconds() -> None:
    assert decide_expected([0.0, 0.0, 1.0]) == default_expected_duration(timedelta(seconds=1)) == timedelta(seconds=10)
