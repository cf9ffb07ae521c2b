"""Repair: what is tolerated for how long, what adds up, which step follows which, and the breaker."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.node_health import Health, Unhealthy
from tenure.model.nodeclaim_state import ClaimState
from tenure.policy.lifecycle.repair import (
    KARPENTERS,
    Repair,
    after_failure,
    after_recovery,
    after_step,
    counted,
    decide_breaker,
    decide_repair,
    graceful_for,
    held,
    is_unhealthy,
    noted,
)
from tests.unit.policy.builders import NOW, after, node

MINUTE = timedelta(minutes=1)
READY, KERNEL = ("Ready", "False"), ("KernelReady", "False")


class Watched:
    """A node under some rules: minute by minute the watch tells how it is, and time passes."""

    def __init__(self, **repair: Any) -> None:
        rules = LifecycleRules.model_validate({"repair": repair}) if repair else None
        self.state = node({"rules": rules})
        self.now = NOW

    def tell(self, *conditions: tuple[str, str], boot_id: str = "boot-1", since: datetime | None = None) -> None:
        told = tuple(Unhealthy(type=one, status=status, since=since or self.now) for one, status in conditions)
        health = noted(self.state, told, self.state.seen.rules, self.now)
        fields = {"unhealthy": told, "node_ready": READY not in conditions, "boot_id": boot_id}
        self.state = self.state.model_copy(update={"health": health, "seen": self.state.seen.model_copy(update=fields)})

    def wait(self, **time: float) -> Repair:
        self.now += timedelta(**time)
        return decide_repair(self.state, self.now)

    def step(self) -> None:
        verdict = decide_repair(self.state, self.now)
        assert verdict.do in ("reboot", "replace")
        self.keep(after_step(self.state.health, verdict, boot_id=self.state.seen.boot_id, now=self.now))

    def keep(self, health: Health) -> None:
        self.state = self.state.model_copy(update={"health": health})


@pytest.mark.parametrize("condition", KARPENTERS, ids=lambda one: f"{one.type}={one.status}")
def test_karpenters_seven_conditions_have_karpenters_tolerations(condition: Any) -> None:
    minutes = 10 if condition.type == "AcceleratedHardwareReady" else 30
    watched = Watched()
    watched.tell((condition.type, condition.status))
    name = f"{condition.type}={condition.status}"
    wait = watched.wait(minutes=minutes - 0.1)
    assert wait.do == "wait" and wait.until == after(minutes=minutes)
    assert wait.blocked_by == f"unhealthy, {name}: replace at {after(minutes=minutes).isoformat()}"
    assert watched.wait(minutes=0.1) == Repair(do="replace", condition=name)


def test_a_healthy_node_remembers_nothing() -> None:
    watched = Watched(within="1h")
    watched.tell()
    assert watched.state.health == Health() and watched.wait(hours=9) == Repair()


def test_the_condition_that_is_tolerated_least_long_counts() -> None:
    watched = Watched()
    watched.tell(KERNEL, ("AcceleratedHardwareReady", "False"))
    assert watched.wait(minutes=10).condition == "AcceleratedHardwareReady=False"


@pytest.mark.parametrize("conditions", [(("KernelReady", "Unknown"),), (("MemoryPressure", "True"),)])
def test_what_does_not_count_is_no_reason(conditions: tuple[tuple[str, str], ...]) -> None:
    watched = Watched()
    watched.tell(*conditions)
    assert watched.wait(hours=5) == Repair()


def test_own_conditions_take_the_place_of_karpenters_and_no_condition_means_no_repair() -> None:
    mine = {"type": "DiskWorn", "status": "True", "toleration": "5m"}
    watched = Watched(conditions=[mine])
    watched.tell(("DiskWorn", "True"), READY)
    assert watched.wait(minutes=5).condition == "DiskWorn=True"
    nothing = LifecycleRules.model_validate({"repair": {"conditions": []}})
    assert counted(nothing) == () and counted(None) == KARPENTERS == counted(LifecycleRules())


def test_a_flap_starts_karpenters_clock_again() -> None:
    watched = Watched()
    for _ in range(10):
        watched.tell(READY)
        watched.wait(minutes=20)
        watched.tell()
        watched.wait(minutes=1)
    assert watched.wait() == Repair()


def test_within_a_span_the_time_of_all_flaps_adds_up() -> None:
    watched = Watched(within="2h")
    for _ in range(5):
        watched.tell(READY)
        assert watched.wait(minutes=5).do == "wait"
        watched.tell()
        assert watched.wait(minutes=5) == Repair()
    watched.tell(READY)
    assert watched.wait().until == watched.now + 5 * MINUTE
    assert watched.wait(minutes=5).do == "replace"


def test_what_left_the_span_counts_no_more() -> None:
    watched = Watched(within="1h")
    watched.tell(READY)
    watched.wait(minutes=25)
    watched.tell()
    watched.wait(minutes=60)
    watched.tell(READY)
    assert watched.wait().until == watched.now + 30 * MINUTE


def test_while_an_old_stretch_leaves_the_span_the_sum_stands_still() -> None:
    watched = Watched(within="1h")
    watched.tell(READY)
    watched.wait(minutes=20)
    watched.tell()
    watched.wait(minutes=35)
    watched.tell(READY)
    # 20 minutes are in the span; from minute 60 on they leave it as fast as new ones come.
    assert watched.wait().until == NOW + 85 * MINUTE
    assert watched.wait(minutes=29.9).do == "wait" and watched.wait(minutes=0.1).do == "replace"


@pytest.mark.parametrize("within", ["40m", "1h", "2h", "5h"])
@pytest.mark.parametrize("pattern", [(1, 9), (7, 3), (20, 35), (29, 1), (3, 3), (25, 60)])
def test_the_moment_that_is_foretold_is_the_one_at_which_the_sum_is_reached(
    within: str, pattern: tuple[int, int]
) -> None:
    """Against a clock that is counted minute by minute."""
    span = {"40m": 40, "1h": 60, "2h": 120, "5h": 300}[within]
    watched, ill, minute = Watched(within=within), list[bool](), 0
    while minute < 1000:
        bad = minute % sum(pattern) < pattern[0]
        if not ill or bad != ill[-1]:
            watched.tell(*((READY,) if bad else ()))
        assert (watched.wait().do == "replace") == (bad and sum(ill[-span:]) >= 30), minute
        if watched.wait().do == "replace":
            return
        ill.append(bad)
        minute += 1
        watched.wait(minutes=1)


def test_a_node_that_goes_from_false_to_unknown_was_unhealthy_all_along_where_time_adds_up() -> None:
    watched, karpenter = Watched(within="1h"), Watched()
    for one in (watched, karpenter):
        one.tell(READY)
        one.wait(minutes=20)
        one.tell(("Ready", "Unknown"))
        one.wait(minutes=10)
    assert watched.wait().do == "replace" and karpenter.wait().until == NOW + 50 * MINUTE


def test_a_transition_that_moves_while_nobody_saw_it_well_counts_as_one_stretch() -> None:
    watched = Watched(within="1h")
    watched.tell(KERNEL)
    watched.wait(minutes=20)
    watched.tell(KERNEL, since=watched.now)
    assert watched.wait(minutes=10).do == "replace"


def test_what_is_remembered_is_bounded() -> None:
    watched = Watched(within="1000h")
    for _ in range(500):
        watched.tell(READY)
        watched.wait(seconds=1)
        watched.tell()
        watched.wait(seconds=1)
    assert len(watched.state.health.stretches) == 100


LADDER: dict[str, Any] = {"steps": ["reboot", "replace"]}


def test_a_reboot_that_helps_ends_the_matter() -> None:
    watched = Watched(**LADDER)
    watched.tell(KERNEL)
    assert watched.wait(minutes=30) == Repair(do="reboot", condition="KernelReady=False")
    watched.step()
    waiting = watched.wait(minutes=1)
    assert waiting.do == "wait" and waiting.blocked_by == "rebooted for KernelReady=False"
    watched.tell(KERNEL, boot_id="boot-2", since=NOW)
    assert watched.wait().do == "wait"
    watched.tell(boot_id="boot-2")
    assert watched.wait().do == "recovered"
    watched.keep(after_recovery(watched.state.health, watched.now))
    assert watched.wait(hours=5) == Repair()


def test_a_node_that_is_well_again_before_its_machine_restarted_is_waited_for() -> None:
    watched = Watched(**LADDER)
    watched.tell(KERNEL)
    watched.wait(minutes=30)
    watched.step()
    watched.tell()
    assert watched.wait(minutes=9).do == "wait"
    assert watched.wait(minutes=1).do == "recovered"


def test_a_reboot_that_does_not_help_in_its_time_is_followed_by_the_next_step() -> None:
    watched = Watched(**LADDER, rebootFor="3m")
    watched.tell(KERNEL)
    watched.wait(minutes=30)
    watched.step()
    assert watched.wait(minutes=2.9).do == "wait"
    assert watched.wait(minutes=0.1) == Repair(do="replace", condition="KernelReady=False", rung=1)


def test_a_node_that_never_comes_back_from_its_reboot_is_replaced_whatever_conditions_count() -> None:
    watched = Watched(**LADDER, conditions=[{"type": "KernelReady", "status": "False", "toleration": "1m"}])
    watched.tell(KERNEL)
    watched.wait(minutes=1)
    watched.step()
    watched.tell()
    watched.state = watched.state.model_copy(
        update={"seen": watched.state.seen.model_copy(update={"node_ready": False})}
    )
    assert watched.wait(minutes=10).do == "replace"


def recovered(within: str = "") -> Watched:
    watched = Watched(**LADDER, **({"within": within} if within else {}))
    watched.tell(KERNEL)
    watched.wait(minutes=30)
    watched.step()
    watched.tell(boot_id="boot-2")
    watched.keep(after_recovery(watched.state.health, watched.now))
    return watched


@pytest.mark.parametrize(
    ("within", "minutes", "step"),
    [("", 20, "replace"), ("", 60, "reboot"), ("3h", 60, "replace"), ("3h", 180, "reboot")],
)
def test_a_node_that_falls_ill_again_soon_goes_on_in_its_ladder(within: str, minutes: int, step: str) -> None:
    watched = recovered(within)
    watched.wait(minutes=minutes)
    watched.tell(KERNEL, boot_id="boot-2")
    assert watched.wait(minutes=29.9).do == "wait"
    assert watched.wait(minutes=0.1).do == step


def test_a_reboot_that_may_not_be_asked_for_is_followed_by_the_next_step_at_once() -> None:
    watched = Watched(**LADDER)
    watched.tell(KERNEL)
    verdict = watched.wait(minutes=30)
    watched.keep(after_failure(watched.state.health, verdict, boot_id="boot-1", now=watched.now))
    assert watched.wait().do == "replace"


def test_where_no_step_is_left_it_is_said() -> None:
    watched = Watched(steps=["reboot"])
    watched.tell(KERNEL)
    watched.wait(minutes=30)
    watched.step()
    assert watched.wait(hours=1) == Repair(
        condition="KernelReady=False", blocked_by="unhealthy, KernelReady=False: reboot did not help"
    )


def test_a_step_that_was_refused_is_tried_again_later() -> None:
    watched = Watched()
    watched.tell(KERNEL)
    watched.wait(minutes=30)
    watched.keep(held(watched.state.health, "3 of 4", watched.now + 5 * MINUTE))
    assert watched.wait(minutes=4.9) == Repair(
        until=NOW + 35 * MINUTE, condition="KernelReady=False", blocked_by="3 of 4"
    )
    assert watched.wait(minutes=0.1).do == "replace"


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
    said = decide_breaker(unhealthy, total, limit, where="of NodePool default")
    assert bool(said) is open_
    if said:
        assert said.startswith(f"{unhealthy} of {total} nodes of NodePool default are unhealthy") and limit in said


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
    watched = recovered("3h")
    assert ClaimState.model_validate_json(watched.state.model_dump_json()) == watched.state
