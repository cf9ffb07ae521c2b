"""How long a node that is away is expected back, and since when it is away."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.labels import AWAY, EXPECTED_BACK
from tenure.model.facts import ClaimFact, NodeFact, Taint
from tenure.model.node_health import Absence, written
from tenure.scheduling.not_ready_grace import Grace, Standing
from tests.unit.scheduling.builders import GIB, NOW, World, claim, node, pod, pool, taint

GRACE = timedelta(seconds=100)
NOT_READY = taint("node.kubernetes.io/not-ready")
NETWORK = taint("node.kubernetes.io/network-unavailable")
CNI = taint("cni.example.com/agent-not-ready", effect="NoExecute")
OWN = taint("team")


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def away(ready_for: float | None = None, *, lost_for: float = 0, **taints: float) -> NodeFact:
    """Ready since, or NotReady since; taints by the name of the constants above, each there for so many seconds."""
    held: dict[str, Taint] = {name: globals()[name] for name in taints}
    return node(
        "n",
        ready=ready_for is not None,
        ready_changed=ago(lost_for if ready_for is None else ready_for),
        taints=tuple(held.values()),
        tainted={held[name].name: ago(seconds) for name, seconds in taints.items()},
    )


def owner(found: NodeFact, *record: tuple[float, float | None], initialized: float = 5000) -> ClaimFact:
    """Its NodeClaim, which declares CNI; the record in seconds ago."""
    stretches = [Absence(since=ago(a), until=None if b is None else ago(b)) for a, b in record]
    return claim(
        "c",
        on=found,
        initialized_at=ago(initialized),
        startup_taints=(CNI,),
        annotations={AWAY: written(stretches)} if stretches else {},
    )


@pytest.mark.parametrize(
    ("found", "standing", "since"),
    [
        pytest.param(away(10), "here", None, id="Ready"),
        pytest.param(away(10, OWN=10), "here", None, id="a taint that stays"),
        pytest.param(away(lost_for=99), "expected", 99, id="NotReady"),
        pytest.param(away(lost_for=100), "lost", 100, id="NotReady for too long"),
        pytest.param(away(900, NETWORK=99), "expected", 99, id="Ready without a network"),
        pytest.param(away(900, NETWORK=100), "lost", 100, id="without a network for too long"),
        pytest.param(away(900, CNI=99), "expected", 99, id="a declared startup taint that came back"),
        pytest.param(away(900, CNI=100), "lost", 100, id="came back and stayed"),
        pytest.param(away(20, CNI=80), "expected", 80, id="Ready again, and its network is not"),
        pytest.param(away(lost_for=20, NOT_READY=19, CNI=120), "lost", 120, id="the earliest counts"),
    ],
)
def test_a_node_that_is_away_is_expected_for_the_grace(
    found: NodeFact, standing: Standing, since: float | None
) -> None:
    grace = Grace(found, GRACE, owner(found))
    assert grace.standing(NOW) == standing
    assert grace.away_since == (None if since is None else ago(since))


@pytest.mark.parametrize(
    ("record", "used", "stretches"),
    [
        pytest.param((), 30, 1, id="the first time"),
        pytest.param(((200, 150),), 80, 2, id="what it was away before counts too"),
        pytest.param(((200, 150), (120, 90)), 110, 3, id="all of it"),
        pytest.param(((700, 650),), 30, 1, id="not what is longer ago than six graces"),
        pytest.param(((620, 590),), 40, 2, id="of a stretch at the edge the part inside"),
        pytest.param(((60, None),), 60, 1, id="a stretch on record that lasts began before the Node says"),
        pytest.param(((200, 150), (60, None)), 110, 2, id="and adds to the others"),
        pytest.param(((35, 25),), 35, 2, id="nothing is counted twice"),
    ],
)
def test_the_grace_is_used_up_and_not_begun_anew(
    record: tuple[tuple[float, float | None], ...], used: float, stretches: int
) -> None:
    flapping = away(lost_for=30)
    grace = Grace(flapping, GRACE, owner(flapping, *record))
    assert grace.used(NOW).total_seconds() == used
    assert grace.stretches(NOW) == stretches
    assert grace.standing(NOW) == ("expected" if used < 100 else "lost")


def test_a_node_that_flaps_is_not_expected_for_ever() -> None:
    """Away for 20 s of every 40 s: Ready's own time never says more than 20 s."""
    record: list[tuple[float, float | None]] = []
    for number in range(20):
        flapping = away(lost_for=19)
        if Grace(flapping, GRACE, owner(flapping, *record)).standing(NOW) == "lost":
            assert number == 5
            return
        record = [(since + 40, (until or 0) + 40) for since, until in [*record, (19, -1)]]
    raise AssertionError("it was expected back for ever")


