"""Invariants under random events: no wave is exceeded, every wait can end, and healthy rollouts finish."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tenure.model.rollout import GateResult, Image
from tests.support.properties import max_examples
from tests.unit.policy.rollout.rollout_builders import BAD, GOOD, FakeNodePool

GATE = {"queries": [{"name": "errors", "query": "sum(errors)", "below": "0.01"}]}
FAILED = GateResult(outcome="failed", value=3, why="errors: 3 is not below 0.01")
NO_RESPONSE = GateResult(outcome="unknown", why="no response within 10s")

COUNTS = st.lists(st.integers(1, 30), min_size=0, max_size=3, unique=True).map(sorted)
SOAKS = st.sampled_from(["0s", "5m", "1h"])
EVENTS = st.sampled_from(
    [
        "grant",
        "arrive",
        "return permits",
        "wait",
        "long wait",
        "become unhealthy",
        "become healthy",
        "gate fails",
        "gate does not respond",
        "gate passes",
        "approve",
        "reject",
        "newer target",
        "older target",
        "lose node",
        "scale",
    ]
)


@st.composite
def rollouts(draw: st.DrawFn) -> FakeNodePool:
    waves = [{"nodes": str(count), "soak": draw(SOAKS)} for count in draw(COUNTS)]
    rules = {
        "waves": [*waves, {"soak": draw(SOAKS)}],
        "health": GATE if draw(st.booleans()) else {},
        "onFailure": draw(st.sampled_from(["halt", "rollBack"])),
        "approval": {"required": draw(st.booleans())},
    }
    return FakeNodePool(rules, draw(st.integers(1, 30)), budget=draw(st.integers(1, 10))).set_target(BAD)


def apply_event(pool: FakeNodePool, event: str, number: int) -> None:
    match event:
        case "grant":
            pool.grant(1 + number % 5)
        case "arrive":
            pool.arrive()
        case "return permits":
            pool.departing.clear()
        case "wait" | "long wait":
            pool.wait(minutes=3 if event == "wait" else 70)
        case "become unhealthy" | "become healthy":
            pool.healthy = event == "become healthy"
        case "gate fails" | "gate does not respond":
            pool.prometheus["errors"] = FAILED if event == "gate fails" else NO_RESPONSE
        case "gate passes":
            pool.prometheus.clear()
        case "approve":
            pool.approve()
        case "reject":
            pool.reject(roll_back=number % 2 == 1)
        case "newer target":
            pool.set_target(GOOD.model_copy(update={"images": (Image(id=f"ami-{number}"),)}))
        case "older target":
            pool.set_target(GOOD)
        case "lose node" if pool.old:
            pool.old.pop(sorted(pool.old)[number % len(pool.old)])
            pool.departing &= pool.old.keys()
        case "scale":
            pool.new += number % 3


@max_examples(150)
@given(rollouts(), st.lists(st.tuples(EVENTS, st.integers(0, 9)), max_size=25))
def test_no_wave_is_exceeded_and_every_wait_can_end(pool: FakeNodePool, events: list[tuple[str, int]]) -> None:
    for event, number in events:
        apply_event(pool, event, number)
        found = pool.evaluate()
        state = found.state
        if found.headroom is None:
            assert state.finished
            continue
        assert found.why
        waves = [int(one.get("nodes", 10**6)) for one in (pool.rules or {})["waves"]]
        most = state.discounted + waves[min(state.wave, len(waves) - 1)]
        assert state.done + len(state.moving) + found.headroom <= max(most, state.done + len(state.moving))
        assert found.headroom == 0 or not state.halted
        assert found.next_check_at is None or found.next_check_at > pool.now
        if pool.old and found.headroom == 0:
            assert found.next_check_at or "tenure approve" in found.why, found


@max_examples(100)
@given(rollouts(), st.lists(st.tuples(EVENTS, st.integers(0, 9)), max_size=15))
def test_healthy_and_approved_rollout_finishes(pool: FakeNodePool, events: list[tuple[str, int]]) -> None:
    for event, number in events:
        apply_event(pool, event, number)
    pool.healthy = True
    pool.prometheus.clear()
    end = pool.now + timedelta(days=10)
    while not pool.evaluate().state.finished and pool.now < end:
        pool.approve()
        pool.step()
        pool.wait(minutes=30)
    assert pool.state.finished or not pool.old, pool.last


@max_examples(100)
@given(rollouts(), st.integers(0, 60))
def test_bad_image_reaches_only_the_first_wave(pool: FakeNodePool, minutes: int) -> None:
    """New nodes become unhealthy before the end of the first soak, and every plan is approved."""
    assert pool.rules is not None
    first = pool.rules["waves"][0]
    pool.rules = {**pool.rules, "waves": [{"nodes": first.get("nodes", "1"), "soak": "61m"}, {}]}
    goal = min(int(first.get("nodes", "1")), pool.nodes)
    for _ in range(40):
        pool.evaluate()
        pool.approve()
        pool.grant()
        pool.arrive()
    pool.wait(minutes=minutes)
    pool.healthy = False
    pool.wait(hours=5)
    pool.grant()
    pool.arrive()
    assert pool.terminated == goal
    assert pool.state.halted is not None
