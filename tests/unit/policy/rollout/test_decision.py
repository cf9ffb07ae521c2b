"""Roll-outs: waves, soak, health, halt, the way back, and what a newer spec does."""

from datetime import timedelta

from tenure.model.rollout import GateResult, Image, RolloutState
from tenure.policy.rollout.decision import IDLE
from tests.unit.policy.rollout.rollout_builders import BAD, GOOD, WAVES, FakeNodePool, drifted

NEWER = GOOD.model_copy(update={"images": (Image(id="ami-newer"),)})
GATES = {"health": {"queries": [{"name": "errors", "query": "sum(errors)", "below": "0.01"}]}}
FAILED = GateResult(outcome="failed", value=3, why="errors: 3 is not below 0.01")
SILENT = GateResult(outcome="unknown", why="no answer within 10s")


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


def test_one_node_then_some_then_all() -> None:
    pool = drifted(nodes=40)
    assert pool.step() == 1
    assert pool.step() == 0
    pool.wait(minutes=10)
    assert pool.step() == 7, "20% of 40 are 8, and one went before"
    pool.wait(minutes=30)
    assert pool.step() == 32
    assert pool.evaluate().headroom is None
    assert pool.state.good == BAD
    assert pool.event_reasons() == [
        "RolloutBegan",
        "RolloutWaveSoaks",
        "RolloutWaveDone",
        "RolloutWaveSoaks",
        "RolloutWaveDone",
        "RolloutFinished",
    ]


def test_a_wave_soaks_from_its_last_node_on() -> None:
    pool = drifted({"waves": [{"nodes": "2", "soak": "10m"}, {}]})
    assert pool.grant(1) == 1
    pool.arrive()
    pool.wait(minutes=20)
    assert pool.step() == 1
    assert pool.wait(minutes=9, seconds=59).headroom == 0
    assert pool.explains("is watched until 2026-06-01T12:30Z")
    assert pool.wait(seconds=1).headroom == 8


def test_permits_out_count_in_the_wave_until_they_are_given_back() -> None:
    pool = drifted({"waves": [{"nodes": "3"}, {}]})
    assert pool.grant(2) == 2
    assert pool.evaluate().headroom == 1
    pool.out.pop()
    assert pool.evaluate().headroom == 2
    assert pool.state.done == 0


def test_a_wave_that_others_have_filled_is_left_out() -> None:
    """1, 5% and 10% of ten nodes are one and the same node."""
    pool = drifted({"waves": [{"nodes": "1", "soak": "1h"}, {"nodes": "5%", "soak": "9h"}, {"nodes": "10%"}, {}]})
    pool.step()
    assert pool.wait(hours=1).headroom == 9


def test_the_last_wave_takes_all_though_it_says_a_share() -> None:
    pool = drifted({"waves": [{"nodes": "50%"}]})
    assert (pool.step(), pool.step()) == (5, 5)
    assert pool.state.finished


def test_drift_that_is_found_bit_by_bit_is_one_roll_out() -> None:
    pool = drifted({"waves": [{"nodes": "20%", "soak": "10m"}, {}]}, nodes=50)
    late = {uid: pool.old.pop(uid) for uid in list(pool.old)[10:]}
    assert pool.step() == 2
    pool.old |= late
    pool.wait(minutes=10)
    assert pool.step() == 48


def test_a_wave_that_left_no_new_node_behind_has_shown_nothing() -> None:
    pool = drifted(replaced=False)
    assert pool.step() == 1
    assert pool.evaluate().headroom == 1, "another node instead of the soak"
    pool.replaced = True
    pool.step()
    assert pool.explains("is watched until")


def test_a_pool_that_shrinks_to_nothing_has_been_rolled_out() -> None:
    pool = drifted({}, replaced=False)
    pool.step()
    assert pool.state.finished


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
    """Such as a wider choice of instance types: a roll-out after it is compared with it."""
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
    assert pool.evaluate().headroom == 0
    assert pool.explains("not resolved")
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
    pool.step()
    pool.wait(minutes=10)
    pool.rules = {}
    assert pool.evaluate().headroom == 9


