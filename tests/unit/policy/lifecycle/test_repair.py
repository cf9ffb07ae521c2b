"""Repair: what is tolerated for how long, what adds up, which step follows which, and the breaker."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.durations import parse_duration
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
    drain_grace,
    is_unhealthy,
    record_conditions,
    repair_conditions,
)
from tests.unit.policy.builders import NOW, after, node

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

    def set_health(self, health: Health) -> None:
        self.state = self.state.model_copy(update={"health": health})

    def play(self, script: str) -> "RepairHarness":
        """Steps and assertions in turn, such as `sees Ready; wait 30m; does replace`."""
        for line in script.split("; "):
            name, _, argument = line.partition(" ")
            assert _STEPS[name](self, argument) is not False, f"{line!r} of {script!r}: {self.wait()}"
        return self

    def _take_step(self, _: str) -> bool:
        repair = self.wait()
        boot_id = self.state.observed.boot_id
        self.set_health(after_step(self.state.health, repair, boot_id=boot_id, now=self.now))
        return repair.do in ("reboot", "replace")

    def _fail_step(self, _: str) -> None:
        self.set_health(after_failure(self.state.health, self.wait(), boot_id="boot-1", now=self.now))

    def _recover(self, _: str) -> None:
        self.set_health(after_recovery(self.state.health, self.now))

    def _see(self, names: str, since: datetime | None = None) -> None:
        *conditions, boot = names.split() if "boot-" in names else [*names.split(), "boot-1"]
        self.observe(*(CONDITIONS[one] for one in conditions), boot_id=boot, since=since)


CONDITIONS = {"Ready": READY, "Unknown": ("Ready", "Unknown"), "Kernel": KERNEL}
_STEPS: dict[str, Callable[[RepairHarness, str], object]] = {
    "sees": RepairHarness._see,
    "sees_since_noon": lambda harness, names: harness._see(names, NOW),
    "wait": lambda harness, span: harness.wait(seconds=(parse_duration(span) or timedelta()).total_seconds()) and None,
    "does": lambda harness, action: harness.wait().do == action,
    "nothing": lambda harness, _: harness.wait() == Repair(),
    "due": lambda harness, span: harness.wait().until == harness.now + (parse_duration(span) or timedelta()),
    "step": RepairHarness._take_step,
    "step_fails": RepairHarness._fail_step,
    "recovers": RepairHarness._recover,
}


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
    assert RepairHarness(within="1h").play("sees; wait 9h; nothing").state.health == Health()


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


FLAP = "sees Ready; wait 5m; does wait; sees; wait 5m; nothing; "
LADDER: dict[str, Any] = {"steps": ["reboot", "replace"]}
REBOOTED = "sees Kernel; wait 30m; does reboot; step; "
SCENARIOS: dict[str, tuple[dict[str, Any], str]] = {
    "a flap starts Karpenter's clock again": ({}, "sees Ready; wait 20m; sees; wait 1m; " * 10 + "nothing"),
    "within a span the time of all flaps adds up": (
        {"within": "2h"},
        FLAP * 5 + "sees Ready; due 5m; wait 5m; does replace",
    ),
    "what left the span counts no more": (
        {"within": "1h"},
        "sees Ready; wait 25m; sees; wait 60m; sees Ready; due 30m",
    ),
    "20 minutes are in the span; from minute 60 on they leave it as fast as new ones come": (
        {"within": "1h"},
        "sees Ready; wait 20m; sees; wait 35m; sees Ready; due 30m; wait 29m54s; does wait; wait 6s; does replace",
    ),
    "from False to Unknown it was unhealthy all along where time adds up": (
        {"within": "1h"},
        "sees Ready; wait 20m; sees Unknown; wait 10m; does replace",
    ),
    "from False to Unknown Karpenter's clock starts again": (
        {},
        "sees Ready; wait 20m; sees Unknown; wait 10m; due 20m",
    ),
    "a transition that moves while nobody saw it well is one stretch": (
        {"within": "1h"},
        "sees Kernel; wait 20m; sees Kernel; wait 10m; does replace",
    ),
    "one that is well before its machine restarted is waited for": (
        LADDER,
        REBOOTED + "sees; wait 9m; does wait; wait 1m; does recovered",
    ),
    "a reboot that may not be asked for is followed by the next step at once": (
        LADDER,
        "sees Kernel; wait 30m; step_fails; does replace",
    ),
    "a reboot that helps ends the matter": (
        LADDER,
        REBOOTED + "wait 1m; does wait; sees_since_noon Kernel boot-2; does wait; sees boot-2; does recovered; "
        "recovers; wait 5h; nothing",
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_repair_goes_by_its_rules(scenario: str) -> None:
    rules, script = SCENARIOS[scenario]
    RepairHarness(**rules).play(script)


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


def test_what_is_remembered_is_bounded() -> None:
    harness = RepairHarness(within="1000h").play("; ".join(["sees Ready; wait 1s; sees; wait 1s"] * 500))
    assert len(harness.state.health.intervals) == 100


def test_a_node_that_was_rebooted_says_for_what_it_waits() -> None:
    assert RepairHarness(**LADDER).play(REBOOTED + "wait 1m").wait().blocked_by == "rebooted for KernelReady=False"


def test_a_reboot_that_does_not_help_in_its_time_is_followed_by_the_next_step() -> None:
    harness = RepairHarness(**LADDER, rebootFor="3m").play(REBOOTED + "wait 2m54s; does wait; wait 6s")
    assert harness.wait() == Repair(do="replace", condition="KernelReady=False", rung=1)


def test_a_node_that_never_comes_back_from_its_reboot_is_replaced_whatever_conditions_count() -> None:
    harness = RepairHarness(**LADDER, conditions=[{"type": "KernelReady", "status": "False", "toleration": "1m"}])
    harness.play("sees Kernel; wait 1m; step; sees")
    harness.state = harness.state.model_copy(
        update={"observed": harness.state.observed.model_copy(update={"node_ready": False})}
    )
    assert harness.wait(minutes=10).do == "replace"


RECOVERED = REBOOTED + "sees boot-2; recovers"


@pytest.mark.parametrize(
    ("within", "span", "step"),
    [
        ({}, "20m", "replace"),
        ({}, "60m", "reboot"),
        ({"within": "3h"}, "60m", "replace"),
        ({"within": "3h"}, "3h", "reboot"),
    ],
)
def test_a_node_that_falls_ill_again_soon_goes_on_in_its_ladder(within: dict[str, str], span: str, step: str) -> None:
    script = f"{RECOVERED}; wait {span}; sees Kernel boot-2; wait 29m54s; does wait; wait 6s; does {step}"
    RepairHarness(**LADDER, **within).play(script)


def test_where_no_step_is_left_it_is_said() -> None:
    assert RepairHarness(steps=["reboot"]).play(REBOOTED + "wait 1h").wait() == Repair(
        condition="KernelReady=False", blocked_by="unhealthy, KernelReady=False: reboot did not help"
    )


def test_a_step_that_was_refused_is_tried_again_later() -> None:
    harness = RepairHarness().play("sees Kernel; wait 30m")
    harness.set_health(block_repair(harness.state.health, "3 of 4", after(minutes=35)))
    blocked = Repair(until=after(minutes=35), condition="KernelReady=False", blocked_by="3 of 4")
    assert harness.wait(minutes=4.9) == blocked
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
    assert drain_grace(LifecycleRules.model_validate({"repair": repair}) if repair else None) == time


def test_a_state_with_its_health_survives_being_written_down() -> None:
    harness = RepairHarness(**LADDER, within="3h").play(RECOVERED)
    assert NodeClaimState.model_validate_json(harness.state.model_dump_json()) == harness.state
