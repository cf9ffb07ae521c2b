"""Repair: what is tolerated for how long, what adds up, which step follows which, and the breaker."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.node_health import Health, UnhealthyCondition
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.lifecycle.repair import (
    KARPENTERS,
    Repair,
    after_failure,
    after_recovery,
    after_step,
    block_repair,
    decide_breaker,
    decide_repair,
    graceful_for,
    is_unhealthy,
    record_conditions,
    repair_conditions,
)
from tests.unit.policy.builders import NOW, after, node

MINUTE = timedelta(minutes=1)
READY, KERNEL = ("Ready", "False"), ("KernelReady", "False")


class RepairHarness:
    """A node under some rules: minute by minute the watch tells how it is, and time passes."""

    def __init__(self, **repair: Any) -> None:
        rules = LifecycleRules.model_validate({"repair": repair}) if repair else None
        self.state = node({"rules": rules})
        self.now = NOW

    def observe(self, *conditions: tuple[str, str], boot_id: str = "boot-1", since: datetime | None = None) -> None:
        unhealthy = tuple(
            UnhealthyCondition(type=one, status=status, since=since or self.now) for one, status in conditions
        )
        health = record_conditions(self.state, unhealthy, self.state.observed.rules, self.now)
        fields = {"unhealthy": unhealthy, "node_ready": READY not in conditions, "boot_id": boot_id}
        self.state = self.state.model_copy(
            update={"health": health, "observed": self.state.observed.model_copy(update=fields)}
        )

    def wait(self, **time: float) -> Repair:
        self.now += timedelta(**time)
        return decide_repair(self.state, self.now)

    def step(self) -> None:
        verdict = decide_repair(self.state, self.now)
        assert verdict.do in ("reboot", "replace")
        self.set_health(after_step(self.state.health, verdict, boot_id=self.state.observed.boot_id, now=self.now))

    def set_health(self, health: Health) -> None:
        self.state = self.state.model_copy(update={"health": health})


@pytest.mark.parametrize("condition", KARPENTERS, ids=lambda one: f"{one.type}={one.status}")
def test_karpenters_seven_conditions_have_karpenters_tolerations(condition: Any) -> None:
    minutes = 10 if condition.type == "AcceleratedHardwareReady" else 30
    harness = RepairHarness()
    harness.observe((condition.type, condition.status))
    name = f"{condition.type}={condition.status}"
    wait = harness.wait(minutes=minutes - 0.1)
    assert wait.do == "wait" and wait.until == after(minutes=minutes)
    assert wait.blocked_by == f"unhealthy, {name}: replace at {after(minutes=minutes).isoformat()}"
    assert harness.wait(minutes=0.1) == Repair(do="replace", condition=name)


def test_a_healthy_node_remembers_nothing() -> None:
    harness = RepairHarness(within="1h")
    harness.observe()
    assert harness.state.health == Health() and harness.wait(hours=9) == Repair()


def test_the_condition_that_is_tolerated_least_long_counts() -> None:
    harness = RepairHarness()
    harness.observe(KERNEL, ("AcceleratedHardwareReady", "False"))
    assert harness.wait(minutes=10).condition == "AcceleratedHardwareReady=False"


@pytest.mark.parametrize("conditions", [(("KernelReady", "Unknown"),), (("MemoryPressure", "True"),)])
def test_what_does_not_count_is_no_reason(conditions: tuple[tuple[str, str], ...]) -> None:
    harness = RepairHarness()
    harness.observe(*conditions)
    assert harness.wait(hours=5) == Repair()


def test_own_conditions_take_the_place_of_karpenters_and_no_condition_means_no_repair() -> None:
    mine = {"type": "DiskWorn", "status": "True", "toleration": "5m"}
    harness = RepairHarness(conditions=[mine])
    harness.observe(("DiskWorn", "True"), READY)
    assert harness.wait(minutes=5).condition == "DiskWorn=True"
    nothing = LifecycleRules.model_validate({"repair": {"conditions": []}})
    assert repair_conditions(nothing) == () and repair_conditions(None) == KARPENTERS == repair_conditions(
        LifecycleRules()
    )


def test_a_flap_starts_karpenters_clock_again() -> None:
    harness = RepairHarness()
    for _ in range(10):
        harness.observe(READY)
        harness.wait(minutes=20)
        harness.observe()
        harness.wait(minutes=1)
    assert harness.wait() == Repair()


def test_within_a_span_the_time_of_all_flaps_adds_up() -> None:
    harness = RepairHarness(within="2h")
    for _ in range(5):
        harness.observe(READY)
        assert harness.wait(minutes=5).do == "wait"
        harness.observe()
        assert harness.wait(minutes=5) == Repair()
    harness.observe(READY)
    assert harness.wait().until == harness.now + 5 * MINUTE
    assert harness.wait(minutes=5).do == "replace"


def test_what_left_the_span_counts_no_more() -> None:
    harness = RepairHarness(within="1h")
    harness.observe(READY)
    harness.wait(minutes=25)
    harness.observe()
    harness.wait(minutes=60)
    harness.observe(READY)
    assert harness.wait().until == harness.now + 30 * MINUTE


def test_while_an_old_stretch_leaves_the_span_the_sum_stands_still() -> None:
    harness = RepairHarness(within="1h")
    harness.observe(READY)
    harness.wait(minutes=20)
    harness.observe()
    harness.wait(minutes=35)
    harness.observe(READY)
    # 20 minutes are in the span; from minute 60 on they leave it as fast as new ones come.
    assert harness.wait().until == NOW + 85 * MINUTE
    assert harness.wait(minutes=29.9).do == "wait" and harness.wait(minutes=0.1).do == "replace"


@pytest.mark.parametrize("within", ["40m", "1h", "2h", "5h"])
@pytest.mark.parametrize("pattern", [(1, 9), (7, 3), (20, 35), (29, 1), (3, 3), (25, 60)])
def test_the_moment_that_is_foretold_is_the_one_at_which_the_sum_is_reached(
    within: str, pattern: tuple[int, int]
) -> None:
    """Against a clock that is counted minute by minute."""
    span = {"40m": 40, "1h": 60, "2h": 120, "5h": 300}[within]
    harness, ill, minute = RepairHarness(within=within), list[bool](), 0
    while minute < 1000:
        bad = minute % sum(pattern) < pattern[0]
        if not ill or bad != ill[-1]:
            harness.observe(*((READY,) if bad else ()))
        assert (harness.wait().do == "replace") == (bad and sum(ill[-span:]) >= 30), minute
        if harness.wait().do == "replace":
            return
        ill.append(bad)
        minute += 1
        harness.wait(minutes=1)


def test_a_node_that_goes_from_false_to_unknown_was_unhealthy_all_along_where_time_adds_up() -> None:
    harness, karpenter = RepairHarness(within="1h"), RepairHarness()
    for one in (harness, karpenter):
        one.observe(READY)
        one.wait(minutes=20)
        one.observe(("Ready", "Unknown"))
        one.wait(minutes=10)
    assert harness.wait().do == "replace" and karpenter.wait().until == NOW + 50 * MINUTE


def test_a_transition_that_moves_while_nobody_saw_it_well_counts_as_one_stretch() -> None:
    harness = RepairHarness(within="1h")
    harness.observe(KERNEL)
    harness.wait(minutes=20)
    harness.observe(KERNEL, since=harness.now)
    assert harness.wait(minutes=10).do == "replace"


def test_what_is_remembered_is_bounded() -> None:
    harness = RepairHarness(within="1000h")
    for _ in range(500):
        harness.observe(READY)
        harness.wait(seconds=1)
        harness.observe()
        harness.wait(seconds=1)
    assert len(harness.state.health.intervals) == 100


LADDER: dict[str, Any] = {"steps": ["reboot", "replace"]}


def test_a_reboot_that_helps_ends_the_matter() -> None:
    harness = RepairHarness(**LADDER)
    harness.observe(KERNEL)
    assert harness.wait(minutes=30) == Repair(do="reboot", condition="KernelReady=False")
    harness.step()
    waiting = harness.wait(minutes=1)
    assert waiting.do == "wait" and waiting.blocked_by == "rebooted for KernelReady=False"
    harness.observe(KERNEL, boot_id="boot-2", since=NOW)
    assert harness.wait().do == "wait"
    harness.observe(boot_id="boot-2")
    assert harness.wait().do == "recovered"
    harness.set_health(after_recovery(harness.state.health, harness.now))
    assert harness.wait(hours=5) == Repair()


def test_a_node_that_is_well_again_before_its_machine_restarted_is_waited_for() -> None:
    harness = RepairHarness(**LADDER)
    harness.observe(KERNEL)
    harness.wait(minutes=30)
    harness.step()
    harness.observe()
    assert harness.wait(minutes=9).do == "wait"
    assert harness.wait(minutes=1).do == "recovered"


def test_a_reboot_that_does_not_help_in_its_time_is_followed_by_the_next_step() -> None:
    harness = RepairHarness(**LADDER, rebootFor="3m")
    harness.observe(KERNEL)
    harness.wait(minutes=30)
    harness.step()
    assert harness.wait(minutes=2.9).do == "wait"
    assert harness.wait(minutes=0.1) == Repair(do="replace", condition="KernelReady=False", rung=1)


def test_a_node_that_never_comes_back_from_its_reboot_is_replaced_whatever_conditions_count() -> None:
    harness = RepairHarness(**LADDER, conditions=[{"type": "KernelReady", "status": "False", "toleration": "1m"}])
    harness.observe(KERNEL)
    harness.wait(minutes=1)
    harness.step()
    harness.observe()
    harness.state = harness.state.model_copy(
        update={"observed": harness.state.observed.model_copy(update={"node_ready": False})}
    )
    assert harness.wait(minutes=10).do == "replace"


def recovered(within: str = "") -> RepairHarness:
    harness = RepairHarness(**LADDER, **({"within": within} if within else {}))
    harness.observe(KERNEL)
    harness.wait(minutes=30)
    harness.step()
    harness.observe(boot_id="boot-2")
    harness.set_health(after_recovery(harness.state.health, harness.now))
    return harness


@pytest.mark.parametrize(
    ("within", "minutes", "step"),
    [("", 20, "replace"), ("", 60, "reboot"), ("3h", 60, "replace"), ("3h", 180, "reboot")],
)
def test_a_node_that_falls_ill_again_soon_goes_on_in_its_ladder(within: str, minutes: int, step: str) -> None:
    harness = recovered(within)
    harness.wait(minutes=minutes)
    harness.observe(KERNEL, boot_id="boot-2")
    assert harness.wait(minutes=29.9).do == "wait"
    assert harness.wait(minutes=0.1).do == step


def test_a_reboot_that_may_not_be_asked_for_is_followed_by_the_next_step_at_once() -> None:
    harness = RepairHarness(**LADDER)
    harness.observe(KERNEL)
    verdict = harness.wait(minutes=30)
    harness.set_health(after_failure(harness.state.health, verdict, boot_id="boot-1", now=harness.now))
    assert harness.wait().do == "replace"


def test_where_no_step_is_left_it_is_said() -> None:
    harness = RepairHarness(steps=["reboot"])
    harness.observe(KERNEL)
    harness.wait(minutes=30)
    harness.step()
    assert harness.wait(hours=1) == Repair(
        condition="KernelReady=False", blocked_by="unhealthy, KernelReady=False: reboot did not help"
    )


def test_a_step_that_was_refused_is_tried_again_later() -> None:
    harness = RepairHarness()
    harness.observe(KERNEL)
    harness.wait(minutes=30)
    harness.set_health(block_repair(harness.state.health, "3 of 4", harness.now + 5 * MINUTE))
    assert harness.wait(minutes=4.9) == Repair(
        until=NOW + 35 * MINUTE, condition="KernelReady=False", blocked_by="3 of 4"
    )
    assert harness.wait(minutes=0.1).do == "replace"


@pytest.mark.parametrize(
    ("unhealthy", "total", "limit", "open_"),
    [
        (1, 1, "20%", False),
        (1, 4, "20%", False),
        (2, 5, "20%", True),
        (2, 6, "20%", False),
        (20, 100, "20%", False),
        (21, 100, "20%", True),
        (3, 4, "3", False),
        (4, 4, "3", True),
        (1, 9, "0", True),
        (9, 9, "100%", False),
    ],
)
def test_the_breaker(unhealthy: int, total: int, limit: str, open_: bool) -> None:
    message = decide_breaker(unhealthy, total, limit, where="of NodePool default")
    assert bool(message) is open_
    if message:
        assert (
            message.startswith(f"{unhealthy} of {total} nodes of NodePool default are unhealthy") and limit in message
        )


def test_a_condition_counts_by_type_and_status_also_while_it_is_tolerated() -> None:
    counting = [("Ready", "False"), ("Ready", "Unknown")]
    assert is_unhealthy([("Ready", "Unknown"), ("MemoryPressure", "False")], counting)
    assert not is_unhealthy([("Ready", "True"), ("KernelReady", "False")], counting)


@pytest.mark.parametrize(
    ("repair", "time"),
    [
        (None, None),
        ({"drain": "force", "drainFor": "5m"}, None),
        ({"drain": "graceful"}, timedelta(minutes=30)),
        ({"drain": "graceful", "drainFor": "5m"}, timedelta(minutes=5)),
    ],
)
def test_pods_have_time_only_where_rules_say_so(repair: dict[str, Any] | None, time: timedelta | None) -> None:
    assert graceful_for(LifecycleRules.model_validate({"repair": repair}) if repair else None) == time


def test_a_state_with_its_health_survives_being_written_down() -> None:
    harness = recovered("3h")
    assert NodeClaimState.model_validate_json(harness.state.model_dump_json()) == harness.state