def test_a_node_that_was_well_for_long_has_its_whole_grace() -> None:
    found = away(lost_for=99)
    assert Grace(found, GRACE, owner(found, (3700, 3600), (900, 700))).standing(NOW) == "expected"


def test_what_was_before_initialization_is_not_counted() -> None:
    found = away(900, NETWORK=900)
    assert Grace(found, GRACE, owner(found, initialized=50)).used(NOW) == timedelta(seconds=50)


def test_a_node_is_not_lost_before_its_grace_can_be_over_and_is_looked_at_then() -> None:
    found = away(lost_for=30)
    grace = Grace(found, GRACE, owner(found, (620, 570)))
    moment, looks = NOW, 0
    while grace.standing(moment) == "expected":
        assert grace.ends(moment) > moment
        moment, looks = grace.ends(moment), looks + 1
        assert looks < 100
    assert grace.used(moment) >= GRACE
    assert grace.standing(moment - timedelta(seconds=1)) == "expected"


def test_why_it_is_away_is_said_without_flickering() -> None:
    assert Grace(away(lost_for=1, NOT_READY=1), GRACE).why == "NotReady"
    assert Grace(away(1, NOT_READY=1), GRACE).why == "NotReady"
    found = away(9, CNI=1, NETWORK=2)
    assert Grace(found, GRACE, owner(found)).why == f"{CNI.name}, {NETWORK.name}"


GPU = "nvidia.com/gpu"


def without_gpu(since: float | None, **more: object) -> NodeFact:
    """A node whose GPU is not allocatable; missing since, or for longer than anybody watched."""
    room = {"cpu": 8000, "memory": 16 * GIB, "pods": 58}
    missing = {} if since is None else {GPU: ago(since)}
    return node("n", capacity={**room, GPU: 1}, allocatable={**room, GPU: 0}, missing=missing, **more)  # type: ignore[arg-type]


def gpu_claim(found: NodeFact, *record: tuple[float, float | None]) -> ClaimFact:
    amounts = {**found.allocatable, GPU: 1}
    return owner(found, *record).model_copy(update={"requests": {"cpu": 1000, GPU: 1}, "allocatable": amounts})


@pytest.mark.parametrize(
    ("since", "record", "standing"),
    [
        pytest.param(99, (), "expected", id="missing"),
        pytest.param(100, (), "lost", id="missing for too long"),
        pytest.param(None, ((60, None),), "expected", id="on record since then"),
        pytest.param(None, (), "lost", id="nobody knows since when"),
    ],
)
def test_a_node_without_a_device_that_was_asked_for_is_away(
    since: float | None, record: tuple[tuple[float, float | None], ...], standing: Standing
) -> None:
    found = without_gpu(since)
    grace = Grace(found, GRACE, gpu_claim(found, *record))
    assert grace.standing(NOW) == standing and grace.why == f"{GPU} is not allocatable"
    assert Grace(found, GRACE, owner(found)).standing(NOW) == "here", "nobody asked for it"


def test_a_pod_that_needs_the_device_waits_for_it_within_the_grace_and_others_never_lose_the_node() -> None:
    for since, waits in ((99, True), (100, False)):
        found = without_gpu(since)
        world = World(pool(), found, gpu_claim(found), pod("gpu", extra={GPU: 1}), pod("other"))
        plan = world.plan(not_ready_grace=GRACE)
        assert plan.nominations == ({"gpu": "n", "other": "n"} if waits else {"other": "n"})