# --- health ---


def test_a_canary_that_sickens_while_it_is_watched_halts_the_roll_out() -> None:
    pool = drifted()
    pool.step()
    pool.wait(minutes=8)
    pool.well = False
    assert not pool.wait(minutes=1, seconds=59).overdue
    found = pool.wait(minutes=1)
    assert found.headroom == 0
    assert found.overdue
    assert "halted since 2026-06-01T12:10Z" in found.why
    assert "0 of 1 new nodes are Ready, 90% have to be" in found.why
    assert f"tenure approve {pool.plan}" in found.why
    pool.wait(hours=72)
    assert pool.step() == 0
    assert pool.event_reasons().count("RolloutHalted") == 1


def test_a_flap_begins_the_soak_anew_and_halts_nothing() -> None:
    pool = drifted()
    pool.step()
    pool.wait(minutes=8)
    pool.well = False
    pool.wait(minutes=1)
    pool.well = True
    assert pool.wait(minutes=9).headroom == 0
    assert pool.wait(minutes=1).headroom == 1


def test_no_further_node_goes_while_new_ones_are_not_well() -> None:
    pool = drifted({"waves": [{}]})
    pool.grant(2)
    pool.arrive()
    pool.well = False
    assert pool.evaluate().headroom == 0
    pool.well = True
    assert pool.evaluate().headroom == 8


def test_one_bad_node_of_many_is_borne() -> None:
    pool = drifted({}, nodes=20)
    pool.grant(10)
    pool.arrive()
    assert pool.evaluate(ready=9).headroom == 10
    assert pool.evaluate(ready=8).headroom == 0


def test_pods_that_do_not_become_ready_halt_where_they_are_looked_at() -> None:
    pool = drifted({"health": {"podsReady": "80%", "failingFor": "5m"}})
    pool.grant(1)
    pool.arrive()
    pool.pods = (10, 7)
    assert pool.evaluate().headroom == 0
    pool.wait(minutes=5)
    assert pool.state.halted is not None
    assert pool.explains("7 of 10 pods on new nodes are Ready, 80% have to be")
    assert not drifted(pods=(10, 0)).explains("pods")


def test_nodes_that_never_come_up_halt_it() -> None:
    pool = drifted()
    pool.grant()
    pool.failed_starts = 1
    pool.wait(minutes=5)
    assert pool.state.halted is None
    pool.failed_starts = 2
    pool.wait(minutes=2)
    assert pool.explains("2 new NodeClaims did not come to be nodes")


def test_what_fails_before_any_node_was_touched_only_keeps_it_from_beginning() -> None:
    pool = drifted({**WAVES, **GATES}, prometheus={"errors": FAILED})
    found = pool.wait(hours=5)
    assert (found.headroom, pool.state.halted) == (0, None)
    assert pool.explains("errors: 3 is not below 0.01")
    pool.prometheus.clear()
    assert pool.wait(minutes=1).headroom == 1


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
    pool.grant(1)
    pool.arrive()
    assert pool.evaluate(is_requested=False).next_check_at == pool.now + IDLE


def test_a_gate_that_fails_halts() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.step()
    pool.wait(minutes=3)
    pool.prometheus["errors"] = FAILED
    pool.wait(minutes=3)
    assert pool.explains("halted")
    assert pool.explains("errors: 3 is not below 0.01")


def test_prometheus_that_does_not_answer_holds_and_does_not_halt() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.step()
    pool.prometheus["errors"] = SILENT
    found = pool.wait(minutes=30)
    assert (found.headroom, pool.state.halted, found.overdue) == (0, None, False)
    assert pool.explains("cannot be ended: errors: no answer within 10s")
    assert pool.wait(hours=1).overdue
    pool.prometheus.clear()
    assert pool.wait(minutes=1).headroom == 1


