"""The NotReady grace period: its start, its consumption by earlier intervals, and its effect on plans."""

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
UNREGISTERED = taint("karpenter.sh/unregistered", effect="NoExecute")
OWN = taint("team")


def seconds_ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def not_ready_node(ready_for: float | None = None, *, lost_for: float = 0, **taints: float) -> NodeFact:
    """A node that is Ready for `ready_for` or NotReady for `lost_for` seconds.

    `taints` are the ages in seconds by name of the constants above.
    """
    taints_by_name: dict[str, Taint] = {name: globals()[name] for name in taints}
    return node(
        "n",
        ready=ready_for is not None,
        ready_changed=seconds_ago(lost_for if ready_for is None else ready_for),
        taints=tuple(taints_by_name.values()),
        tainted={taints_by_name[name].name: seconds_ago(seconds) for name, seconds in taints.items()},
    )


def build_nodeclaim(found: NodeFact, *record: tuple[float, float | None], initialized: float = 5000) -> NodeClaimFact:
    """The NodeClaim of a node, with startup taint CNI; `record` has intervals in seconds before NOW."""
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
        pytest.param(not_ready_node(10, OWN=10), "here", None, id="permanent taint"),
        pytest.param(not_ready_node(lost_for=99), "expected", 99, id="NotReady"),
        pytest.param(not_ready_node(lost_for=100), "lost", 100, id="NotReady beyond the grace period"),
        pytest.param(not_ready_node(900, NETWORK=99), "expected", 99, id="network unavailable"),
        pytest.param(not_ready_node(900, NETWORK=100), "lost", 100, id="network unavailable beyond the grace period"),
        pytest.param(not_ready_node(900, CNI=99), "expected", 99, id="startup taint returned"),
        pytest.param(not_ready_node(900, CNI=100), "lost", 100, id="startup taint returned beyond the grace period"),
        pytest.param(not_ready_node(900, UNREGISTERED=99), "expected", 99, id="not registered again"),
        pytest.param(not_ready_node(900, UNREGISTERED=100), "lost", 100, id="not registered beyond the grace period"),
        pytest.param(not_ready_node(20, CNI=80), "expected", 80, id="Ready again with startup taint"),
        pytest.param(not_ready_node(lost_for=20, NOT_READY=19, CNI=120), "lost", 120, id="earliest cause counts"),
    ],
)
def test_unusable_node_is_expected_during_the_grace_period(
    found: NodeFact, presence: NodePresence, since: float | None
) -> None:
    grace = NotReadyGrace(found, GRACE, build_nodeclaim(found))
    assert grace.presence(NOW) == presence
    assert grace.not_ready_since == (None if since is None else seconds_ago(since))


@pytest.mark.parametrize(
    ("record", "used", "interval_count"),
    [
        pytest.param((), 30, 1, id="first interval"),
        pytest.param(((200, 150),), 80, 2, id="earlier interval counts"),
        pytest.param(((200, 150), (120, 90)), 110, 3, id="all earlier intervals count"),
        pytest.param(((700, 650),), 30, 1, id="interval outside of the window"),
        pytest.param(((620, 590),), 40, 2, id="interval partly in the window"),
        pytest.param(((60, None),), 60, 1, id="ongoing recorded interval started earlier"),
        pytest.param(((200, 150), (60, None)), 110, 2, id="ongoing recorded interval adds to earlier ones"),
        pytest.param(((35, 25),), 35, 2, id="overlapping intervals count once"),
    ],
)
def test_earlier_intervals_consume_the_grace_period(
    record: tuple[tuple[float, float | None], ...], used: float, interval_count: int
) -> None:
    flapping = not_ready_node(lost_for=30)
    grace = NotReadyGrace(flapping, GRACE, build_nodeclaim(flapping, *record))
    assert grace.used_time(NOW).total_seconds() == used
    assert grace.interval_count(NOW) == interval_count
    assert grace.presence(NOW) == ("expected" if used < 100 else "lost")


def test_time_before_initialization_is_not_counted() -> None:
    found = not_ready_node(900, NETWORK=900)
    assert NotReadyGrace(found, GRACE, build_nodeclaim(found, initialized=50)).used_time(NOW) == timedelta(seconds=50)


def test_earliest_end_converges_to_the_end_of_the_grace_period() -> None:
    found = not_ready_node(lost_for=30)
    grace = NotReadyGrace(found, GRACE, build_nodeclaim(found, (620, 570)))
    at, checks = NOW, 0
    while grace.presence(at) == "expected":
        assert grace.earliest_end(at) > at
        at, checks = grace.earliest_end(at), checks + 1
        assert checks < 100
    assert grace.used_time(at) >= GRACE
    assert grace.presence(at - timedelta(seconds=1)) == "expected"


def test_described_causes_are_stable() -> None:
    assert NotReadyGrace(not_ready_node(lost_for=1, NOT_READY=1), GRACE).describe_causes == "NotReady"
    assert NotReadyGrace(not_ready_node(1, NOT_READY=1), GRACE).describe_causes == "NotReady"
    found = not_ready_node(9, CNI=1, NETWORK=2)
    assert NotReadyGrace(found, GRACE, build_nodeclaim(found)).describe_causes == f"{CNI.name}, {NETWORK.name}"


