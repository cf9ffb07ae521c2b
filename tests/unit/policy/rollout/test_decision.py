"""Rollouts: waves, soak, health, halt, rollback, and newer specs."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.rollout import Image, RolloutState
from tenure.policy.rollout.decision import IDLE
from tenure.policy.rollout.status import format_timestamp
from tests.unit.policy.rollout.rollout_builders import BAD, GATE_RESULTS, GOOD, WAVES, FakeNodePool, drifted

GATES = {"health": {"queries": [{"name": "errors", "query": "sum(errors)", "below": "0.01"}]}}


FILLED = {"waves": [{"nodes": "1", "soak": "1h"}, {"nodes": "5%", "soak": "9h"}, {"nodes": "10%"}, {}]}
ROLLS_BACK = {**WAVES, "onFailure": "rollBack"}
SCENARIOS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "waves of 1, 20% and all of 40 nodes": (
        WAVES,
        {"nodes": 40},
        "step 1; step 0; wait 10m; step 7; wait 30m; step 32; headroom None; finished",
    ),
    "soak starts with the last node of a wave": (
        {"waves": [{"nodes": "2", "soak": "10m"}, {}]},
        {},
        "grant 1; arrive; wait 20m; step 1; wait 9m59s; headroom 0; explains soaks until 2026-06-01T12:30Z; "
        "wait 1s; headroom 8",
    ),
    "waves already filled by earlier waves are skipped": (
        FILLED,
        {},
        "step 1; wait 1h; headroom 9",
    ),
    "last wave covers all nodes despite a percentage": ({"waves": [{"nodes": "50%"}]}, {}, "step 5; step 5; finished"),
    "NodePool that shrinks to zero finishes": ({}, {"replaced": False}, "step 10; finished"),
    "unhealthy canary during its soak halts": (
        WAVES,
        {},
        "step 1; wait 8m; unhealthy; wait 1m59s; overdue False; wait 1m; headroom 0; overdue True; "
        "explains halted at 2026-06-01T12:10Z; explains 0 of 1 new nodes are Ready, expected 90%; "
        "explains tenure approve PLAN; "
        "wait 72h; step 0",
    ),
    "flap restarts the soak without a halt": (
        WAVES,
        {},
        "step 1; wait 8m; unhealthy; wait 1m; healthy; wait 9m; headroom 0; wait 1m; headroom 1",
    ),
    "unhealthy new nodes block further disruption": (
        {"waves": [{}]},
        {},
        "grant 2; arrive; unhealthy; headroom 0; healthy; headroom 8",
    ),
    "failed starts halt": (
        WAVES,
        {},
        "grant 1; failed_starts 1; wait 5m; halted False; failed_starts 2; wait 2m; "
        "explains 2 new NodeClaims failed to start",
    ),
    "gate failing before the first node delays the start": (
        {**WAVES, **GATES},
        {"prometheus": {"errors": GATE_RESULTS["fails"]}},
        "wait 5h; headroom 0; halted False; explains errors: 3 is not below 0.01; gate passes; wait 1m; headroom 1",
    ),
    "failing gate halts": (
        {**WAVES, **GATES},
        {},
        "step 1; wait 3m; gate fails; wait 3m; explains halted; explains errors: 3 is not below 0.01",
    ),
    "Prometheus without response blocks without a halt": (
        {**WAVES, **GATES},
        {},
        "step 1; gate does_not_respond; wait 30m; headroom 0; halted False; overdue False; "
        "explains cannot end: errors: no response within 10s; wait 1h; overdue True; gate passes; "
        "wait 1m; headroom 1",
    ),
    "rollback that is not carried out is overdue": (
        ROLLS_BACK,
        {},
        "step 1; unhealthy; wait 5m; overdue False; wait 1h; overdue True",
    ),
    "newer target restarts without earlier nodes": (
        WAVES,
        {},
        "step 1; wait 10m; grant 1; target newer; headroom 1; arrive; headroom 1",
    ),
    "newer target ends a halt": (
        WAVES,
        {},
        "step 1; unhealthy; wait 2m; halted True; target newer; healthy; headroom 1",
    ),
    "return to the last good target needs no waves": (WAVES, {}, "step 1; target good; headroom None"),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rollout_follows_its_rules(scenario: str) -> None:
    rules, fields, script = SCENARIOS[scenario]
    drifted(rules, **fields).play(script)


@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        (
            "step 1; wait 10m; step 7; wait 30m; step 32; headroom None",
            "RolloutBegan RolloutWaveSoaks RolloutWaveDone RolloutWaveSoaks RolloutWaveDone RolloutFinished",
        ),
        ("step 1; unhealthy; wait 2m; wait 72h", "RolloutBegan RolloutWaveSoaks RolloutHalted"),
        (
            "step 1; wait 10m; grant 1; target newer; headroom 1",
            "RolloutBegan RolloutWaveSoaks RolloutWaveDone RolloutSuperseded RolloutBegan",
        ),
    ],
)
def test_each_change_is_published_once(script: str, reasons: str) -> None:
    pool = drifted(nodes=40)
    pool.play(script)
    assert pool.event_reasons() == reasons.split()
    assert pool.state.good == (BAD if "RolloutFinished" in reasons else GOOD)
    assert pool.state.wave == (2 if "RolloutFinished" in reasons else 0)


def test_event_names_the_end_of_the_soak() -> None:
    pool = drifted(nodes=40)
    pool.play("step 1")
    soaks = next(one for one in pool.events if one.reason == "RolloutWaveSoaks")
    assert soaks.message.endswith(f"soaks until {format_timestamp(pool.now + timedelta(minutes=10))}")


# --- without rules ---


def test_rollout_without_rules_has_no_limit_and_no_state() -> None:
    pool = FakeNodePool(None).set_target(BAD)
    found = pool.evaluate()
    assert (found.headroom, found.next_check_at, found.state) == (None, None, RolloutState())


def test_removed_rules_end_the_rollout() -> None:
    pool = drifted()
    pool.step()
    pool.rules = None
    assert pool.evaluate().headroom is None
    assert pool.state == RolloutState()


# --- waves ---


def test_granted_permits_count_in_the_wave_until_returned() -> None:
    pool = drifted({"waves": [{"nodes": "3"}, {}]})
    pool.play("grant 2; headroom 1")
    pool.departing.pop()
    assert pool.evaluate().headroom == 2
    assert pool.state.done == 0


def test_gradually_detected_drift_is_one_rollout() -> None:
    pool = drifted({"waves": [{"nodes": "20%", "soak": "10m"}, {}]}, nodes=50)
    late = {uid: pool.old.pop(uid) for uid in list(pool.old)[10:]}
    assert pool.step() == 2
    pool.old |= late
    pool.play("wait 10m; step 48")


def test_wave_without_new_node_continues_with_another_node() -> None:
    pool = drifted(replaced=False)
    assert pool.step() == 1
    assert pool.evaluate().headroom == 1, "no soak without a new node"
    pool.replaced = True
    pool.play("step; explains soaks until")


def test_unrelated_drift_is_limited_only_by_budgets() -> None:
    pool = FakeNodePool(WAVES)
    pool.old = {"lost-its-subnet": GOOD}
    assert pool.evaluate().headroom is None


def test_rollout_does_not_finish_before_drift_is_detected() -> None:
    """Some drift is found only when instances are listed."""
    pool = drifted({})
    old, pool.old, pool.new = pool.old, {}, 3
    assert pool.wait(minutes=14).headroom == 0
    pool.old, pool.new = old, 0
    assert pool.evaluate().headroom == 10


def test_target_without_drift_is_good_after_a_while() -> None:
    """An example is a wider choice of instance types. Later rollouts are compared with it."""
    wider = GOOD.model_copy(update={"requirements": "r2"})
    pool = FakeNodePool(WAVES).set_target(wider)
    pool.old, pool.new = {}, 10
    pool.wait(minutes=15)
    assert pool.state.good == wider
    assert pool.event_reasons() == []
    pool.set_target(wider.model_copy(update={"images": BAD.images}))
    pool.step()
    assert pool.reject(roll_back=True) == ""


def test_empty_nodepool_does_not_make_a_target_good() -> None:
    pool = FakeNodePool(WAVES, nodes=0).set_target(BAD)
    assert pool.wait(hours=5).next_check_at is None
    assert pool.state.good == GOOD


def test_unresolved_target_blocks_and_keeps_the_rollout() -> None:
    pool = drifted()
    pool.target = None
    pool.play("headroom 0; explains not resolved")
    pool.target = BAD
    assert pool.evaluate().headroom == 1


def test_invalid_rules_block_the_rollout() -> None:
    pool = drifted()
    pool.rules = {"waves": [{"nodes": "0"}]}
    found = pool.evaluate()
    assert (found.headroom, found.overdue) == (0, True)
    assert "rollout.waves[0].nodes: '0' replaces no node, expected '1' or more" in found.why


def test_reduced_waves_apply_at_once() -> None:
    pool = drifted()
    pool.play("step; wait 10m")
    pool.rules = {}
    assert pool.evaluate().headroom == 9


# --- health ---


def test_one_unhealthy_node_of_many_is_tolerated() -> None:
    pool = drifted({}, nodes=20)
    pool.play("grant 10; arrive")
    assert pool.evaluate(ready=9).headroom == 10
    assert pool.evaluate(ready=8).headroom == 0


def test_unready_pods_halt_only_with_pods_ready_rule() -> None:
    pool = drifted({"health": {"podsReady": "80%", "failingFor": "5m"}})
    pool.play("grant 1; arrive")
    pool.pods = (10, 7)
    pool.play("headroom 0; wait 5m; halted True; explains 7 of 10 pods on new nodes are Ready, expected 80%")
    assert not drifted(pods=(10, 0)).explains("pods")


# --- gates ---


def test_gate_is_queried_before_disruption_and_during_the_soak() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.step()
    began = pool.now
    pool.wait(minutes=10)
    minutes = [(at - began) // timedelta(minutes=1) for at, _ in pool.gate_queries]
    assert minutes == list(range(11)), "once a minute and at the end of the soak"
    assert pool.evaluate().headroom == 1


def test_gate_is_not_queried_without_requests() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.gate_queries.clear()
    assert pool.evaluate(is_requested=False).headroom == 0
    assert pool.gate_queries == []
    assert pool.evaluate(is_requested=False).next_check_at is None


def test_idle_rollout_is_checked_regularly() -> None:
    pool = drifted({})
    pool.play("grant 1; arrive")
    assert pool.evaluate(is_requested=False).next_check_at == pool.now + IDLE


def test_changed_query_is_evaluated_again() -> None:
    pool = drifted({**WAVES, **GATES})
    pool.rules = {**WAVES, "health": {"queries": [{"name": "errors", "query": "sum(faults)", "below": "0.01"}]}}
    pool.play("gate fails; headroom 0")


# --- rollback and newer targets ---


def test_rollback_restores_the_last_good_image() -> None:
    pool = drifted(ROLLS_BACK)
    pool.play("step; unhealthy")
    found = pool.wait(minutes=2)
    assert found.roll_back is not None
    assert (found.roll_back.node_class, found.roll_back.images) == ("default", {"ami-bad": "ami-good"})
    assert pool.explains("EC2NodeClass default returns to ami-good")
    assert pool.wait(minutes=5).roll_back == found.roll_back, (
        "the rollback is repeated until the EC2NodeClass has the image"
    )
    pool.play("target good; healthy")
    assert len(pool.old) == 1, "only the node with the bad image drifts"
    assert pool.evaluate().headroom is None
    assert pool.evaluate().roll_back is None


def test_no_rollback_if_more_than_the_image_changed() -> None:
    other = BAD.model_copy(update={"pool": "p2"})
    pool = FakeNodePool(ROLLS_BACK).set_target(other)
    pool.play("step; unhealthy")
    found = pool.wait(minutes=2)
    assert found.roll_back is None
    assert "more than the image has changed: the NodePool's template and the image" in found.why


def test_rollback_maps_images_by_requirements() -> None:
    arm, amd = Image(id="ami-arm", requirements="arm64"), Image(id="ami-amd", requirements="amd64")
    both = GOOD.model_copy(update={"images": (amd, arm)})
    pool = FakeNodePool({"onFailure": "rollBack"}, target=both)
    pool.set_target(both.model_copy(update={"images": (amd, arm.model_copy(update={"id": "ami-arm2"}))}))
    pool.play("grant 1; arrive; unhealthy")
    found = pool.wait(minutes=2)
    assert found.roll_back is not None
    assert found.roll_back.images == {"ami-arm2": "ami-arm"}


def test_rollout_without_known_good_target_halts() -> None:
    pool = FakeNodePool(None).set_target(BAD)
    pool.rules = ROLLS_BACK
    pool.play("step; unhealthy")
    found = pool.wait(minutes=2)
    assert found.roll_back is None
    assert "the last good state is unknown" in found.why


def test_lost_state_is_restored_from_the_nodepool() -> None:
    pool = drifted()
    pool.play("step; unhealthy; wait 2m")
    saved, pool.state = pool.state.model_dump_json(), RolloutState()
    assert pool.evaluate(stored_state=saved).headroom == 0
    assert pool.state.good == GOOD
    assert pool.explains("was halted at")
    pool.state = RolloutState()
    for invalid in ("{not json", saved.replace('Z"', '"')):
        pool.state = RolloutState()
        assert pool.evaluate(stored_state=invalid).headroom == 0, "treated as a new rollout with an unhealthy node"
        assert pool.state.halted is None


def test_departing_nodes_count_in_their_wave_after_a_restore() -> None:
    pool = drifted({"waves": [{"nodes": "3", "soak": "10m"}, {}]})
    assert pool.grant(2) == 2
    saved = pool.state.model_copy(update={"moving": ()}).model_dump_json()
    pool.state = RolloutState()
    assert pool.evaluate(stored_state=saved).headroom == 1
    pool.play("arrive; evaluate")
    assert (pool.state.done, pool.evaluate().headroom) == (2, 1)
