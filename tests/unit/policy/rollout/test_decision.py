"""Rollouts: waves, soak, health, halt, the way back, and what a newer spec does."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.rollout import Image, RolloutState
from tenure.policy.rollout.decision import IDLE
from tests.unit.policy.rollout.rollout_builders import BAD, GATE_RESULTS, GOOD, WAVES, FakeNodePool, drifted

GATES = {"health": {"queries": [{"name": "errors", "query": "sum(errors)", "below": "0.01"}]}}


FILLED = {"waves": [{"nodes": "1", "soak": "1h"}, {"nodes": "5%", "soak": "9h"}, {"nodes": "10%"}, {}]}
ROLLS_BACK = {**WAVES, "onFailure": "rollBack"}
SCENARIOS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "one node, then some (20% of 40 are 8, and one went before), then all": (
        WAVES,
        {"nodes": 40},
        "step 1; step 0; wait 10m; step 7; wait 30m; step 32; room None; finished",
    ),
    "a wave soaks from its last node on": (
        {"waves": [{"nodes": "2", "soak": "10m"}, {}]},
        {},
        "grant 1; arrive; wait 20m; step 1; wait 9m59s; room 0; says is watched until 2026-06-01T12:30Z; "
        "wait 1s; room 8",
    ),
    "a wave that others have filled is left out: 1, 5% and 10% of ten nodes are one": (
        FILLED,
        {},
        "step 1; wait 1h; room 9",
    ),
    "the last wave takes all though it says a share": ({"waves": [{"nodes": "50%"}]}, {}, "step 5; step 5; finished"),
    "a pool that shrinks to nothing has been rolled out": ({}, {"replaced": False}, "step 10; finished"),
    "a canary that sickens while it is watched halts it": (
        WAVES,
        {},
        "step 1; wait 8m; sick; wait 1m59s; overdue False; wait 1m; room 0; overdue True; "
        "says halted since 2026-06-01T12:10Z; says 0 of 1 new nodes are Ready, 90% have to be; "
        "says tenure approve PLAN; "
        "wait 72h; step 0",
    ),
    "a flap begins the soak anew and halts nothing": (
        WAVES,
        {},
        "step 1; wait 8m; sick; wait 1m; well; wait 9m; room 0; wait 1m; room 1",
    ),
    "no further node goes while new ones are not well": (
        {"waves": [{}]},
        {},
        "grant 2; arrive; sick; room 0; well; room 8",
    ),
    "nodes that never come up halt it": (
        WAVES,
        {},
        "grant 1; failed_starts 1; wait 5m; halted False; failed_starts 2; wait 2m; "
        "says 2 new NodeClaims did not come to be nodes",
    ),
    "what fails before any node was touched only keeps it from beginning": (
        {**WAVES, **GATES},
        {"prometheus": {"errors": GATE_RESULTS["fails"]}},
        "wait 5h; room 0; halted False; says errors: 3 is not below 0.01; gate passes; wait 1m; room 1",
    ),
    "a gate that fails halts": (
        {**WAVES, **GATES},
        {},
        "step 1; wait 3m; gate fails; wait 3m; says halted; says errors: 3 is not below 0.01",
    ),
    "Prometheus that does not answer holds and does not halt": (
        {**WAVES, **GATES},
        {},
        "step 1; gate is_silent; wait 30m; room 0; halted False; overdue False; "
        "says cannot be ended: errors: no answer within 10s; wait 1h; overdue True; gate passes; wait 1m; room 1",
    ),
    "a roll-back that nobody carries out is overdue": (
        ROLLS_BACK,
        {},
        "step 1; sick; wait 5m; overdue False; wait 1h; overdue True",
    ),
    "a newer spec starts over, and what went for the older one is no part of it": (
        WAVES,
        {},
        "step 1; wait 10m; grant 1; towards newer; room 1; arrive; room 1",
    ),
    "a newer spec ends a halt": (WAVES, {}, "step 1; sick; wait 2m; halted True; towards newer; well; room 1"),
    "what ran well before is trusted when it is written again": (WAVES, {}, "step 1; towards good; room None"),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_roll_out_goes_by_its_rules(scenario: str) -> None:
    rules, fields, script = SCENARIOS[scenario]
    drifted(rules, **fields).play(script)


@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        (
            "step 1; wait 10m; step 7; wait 30m; step 32; room None",
            "RolloutBegan RolloutWaveSoaks RolloutWaveDone RolloutWaveSoaks RolloutWaveDone RolloutFinished",
        ),
        ("step 1; sick; wait 2m; wait 72h", "RolloutBegan RolloutWaveSoaks RolloutHalted"),
        (
            "step 1; wait 10m; grant 1; towards newer; room 1",
            "RolloutBegan RolloutWaveSoaks RolloutWaveDone RolloutSuperseded RolloutBegan",
        ),
    ],
)
def test_each_change_is_an_event_once(script: str, reasons: str) -> None:
    pool = drifted(nodes=40)
    pool.play(script)
    assert pool.event_reasons() == reasons.split()
    assert pool.state.good == (BAD if "RolloutFinished" in reasons else GOOD)
    assert pool.state.wave == (2 if "RolloutFinished" in reasons else 0)


# --- off ---


def test_without_rules_any_number_goes_and_nothing_is_remembered() -> None:
    pool = FakeNodePool(None).towards(BAD)
    found = pool.evaluate()
    assert (found.headroom, found.next_check_at, found.state) == (None, None, RolloutState())


def test_rules_that_are_taken_away_end_the_roll_out() -> None:
    pool = drifted()
    pool.step()
    pool.rules = None
    assert pool.evaluate().headroom is None
    assert pool.state == RolloutState()


# --- waves ---


def test_permits_out_count_in_the_wave_until_they_are_given_back() -> None:
    pool = drifted({"waves": [{"nodes": "3"}, {}]})
    pool.play("grant 2; room 1")
    pool.out.pop()
    assert pool.evaluate().headroom == 2
    assert pool.state.done == 0


def test_drift_that_is_found_bit_by_bit_is_one_roll_out() -> None:
    pool = drifted({"waves": [{"nodes": "20%", "soak": "10m"}, {}]}, nodes=50)
    late = {uid: pool.old.pop(uid) for uid in list(pool.old)[10:]}
    assert pool.step() == 2
    pool.old |= late
    pool.play("wait 10m; step 48")


def test_a_wave_that_left_no_new_node_behind_has_shown_nothing() -> None:
    pool = drifted(replaced=False)
    assert pool.step() == 1
    assert pool.evaluate().headroom == 1, "another node instead of the soak"
    pool.replaced = True
    pool.play("step; says is watched until")


def test_nodes_that_drift_later_and_for_reasons_of_their_own_go_by_budgets_alone() -> None:
    pool = FakeNodePool(WAVES)
    pool.old = {"lost-its-subnet": GOOD}
    assert pool.evaluate().headroom is None


def test_no_roll_out_ends_before_its_drift_is_seen() -> None:
    """Some drift is found only when instances are listed: until then nothing has been shown."""
    pool = drifted({})
    old, pool.old, pool.new = pool.old, {}, 3
    assert pool.wait(minutes=14).headroom == 0
    pool.old, pool.new = old, 0
    assert pool.evaluate().headroom == 10


def test_what_no_node_drifts_from_is_good_after_a_while() -> None:
    """Such as a wider choice of instance types: a rollout after it is compared with it."""
    wider = GOOD.model_copy(update={"requirements": "r2"})
    pool = FakeNodePool(WAVES).towards(wider)
    pool.old, pool.new = {}, 10
    pool.wait(minutes=15)
    assert pool.state.good == wider
    assert pool.event_reasons() == []
    pool.towards(wider.model_copy(update={"images": BAD.images}))
    pool.step()
    assert pool.reject(roll_back=True) == ""


def test_a_pool_without_nodes_has_shown_nothing() -> None:
    pool = FakeNodePool(WAVES, nodes=0).towards(BAD)
    assert pool.wait(hours=5).next_check_at is None
    assert pool.state.good == GOOD


def test_a_target_that_cannot_be_told_holds_and_is_no_other_target() -> None:
    pool = drifted()
    pool.target = None
    pool.play("room 0; says not resolved")
    pool.target = BAD
    assert pool.evaluate().headroom == 1


def test_rules_that_cannot_be_read_hold_the_roll_out() -> None:
    pool = drifted()
    pool.rules = {"waves": [{"nodes": "0"}]}
    found = pool.evaluate()
    assert (found.headroom, found.overdue) == (0, True)
    assert "rollout.waves[0].nodes: '0' replaces nothing; write '1' or more" in found.why


def test_fewer_waves_than_before_are_followed_at_once() -> None:
    pool = drifted()
    pool.play("step; wait 10m")
    pool.rules = {}
    assert pool.evaluate().headroom == 9


# --- health ---


def test_one_bad_node_of_many_is_borne() -> None:
    pool = drifted({}, nodes=20)
    pool.play("grant 10; arrive")
    assert pool.evaluate(ready=9).headroom == 10
    assert pool.evaluate(ready=8).headroom == 0


def test_pods_that_do_not_become_ready_halt_where_they_are_looked_at() -> None:
    pool = drifted({"health": {"podsReady": "80%", "failingFor": "5m"}})
    pool.play("grant 1; arrive")
    pool.pods = (10, 7)
    pool.play("room 0; wait 5m; halted True; says 7 of 10 pods on new nodes are Ready, 80% have to be")
    assert not drifted(pods=(10, 0)).explains("pods")


# --- gates ---


def test_a_gate_is_asked_before_a_node_goes_and_while_it_is_watched() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.step()
    began = pool.now
    pool.wait(minutes=10)
    minutes = [(at - began) // timedelta(minutes=1) for at, _ in pool.gate_queries]
    assert minutes == list(range(11)), "once a minute, and once more when the soak is over"
    assert pool.evaluate().headroom == 1


def test_a_gate_is_not_asked_while_nothing_is_to_go() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.gate_queries.clear()
    assert pool.evaluate(is_requested=False).headroom == 0
    assert pool.gate_queries == []
    assert pool.evaluate(is_requested=False).next_check_at is None


def test_a_roll_out_that_has_begun_and_waits_is_looked_at_now_and_then() -> None:
    pool = drifted({})
    pool.play("grant 1; arrive")
    assert pool.evaluate(is_requested=False).next_check_at == pool.now + IDLE


def test_a_changed_query_is_another_question() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.rules = {**WAVES, "health": {"queries": [{"name": "errors", "query": "sum(faults)", "below": "0.01"}]}}
    pool.play("gate fails; room 0")


# --- the way back, and newer specs ---


def test_the_last_good_image_is_taken_again_where_the_image_was_the_change() -> None:
    pool = drifted(ROLLS_BACK)
    pool.play("step; sick")
    found = pool.wait(minutes=2)
    assert found.roll_back is not None
    assert (found.roll_back.node_class, found.roll_back.images) == ("default", {"ami-bad": "ami-good"})
    assert pool.explains("EC2NodeClass default takes ami-good again")
    assert pool.wait(minutes=5).roll_back == found.roll_back, "until the class has it"
    pool.play("towards good; well")
    assert len(pool.old) == 1, "the bad node alone"
    assert pool.evaluate().headroom is None
    assert pool.evaluate().roll_back is None


def test_what_changed_beside_the_image_is_not_taken_back() -> None:
    other = BAD.model_copy(update={"pool": "p2"})
    pool = FakeNodePool(ROLLS_BACK).towards(other)
    pool.play("step; sick")
    found = pool.wait(minutes=2)
    assert found.roll_back is None
    assert "not the image alone has changed, but the NodePool's template and the image" in found.why


def test_images_are_taken_back_each_for_the_nodes_it_is_for() -> None:
    arm, amd = Image(id="ami-arm", requirements="arm64"), Image(id="ami-amd", requirements="amd64")
    both = GOOD.model_copy(update={"images": (amd, arm)})
    pool = FakeNodePool({"onFailure": "rollBack"}, target=both)
    pool.towards(both.model_copy(update={"images": (amd, arm.model_copy(update={"id": "ami-arm2"}))}))
    pool.play("grant 1; arrive; sick")
    found = pool.wait(minutes=2)
    assert found.roll_back is not None
    assert found.roll_back.images == {"ami-arm2": "ami-arm"}


def test_without_a_known_good_one_it_halts() -> None:
    pool = FakeNodePool(None).towards(BAD)
    pool.rules = ROLLS_BACK
    pool.play("step; sick")
    found = pool.wait(minutes=2)
    assert found.roll_back is None
    assert "the last good state is unknown" in found.why


def test_a_workflow_that_has_lost_its_state_takes_it_from_the_node_pool() -> None:
    pool = drifted()
    pool.play("step; sick; wait 2m")
    saved, pool.state = pool.state.model_dump_json(), RolloutState()
    assert pool.evaluate(stored_state=saved).headroom == 0
    assert pool.state.good == GOOD
    assert pool.explains("halted since")
    pool.state = RolloutState()
    assert pool.evaluate(stored_state="{not json").headroom == 0, (
        "as one that is first heard of, with a node that is not well"
    )


def test_nodes_that_were_on_their_way_when_the_state_was_lost_count_in_their_wave() -> None:
    pool = drifted({"waves": [{"nodes": "3", "soak": "10m"}, {}]})
    assert pool.grant(2) == 2
    saved = pool.state.model_copy(update={"moving": ()}).model_dump_json()
    pool.state = RolloutState()
    assert pool.evaluate(stored_state=saved).headroom == 1
    pool.play("arrive; look")
    assert (pool.state.done, pool.evaluate().headroom) == (2, 1)
