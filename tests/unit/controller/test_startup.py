"""Start-up times learnt from NodeClaims, what is expected of new nodes, and the gauge of those that are overdue."""

from typing import Any, cast

from temporalio.common import MetricMeter

from tenure.controller.metrics.nodeclaims import NAME, OverdueGauges
from tenure.controller.startup_durations import Startup
from tenure.model.nodeclaim_state import Deadlines
from tenure.model.provisioning import PhaseTimes
from tests.support.controller.builders import World, claim, stamp
from tests.unit.controller.test_offering_gauges import Meter


def started(name: str, *, launch: float = 5, register: float = 30, initialize: float = 20, **more: Any) -> Any:
    """A NodeClaim with what each phase took, in seconds."""
    kind = more.pop("type", "m5.large")
    raw = claim(name, **more)
    raw["metadata"]["creationTimestamp"] = stamp(0)
    raw["metadata"]["labels"]["node.kubernetes.io/instance-type"] = kind
    moments = {"Launched": launch, "Registered": launch + register, "Initialized": launch + register + initialize}
    raw["status"]["conditions"] = [
        {"type": one, "status": "True", "lastTransitionTime": stamp(moment)} for one, moment in moments.items()
    ]
    return raw


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.startup = Startup(self.caches, lambda pool: Deadlines())

    def see(self, *claims: Any) -> None:
        self.hear("nodeclaims", *claims)
        self.startup.look(self.caches.take_dirty())

    def expected(self, step: str, kind: str = "", pool: str = "general") -> float:
        """Seconds."""
        found = self.startup.expected(pool)
        times = found.by_type.get(kind, PhaseTimes()) if kind else found.otherwise
        span = getattr(times, step)
        return span.total_seconds() if span else 0.0


def test_while_nothing_is_known_a_share_of_the_deadline_is_expected() -> None:
    stage = Stage()
    assert stage.expected("registration") == 90 and stage.expected("initialization") == 180


def test_a_type_is_expected_to_take_what_it_took() -> None:
    stage = Stage()
    stage.see(*(started(f"c{n}") for n in range(5)), *(started(f"g{n}", type="g5", initialize=400) for n in range(5)))
    assert stage.expected("initialization", "m5.large") == 40
    assert stage.expected("initialization", "g5") == 800
    assert stage.expected("registration", "g5") == 60


def test_what_is_not_known_of_a_type_is_had_from_its_pool_and_then_from_all() -> None:
    stage = Stage()
    stage.see(*(started(f"c{n}", initialize=50) for n in range(5)))
    assert stage.expected("initialization", "new") == 0 and stage.expected("initialization") == 100
    assert stage.expected("initialization", pool="other") == 100
    stage.see(*(started(f"o{n}", pool="other", initialize=200) for n in range(3)))
    assert stage.expected("initialization", pool="other") == 400


def test_a_claim_counts_once_however_often_it_changes() -> None:
    stage = Stage()
    for number in range(5):
        stage.see(started("c1", annotations={"x": str(number)}))
    assert stage.expected("initialization") == 180, "one node is not enough"


def test_what_took_longer_than_its_deadline_is_no_measure() -> None:
    stage = Stage()
    stage.see(*(started(f"c{n}", initialize=3000) for n in range(5)))
    assert stage.expected("initialization") == 180 and stage.expected("registration") == 60


def test_times_of_nodes_that_are_gone_are_remembered_and_of_so_many_alone() -> None:
    stage = Stage()
    for number in range(80):
        one = started(f"c{number}", initialize=10 if number < 60 else 100)
        stage.see(one)
        stage.lose("nodeclaims", one)
        stage.startup.look(stage.caches.take_dirty())
    assert len(stage.startup._learnt) == 0
    assert sum(len(one["initialization"]) for one in stage.startup._took.values()) == 50


def overdue(name: str, phase: str, **more: Any) -> Any:
    raw = claim(name, **more)
    raw["status"]["conditions"] = [{"type": "tenure.sh/Overdue", "status": "True", "reason": phase}]
    return raw


def test_the_gauge_counts_by_phase_and_pool_and_goes_back_to_nothing() -> None:
    world, meter = World(), Meter()
    gauges = OverdueGauges(world.caches, cast(MetricMeter, meter))

    def news() -> list[Any]:
        gauges.look(world.caches.take_dirty())
        return meter.news()

    world.hear("nodeclaims", overdue("a", "Drain"), overdue("b", "Drain"), overdue("g", "Registration", pool="gpu"))
    assert news() == [(NAME, ("Drain", "general"), 2), (NAME, ("Registration", "gpu"), 1)]
    world.hear("nodeclaims", overdue("a", "Termination"))
    assert news() == [(NAME, ("Drain", "general"), 1), (NAME, ("Termination", "general"), 1)]
    assert news() == []
    world.lose("nodeclaims", overdue("a", "Termination"))
    world.hear("nodeclaims", claim("b"))
    assert news() == [(NAME, ("Drain", "general"), 0), (NAME, ("Termination", "general"), 0)]
    gauges.close()
    assert meter.news() == [(NAME, ("Registration", "gpu"), 0)]


def test_a_watch_that_begins_anew_finds_what_is_overdue_on_the_claims() -> None:
    world, meter = World(), Meter()
    world.hear("nodeclaims", overdue("a", "Launch"))
    OverdueGauges(world.caches, cast(MetricMeter, meter)).look(world.caches.take_dirty())
    assert meter.news() == [(NAME, ("Launch", "general"), 1)]


def test_expectations_are_kept_until_something_is_learnt() -> None:
    stage = Stage()
    first = stage.startup.expected("general")
    assert stage.startup.expected("general") is first
    stage.see(started("c1"))
    assert stage.startup.expected("general") is not first
