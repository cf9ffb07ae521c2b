"""How long a node that is away is expected back, and since when it is away."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.labels import MAINTENANCE_UNTIL, NOT_READY_INTERVALS
from tenure.model.facts import NodeClaimFact, NodeFact, Taint
from tenure.model.node_health import NotReadyInterval, format_intervals
from tenure.scheduling.not_ready_grace import NodePresence, NotReadyGrace
from tests.unit.scheduling.builders import GIB, NOW, Cluster, node, nodeclaim, pod, pool, taint

GRACE = timedelta(seconds=100)
NOT_READY = taint("node.kubernetes.io/not-ready")
NETWORK = taint("node.kubernetes.io/network-unavailable")
CNI = taint("cni.example.com/agent-not-ready", effect="NoExecute")
OWN = taint("team")


def seconds_ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def not_ready_node(ready_for: float | None = None, *, lost_for: float = 0, **taints: float) -> NodeFact:
    """Ready since, or NotReady since; taints by the name of the constants above, each there for so many seconds."""
    taints_by_name: dict[str, Taint] = {name: globals()[name] for name in taints}
    return node(
        "n",
        ready=ready_for is not None,
        ready_changed=seconds_ago(lost_for if ready_for is None else ready_for),
        taints=tuple(taints_by_name.values()),
        tainted={taints_by_name[name].name: seconds_ago(seconds) for name, seconds in taints.items()},
    )


def build_nodeclaim(found: NodeFact, *record: tuple[float, float | None], initialized: float = 5000) -> NodeClaimFact:
    """Its NodeClaim, which declares CNI; the record in seconds ago."""
    intervals = [NotReadyInterval(since=seconds_ago(a), until=None if b is None else seconds_ago(b)) for a, b in record]
    return nodeclaim(
        "c",
        on=found,
        initialized_at=seconds_ago(initialized),
        startup_taints=(CNI,),
        annotations={NOT_READY_INTERVALS: format_intervals(intervals)} if intervals else {},
    )


@pytest.mark.parametrize(
    ("found", "presence", "since"),
    [
        pytest.param(not_ready_node(10), "here", None, id="Ready"),
        pytest.param(not_ready_node(10, OWN=10), "here", None, id="a taint that stays"),
        pytest.param(not_ready_node(lost_for=99), "expected", 99, id="NotReady"),
        pytest.param(not_ready_node(lost_for=100), "lost", 100, id="NotReady for too long"),
        pytest.param(not_ready_node(900, NETWORK=99), "expected", 99, id="Ready without a network"),
        pytest.param(not_ready_node(900, NETWORK=100), "lost", 100, id="without a network for too long"),
        pytest.param(not_ready_node(900, CNI=99), "expected", 99, id="a declared startup taint that came back"),
        pytest.param(not_ready_node(900, CNI=100), "lost", 100, id="came back and stayed"),
        pytest.param(not_ready_node(20, CNI=80), "expected", 80, id="Ready again, and its network is not"),
        pytest.param(not_ready_node(lost_for=20, NOT_READY=19, CNI=120), "lost", 120, id="the earliest counts"),
    ],
)
def test_a_node_that_is_away_is_expected_for_the_grace(
    found: NodeFact, presence: NodePresence, since: float | None
) -> None:
    grace = NotReadyGrace(found, GRACE, build_nodeclaim(found))
    assert grace.presence(NOW) == presence
    assert grace.not_ready_since == (None if since is None else seconds_ago(since))


@pytest.mark.parametrize(
    ("record", "used", "interval_count"),
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
    record: tuple[tuple[float, float | None], ...], used: float, interval_count: int
) -> None:
    flapping = not_ready_node(lost_for=30)
    grace = NotReadyGrace(flapping, GRACE, build_nodeclaim(flapping, *record))
    assert grace.used_time(NOW).total_seconds() == used
    assert grace.interval_count(NOW) == interval_count
    assert grace.presence(NOW) == ("expected" if used < 100 else "lost")


def test_a_node_that_flaps_is_not_expected_for_ever() -> None:
    """Away for 20 s of every 40 s: Ready's own time never says more than 20 s."""
    record: list[tuple[float, float | None]] = []
    for number in range(20):
        flapping = not_ready_node(lost_for=19)
        if NotReadyGrace(flapping, GRACE, build_nodeclaim(flapping, *record)).presence(NOW) == "lost":
            assert number == 5
            return
        record = [(since + 40, (until or 0) + 40) for since, until in [*record, (19, -1)]]
    raise AssertionError("it was expected back for ever")