# --- what planning makes of it ---


@pytest.mark.parametrize("held", [{"NETWORK": 50}, {"CNI": 50}, {"CNI": 50, "NETWORK": 10}])
def test_a_taint_that_passes_buys_no_second_node_within_the_grace(held: dict[str, float]) -> None:
    found = away(900, **held)
    plan = World(pool(), found, owner(found), pod("p")).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"p": "n"} and not plan.claims


def test_after_the_grace_the_taint_is_a_real_one() -> None:
    found = away(900, CNI=100)
    tolerant = pod("t", tolerations=({"key": CNI.key, "operator": "Exists"},))  # type: ignore[arg-type]
    plan = World(pool(), found, owner(found), pod("p"), tolerant).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"t": "n"}
    assert [one.pods for one in plan.claims] == [("p",)]


def test_a_flapping_node_whose_grace_is_used_up_is_no_home() -> None:
    found = away(lost_for=10)
    world = World(pool(), found, owner(found, (300, 205)), pod("p"))
    assert world.plan(not_ready_grace=GRACE).claims
    assert not World(pool(), found, owner(found), pod("p")).plan(not_ready_grace=GRACE).claims


def test_a_startup_taint_that_nobody_declared_is_a_real_one_at_once() -> None:
    found = away(900, OWN=1)
    assert World(pool(), found, owner(found), pod("p")).plan(not_ready_grace=GRACE).claims


@pytest.mark.parametrize("one", [NETWORK, NOT_READY, taint("node.kubernetes.io/unreachable", effect="NoExecute"), CNI])
def test_before_initialization_taints_that_pass_are_looked_through_however_long_they_last(one: Taint) -> None:
    starting = node("n", taints=(one,), tainted={one.name: ago(3000)})
    bought = claim("c", on=starting, initialized=False, startup_taints=(CNI,))
    plan = World(pool(), starting, bought, pod("p")).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"p": "n"} and not plan.claims


def test_another_taint_counts_before_initialization_too() -> None:
    starting = node("n", taints=(OWN,))
    assert World(pool(), starting, claim("c", on=starting, initialized=False), pod("p")).plan().claims


@given(
    gaps=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 120)), max_size=8),
    began=st.integers(0, 300),
    steps=st.lists(st.integers(1, 60), min_size=1, max_size=30),
)
def test_while_a_node_is_away_its_grace_only_runs_out(
    gaps: list[tuple[int, int]], began: int, steps: list[int]
) -> None:
    """Once lost it is not expected again before it has come back, whatever falls out of the window meanwhile."""
    record: list[tuple[float, float | None]] = []
    before = began
    for well, lasted in gaps:
        record.insert(0, (before + well + lasted, before + well))
        before += well + lasted
    found = away(lost_for=began)
    grace = Grace(found, GRACE, owner(found, *record))
    moment, used, lost = NOW, timedelta(), False
    for step in steps:
        assert grace.used(moment) >= used
        lost = lost or grace.standing(moment) == "lost"
        assert not lost or grace.standing(moment) == "lost"
        assert grace.ends(moment) >= moment and (grace.ends(moment) == moment) is lost
        used, moment = grace.used(moment), moment + timedelta(seconds=step)


@pytest.mark.parametrize(
    ("text", "standing", "ends"),
    [
        ((NOW + timedelta(seconds=900)).isoformat(), "expected", 900),
        (NOW.isoformat(), "lost", 0),
        ("soon", "lost", 0),
        ("2030-01-01T00:00:00", "lost", 0),
    ],
)
def test_a_stopped_instance_is_expected_until_its_own_time(text: str, standing: Standing, ends: float) -> None:
    found = away(lost_for=1000)
    mine = owner(found).model_copy(update={"annotations": {EXPECTED_BACK: text}})
    grace = Grace(found, GRACE, mine)
    assert (grace.standing(NOW), grace.ends(NOW)) == (standing, NOW + timedelta(seconds=ends))