def test_a_changed_query_is_another_question() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.rules = {**WAVES, "health": {"queries": [{"name": "errors", "query": "sum(faults)", "below": "0.01"}]}}
    pool.prometheus["errors"] = FAILED
    assert pool.evaluate().headroom == 0


# --- the way back, and newer specs ---


def test_the_last_good_image_is_taken_again_where_the_image_was_the_change() -> None:
    pool = drifted({**WAVES, "onFailure": "rollBack"})
    pool.step()
    pool.well = False
    found = pool.wait(minutes=2)
    assert found.roll_back is not None
    assert (found.roll_back.node_class, found.roll_back.images) == ("default", {"ami-bad": "ami-good"})
    assert pool.explains("EC2NodeClass default takes ami-good again")
    assert pool.wait(minutes=5).roll_back == found.roll_back, "until the class has it"
    pool.towards(GOOD)
    pool.well = True
    assert len(pool.old) == 1, "the bad node alone"
    assert pool.evaluate().headroom is None
    assert pool.evaluate().roll_back is None


def test_a_roll_back_that_nobody_carries_out_is_overdue() -> None:
    pool = drifted({**WAVES, "onFailure": "rollBack"})
    pool.step()
    pool.well = False
    assert not pool.wait(minutes=5).overdue
    assert pool.wait(hours=1).overdue


def test_what_changed_beside_the_image_is_not_taken_back() -> None:
    other = BAD.model_copy(update={"pool": "p2"})
    pool = FakeNodePool({**WAVES, "onFailure": "rollBack"}).towards(other)
    pool.step()
    pool.well = False
    found = pool.wait(minutes=2)
    assert found.roll_back is None
    assert "not the image alone has changed, but the NodePool's template and the image" in found.why


def test_images_are_taken_back_each_for_the_nodes_it_is_for() -> None:
    arm, amd = Image(id="ami-arm", requirements="arm64"), Image(id="ami-amd", requirements="amd64")
    both = GOOD.model_copy(update={"images": (amd, arm)})
    pool = FakeNodePool({"onFailure": "rollBack"}, target=both)
    pool.towards(both.model_copy(update={"images": (amd, arm.model_copy(update={"id": "ami-arm2"}))}))
    pool.grant(1)
    pool.arrive()
    pool.well = False
    found = pool.wait(minutes=2)
    assert found.roll_back is not None
    assert found.roll_back.images == {"ami-arm2": "ami-arm"}


def test_without_a_known_good_one_it_halts() -> None:
    pool = FakeNodePool(None).towards(BAD)
    pool.rules = {**WAVES, "onFailure": "rollBack"}
    pool.step()
    pool.well = False
    found = pool.wait(minutes=2)
    assert found.roll_back is None
    assert "it is not known what ran well before" in found.why


def test_a_newer_spec_starts_over_with_the_first_wave() -> None:
    pool = drifted()
    pool.step()
    pool.wait(minutes=10)
    pool.grant(1)
    pool.towards(NEWER)
    assert pool.evaluate().headroom == 1
    assert pool.state.wave == 0
    assert "RolloutSuperseded" in pool.event_reasons()
    pool.arrive()
    assert pool.evaluate().headroom == 1, "what went for the older one is no part of it"


def test_a_newer_spec_ends_a_halt() -> None:
    pool = drifted()
    pool.step()
    pool.well = False
    pool.wait(minutes=2)
    pool.towards(NEWER)
    pool.well = True
    assert pool.evaluate().headroom == 1
    assert pool.state.good == GOOD


def test_what_ran_well_before_is_trusted_when_it_is_written_again() -> None:
    pool = drifted()
    pool.step()
    pool.towards(GOOD)
    assert pool.evaluate().headroom is None


def test_a_workflow_that_has_lost_its_state_takes_it_from_the_node_pool() -> None:
    pool = drifted()
    pool.step()
    pool.well = False
    pool.wait(minutes=2)
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
    pool.arrive()
    pool.evaluate()
    assert (pool.state.done, pool.evaluate().headroom) == (2, 1)