GPU = "nvidia.com/gpu"


def without_gpu(since: float | None, **more: object) -> NodeFact:
    """A node whose GPU is not allocatable for `since` seconds, or for an unknown time."""
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
        pytest.param(100, (), "lost", id="missing beyond the grace period"),
        pytest.param(None, ((60, None),), "expected", id="missing since the recorded interval"),
        pytest.param(None, (), "lost", id="missing since an unknown time"),
    ],
)
def test_node_without_a_requested_device_is_unusable(
    since: float | None, record: tuple[tuple[float, float | None], ...], presence: NodePresence
) -> None:
    found = without_gpu(since)
    grace = NotReadyGrace(found, GRACE, gpu_claim(found, *record))
    assert grace.presence(NOW) == presence and grace.describe_causes == f"{GPU} is not allocatable"
    assert NotReadyGrace(found, GRACE, build_nodeclaim(found)).presence(NOW) == "here", "the device was not requested"


def test_missing_device_affects_only_pods_that_need_it() -> None:
    for since, is_expected in ((99, True), (100, False)):
        found = without_gpu(since)
        cluster = Cluster(pool(), found, gpu_claim(found), pod("gpu", extra={GPU: 1}), pod("other"))
        plan = cluster.plan(not_ready_grace=GRACE)
        assert plan.nominations == ({"gpu": "n", "other": "n"} if is_expected else {"other": "n"})


# --- plans ---


@pytest.mark.parametrize("taint_ages", [{"NETWORK": 50}, {"CNI": 50}, {"CNI": 50, "NETWORK": 10}])
def test_transient_taint_causes_no_launch_within_the_grace_period(taint_ages: dict[str, float]) -> None:
    found = not_ready_node(900, **taint_ages)
    plan = Cluster(pool(), found, build_nodeclaim(found), pod("p")).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"p": "n"} and not plan.claims


def test_transient_taint_excludes_pods_after_the_grace_period() -> None:
    found = not_ready_node(900, CNI=100)
    tolerant = pod("t", tolerations=({"key": CNI.key, "operator": "Exists"},))  # type: ignore[arg-type]
    plan = Cluster(pool(), found, build_nodeclaim(found), pod("p"), tolerant).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"t": "n"}
    assert [one.pods for one in plan.claims] == [("p",)]


def test_flapping_node_without_remaining_grace_period_is_not_used() -> None:
    found = not_ready_node(lost_for=10)
    cluster = Cluster(pool(), found, build_nodeclaim(found, (300, 205)), pod("p"))
    assert cluster.plan(not_ready_grace=GRACE).claims
    assert not Cluster(pool(), found, build_nodeclaim(found), pod("p")).plan(not_ready_grace=GRACE).claims


def test_undeclared_taint_excludes_pods_at_once() -> None:
    found = not_ready_node(900, OWN=1)
    assert Cluster(pool(), found, build_nodeclaim(found), pod("p")).plan(not_ready_grace=GRACE).claims


@pytest.mark.parametrize("one", [NETWORK, NOT_READY, taint("node.kubernetes.io/unreachable", effect="NoExecute"), CNI])
def test_transient_taints_are_ignored_before_initialization(one: Taint) -> None:
    starting = node("n", taints=(one,), tainted={one.name: seconds_ago(3000)})
    starting_nodeclaim = nodeclaim("c", on=starting, initialized=False, startup_taints=(CNI,))
    plan = Cluster(pool(), starting, starting_nodeclaim, pod("p")).plan(not_ready_grace=GRACE)
    assert plan.nominations == {"p": "n"} and not plan.claims


def test_other_taint_excludes_pods_before_initialization() -> None:
    starting = node("n", taints=(OWN,))
    assert Cluster(pool(), starting, nodeclaim("c", on=starting, initialized=False), pod("p")).plan().claims


@given(
    gaps=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 120)), max_size=8),
    began=st.integers(0, 300),
    steps=st.lists(st.integers(1, 60), min_size=1, max_size=30),
)
def test_used_grace_time_never_decreases_while_notready(
    gaps: list[tuple[int, int]], began: int, steps: list[int]
) -> None:
    """A lost node stays lost until it recovers, although old intervals leave the window."""
    record: list[tuple[float, float | None]] = []
    before = began
    for ready, lasted in gaps:
        record.insert(0, (before + ready + lasted, before + ready))
        before += ready + lasted
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
def test_stopped_instance_is_expected_until_its_maintenance_end(text: str, presence: NodePresence, ends: float) -> None:
    found = not_ready_node(lost_for=1000)
    nodeclaim_in_maintenance = build_nodeclaim(found).model_copy(update={"annotations": {MAINTENANCE_UNTIL: text}})
    grace = NotReadyGrace(found, GRACE, nodeclaim_in_maintenance)
    assert (grace.presence(NOW), grace.earliest_end(NOW)) == (presence, NOW + timedelta(seconds=ends))