def test_a_node_that_was_well_for_long_has_its_whole_grace() -> None:
    found = not_ready_node(lost_for=99)
    assert NotReadyGrace(found, GRACE, build_nodeclaim(found, (3700, 3600), (900, 700))).presence(NOW) == "expected"


def test_what_was_before_initialization_is_not_counted() -> None:
    found = not_ready_node(900, NETWORK=900)
    assert NotReadyGrace(found, GRACE, build_nodeclaim(found, initialized=50)).used_time(NOW) == timedelta(seconds=50)


def test_a_node_is_not_lost_before_its_grace_can_be_over_and_is_looked_at_then() -> None:
    found = not_ready_node(lost_for=30)
    grace = NotReadyGrace(found, GRACE, build_nodeclaim(found, (620, 570)))
    at, checks = NOW, 0
    while grace.presence(at) == "expected":
        assert grace.earliest_end(at) > at
        at, checks = grace.earliest_end(at), checks + 1
        assert checks < 100
    assert grace.used_time(at) >= GRACE
    assert grace.presence(at - timedelta(seconds=1)) == "expected"


def test_why_it_is_away_is_said_without_flickering() -> None:
    assert NotReadyGrace(not_ready_node(lost_for=1, NOT_READY=1), GRACE).describe_causes == "NotReady"
    assert NotReadyGrace(not_ready_node(1, NOT_READY=1), GRACE).describe_causes == "NotReady"
    found = not_ready_node(9, CNI=1, NETWORK=2)
    assert NotReadyGrace(found, GRACE, build_nodeclaim(found)).describe_causes == f"{CNI.name}, {NETWORK.name}"


GPU = "nvidia.com/gpu"


def without_gpu(since: float | None, **more: object) -> NodeFact:
    """A node whose GPU is not allocatable; missing since, or for longer than anybody watched."""
    resources = {"cpu": 8000, "memory": 16 * GIB, "pods": 58}
    missing = {} if since is None else {GPU: seconds_ago(since)}
    return node("n", capacity={**resources, GPU: 1}, allocatable={**resources, GPU: 0}, missing=missing, **more)  # type: ignore[arg-type]


def gpu_claim(found: NodeFact, *record: tuple[float, float | None]) -> NodeClaimFact:
    amounts = {**found.allocatable, GPU: 1}
    return build_nodeclaim(found, *record).model_copy(
        update={"requests": {"cpu": 1000, GPU: 1}, "allocatable": amounts}
    )


@pytest.mark.parametrize(
    ("since", "record", "presence"),
    [
        pytest.param(99, (), "expected", id="missing"),
        pytest.param(100, (), "lost", id="missing for too long"),
        pytest.param(None, ((60, None),), "expected", id="on record since then"),
        pytest.param(None, (), "lost", id="nobody knows since when"),
    ],
)
def test_a_node_without_a_device_that_was_asked_for_is_away(
    since: float | None, record: tuple[tuple[float, float | None], ...], presence: NodePresence
) -> None:
    found = without_gpu(since)
    grace = NotReadyGrace(found, GRACE, gpu_claim(found, *record))
    assert grace.presence(NOW) == presence and grace.describe_causes == f"{GPU} is not allocatable"
    assert NotReadyGrace(found, GRACE, build_nodeclaim(found)).presence(NOW) == "here", "nobody asked for it"


