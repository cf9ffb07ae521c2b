"""Whatever happens in whichever order: no wave is exceeded, nothing waits for nobody, and what is well ends."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tenure.model.rollout import GateResult, Image
from tests.support.properties import max_examples
from tests.unit.policy.rollout.rollout_builders import BAD, GOOD, FakeNodePool

GATE = {"queries": [{"name": "errors", "query": "sum(errors)", "below": "0.01"}]}
FAILED = GateResult(outcome="failed", value=3, why="errors: 3 is not below 0.01")
SILENT = GateResult(outcome="unknown", why="no answer within 10s")

COUNTS = st.lists(st.integers(1, 30), min_size=0, max_size=3, unique=True).map(sorted)
SOAKS = st.sampled_from(["0s", "5m", "1h"])
EVENTS = st.sampled_from(
    [
        "grant",
        "arrive",
        "give back",
        "wait",
        "long wait",
        "sicken",
        "heal",
        "fail",
        "mute",
        "pass",
        "approve",
        "reject",
        "newer",
        "older",
        "lose",
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
    return FakeNodePool(rules, draw(st.integers(1, 30)), budget=draw(st.integers(1, 10))).towards(BAD)


def happen(pool: FakeNodePool, what: str, number: int) -> None:
    match what:
        case "grant":
            pool.grant(1 + number % 5)
        case "arrive":
            pool.arrive()
        case "give back":
            pool.out.clear()
        case "wait" | "long wait":
            pool.wait(minutes=3 if what == "wait" else 70)
        case "sicken" | "heal":
            pool.well = what == "heal"
        case "fail" | "mute":
            pool.prometheus["errors"] = FAILED if what == "fail" else SILENT
        case "pass":
            pool.prometheus.clear()
        case "approve":
            pool.approve()
        case "reject":
            pool.reject(roll_back=number % 2 == 1)
        case "newer":
            pool.towards(GOOD.model_copy(update={"images": (Image(id=f"ami-{number}"),)}))
        case "older":
            pool.towards(GOOD)
        case "lose" if pool.old:
            pool.old.pop(sorted(pool.old)[number % len(pool.old)])
            pool.out &= pool.old.keys()
        case "scale":
            pool.new += number % 3


@max_examples(150)
@given(rollouts(), st.lists(st.tuples(EVENTS, st.integers(0, 9)), max_size=25))
def test_no_wave_is_exceeded_and_nothing_waits_for_nobody(pool: FakeNodePool, events: list[tuple[str, int]]) -> None:
    for what, number in events:
        happen(pool, what, number)
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
def test_what_is_well_again_and_approved_comes_to_an_end(pool: FakeNodePool, events: list[tuple[str, int]]) -> None:
    for what, number in events:
        happen(pool, what, number)
    pool.well = True
    pool.prometheus.clear()
    end = pool.now + timedelta(days=10)
    while not pool.evaluate().state.finished and pool.now < end:
        pool.approve()
        pool.step()
        pool.wait(minutes=30)
    assert pool.state.finished or not pool.old, pool.last


@max_examples(100)
@given(rollouts(), st.integers(0, 60))
def test_a_bad_image_reaches_no_more_than_the_first_wave(pool: FakeNodePool, minutes: int) -> None:
    """It sickens at some time before its first soak is over, whatever is approved."""
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
    pool.well = False
    pool.wait(hours=5)
    pool.grant()
    pool.arrive()
    assert pool.went == goal
    assert pool.state.halted is not None
