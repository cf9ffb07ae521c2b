"""Startup durations measured on NodeClaims, and the durations expected for new nodes."""

from typing import Any

from tenure.controller.startup_durations import StartupDurations
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.plan import PhaseDurations
from tests.support.controller.builders import CacheHarness, claim, stamp


def started_nodeclaim(
    name: str, *, launch: float = 5, register: float = 30, initialize: float = 20, **more: Any
) -> Any:
    """A NodeClaim with the duration of each phase in seconds."""
    kind = more.pop("type", "m5.large")
    raw = claim(name, **more)
    raw["metadata"]["creationTimestamp"] = stamp(0)
    raw["metadata"]["labels"]["node.kubernetes.io/instance-type"] = kind
    transition_times = {
        "Launched": launch,
        "Registered": launch + register,
        "Initialized": launch + register + initialize,
    }
    raw["status"]["conditions"] = [
        {"type": one, "status": "True", "lastTransitionTime": stamp(seconds)}
        for one, seconds in transition_times.items()
    ]
    return raw


class StartupHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.startup = StartupDurations(self.cache, lambda pool: Deadlines())

    def observe(self, *claims: Any) -> None:
        self.apply_objects("nodeclaims", *claims)
        self.startup.update(self.cache.drain_changes())

    def expected(self, step: str, kind: str = "", pool: str = "general") -> float:
        """The expected duration in seconds, 0 if unknown."""
        found = self.startup.expected_durations(pool)
        times = found.by_type.get(kind, PhaseDurations()) if kind else found.default
        span = getattr(times, step)
        return span.total_seconds() if span else 0.0


def test_default_expectation_is_a_share_of_the_deadline() -> None:
    harness = StartupHarness()
    assert harness.expected("registration") == 90 and harness.expected("initialization") == 180


def test_expectation_of_a_type_follows_its_samples() -> None:
    harness = StartupHarness()
    harness.observe(
        *(started_nodeclaim(f"c{n}") for n in range(5)),
        *(started_nodeclaim(f"g{n}", type="g5", initialize=400) for n in range(5)),
    )
    assert harness.expected("initialization", "m5.large") == 40
    assert harness.expected("initialization", "g5") == 800
    assert harness.expected("registration", "g5") == 60


def test_expectation_falls_back_to_nodepool_and_then_to_cluster() -> None:
    harness = StartupHarness()
    harness.observe(*(started_nodeclaim(f"c{n}", initialize=50) for n in range(5)))
    assert harness.expected("initialization", "new") == 0 and harness.expected("initialization") == 100
    assert harness.expected("initialization", pool="other") == 100
    harness.observe(*(started_nodeclaim(f"o{n}", pool="other", initialize=200) for n in range(3)))
    assert harness.expected("initialization", pool="other") == 400


def test_nodeclaim_counts_once_despite_updates() -> None:
    harness = StartupHarness()
    for number in range(5):
        harness.observe(started_nodeclaim("c1", annotations={"x": str(number)}))
    assert harness.expected("initialization") == 180, "one node is not a sufficient sample"


def test_durations_beyond_the_deadline_are_ignored() -> None:
    harness = StartupHarness()
    harness.observe(*(started_nodeclaim(f"c{n}", initialize=3000) for n in range(5)))
    assert harness.expected("initialization") == 180 and harness.expected("registration") == 60


def test_samples_outlive_their_nodes_and_are_limited() -> None:
    harness = StartupHarness()
    for number in range(80):
        one = started_nodeclaim(f"c{number}", initialize=10 if number < 60 else 100)
        harness.observe(one)
        harness.delete_objects("nodeclaims", one)
        harness.startup.update(harness.cache.drain_changes())
    assert len(harness.startup._recorded) == 0
    assert sum(len(one["initialization"]) for one in harness.startup._samples.values()) == 50


def test_expectations_are_cached_until_a_new_sample() -> None:
    harness = StartupHarness()
    first = harness.startup.expected_durations("general")
    assert harness.startup.expected_durations("general") is first
    harness.observe(started_nodeclaim("c1"))
    assert harness.startup.expected_durations("general") is not first