def test_a_pod_that_needs_the_device_waits_for_it_within_the_grace_and_others_never_lose_the_node() -> None:
    for since, waits in ((99, True), (100, False)):
        found = without_gpu(since)
        cluster = Cluster(pool(), found, gpu_claim(found), pod("gpu", extra={GPU: 1}), pod("other"))
        plan = cluster.plan(not_ready_grace=GRACE)
        assert plan.nominations == ({"gpu": "n", "other": "n"} if waits else {"other": "n"})


# --- what planning makes of it ---


@pytest.mark.parametrize("taint_ages", [{"NETWORK": 50}, {"CNI": 50}, {"CNI": 50, "NETWORK": 10}])
def test_a_taint_that_passes_buys_no_second_node_within_the_grace(taint_ages: dict[str, float]) -> None:
    found = not_ready_node(900, **taint_ages)
    plan = Cluster(pool(), found, build_nodeclaim(found), pod("p")).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"p": "n"} and not plan.claims


def test_after_the_grace_the_taint_is_a_real_one() -> None:
    found = not_ready_node(900, CNI=100)
    tolerant = pod("t", tolerations=({"key": CNI.key, "operator": "Exists"},))  # type: ignore[arg-type]
    plan = Cluster(pool(), found, build_nodeclaim(found), pod("p"), tolerant).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"t": "n"}
    assert [one.pods for one in plan.claims] == [("p",)]


def test_a_flapping_node_whose_grace_is_used_up_is_no_home() -> None:
    found = not_ready_node(lost_for=10)
    cluster = Cluster(pool(), found, build_nodeclaim(found, (300, 205)), pod("p"))
    assert cluster.plan(not_ready_grace=GRACE).claims
    assert not Cluster(pool(), found, build_nodeclaim(found), pod("p")).plan(not_ready_grace=GRACE).claims


def test_a_startup_taint_that_nobody_declared_is_a_real_one_at_once() -> None:
    found = not_ready_node(900, OWN=1)
    assert Cluster(pool(), found, build_nodeclaim(found), pod("p")).plan(not_ready_grace=GRACE).claims


@pytest.mark.parametrize("one", [NETWORK, NOT_READY, taint("node.kubernetes.io/unreachable", effect="NoExecute"), CNI])
def test_before_initialization_taints_that_pass_are_looked_through_however_long_they_last(one: Taint) -> None:
    starting = node("n", taints=(one,), tainted={one.name: seconds_ago(3000)})
    bought = nodeclaim("c", on=starting, initialized=False, startup_taints=(CNI,))
    plan = Cluster(pool(), starting, bought, pod("p")).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"p": "n"} and not plan.claims


def test_another_taint_counts_before_initialization_too() -> None:
    starting = node("n", taints=(OWN,))
    assert Cluster(pool(), starting, nodeclaim("c", on=starting, initialized=False), pod("p")).plan().claims


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
    found = not_ready_node(lost_for=began)
    grace = NotReadyGrace(found, GRACE, build_nodeclaim(found, *record))
    at, used, lost = NOW, timedelta(), False
    for step in steps:
        assert grace.used_time(at) >= used
        lost = lost or grace.presence(at) == "lost"
        assert not lost or grace.presence(at) == "lost"
        assert grace.earliest_end(at) >= at and (grace.earliest_end(at) == at) is lost
        used, at = grace.used_time(at), at + timedelta(seconds=step)


@pytest.mark.parametrize(
    ("text", "presence", "ends"),
    [
        ((NOW + timedelta(seconds=900)).isoformat(), "expected", 900),
        (NOW.isoformat(), "lost", 0),
        ("soon", "lost", 0),
        ("2030-01-01T00:00:00", "lost", 0),
    ],
)
def test_a_stopped_instance_is_expected_until_its_own_time(text: str, presence: NodePresence, ends: float) -> None:
    found = not_ready_node(lost_for=1000)
    mine = build_nodeclaim(found).model_copy(update={"annotations": {MAINTENANCE_UNTIL: text}})
    grace = NotReadyGrace(found, GRACE, mine)
    assert (grace.presence(NOW), grace.earliest_end(NOW)) == (presence, NOW + timedelta(seconds=ends))
