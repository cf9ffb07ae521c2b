"""Repair: tolerations, accumulated time, the order of steps, and the circuit breaker."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.durations import parse_duration
from tenure.apis.lifecyclepolicy import LifecycleRules, RepairRules
from tenure.model.facts import NodeFact
from tenure.model.node_health import ConditionInterval, Health, Reboot, RepairMode, UnhealthyCondition
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.signals import Pause
from tenure.policy.lifecycle.repair import (
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
    with_reboot,
)
from tenure.policy.lifecycle.repair_policies import LEGACY_CONDITIONS, repair_conditions
from tests.support.fakes.kubernetes import node_conditions
from tests.unit.policy.builders import NOW, after, node
from tests.unit.policy.interruption_builders import interruption_message, tracked_interruptions
from tests.unit.policy.interruption_builders import rules as interruption_rules

READY, KERNEL = ("Ready", "False"), ("KernelReady", "False")


class RepairHarness:
    """A node with repair rules, whose conditions and time the test controls."""

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
        """Run steps and assertions in order, such as `observes Ready; wait 30m; decides replace`."""
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

    def _observe_names(self, names: str, since: datetime | None = None) -> None:
        *conditions, boot = names.split() if "boot-" in names else [*names.split(), "boot-1"]
        self.observe(*(CONDITIONS[one] for one in conditions), boot_id=boot, since=since)


CONDITIONS = {"Ready": READY, "Unknown": ("Ready", "Unknown"), "Kernel": KERNEL}
_STEPS: dict[str, Callable[[RepairHarness, str], object]] = {
    "observes": RepairHarness._observe_names,
    "observes_since_noon": lambda harness, names: harness._observe_names(names, NOW),
    "wait": lambda harness, span: harness.wait(seconds=(parse_duration(span) or timedelta()).total_seconds()) and None,
    "decides": lambda harness, action: harness.wait().do == action,
    "nothing": lambda harness, _: harness.wait() == Repair(),
    "due": lambda harness, span: harness.wait().until == harness.now + (parse_duration(span) or timedelta()),
    "step": RepairHarness._take_step,
    "step_fails": RepairHarness._fail_step,
    "recovers": RepairHarness._recover,
}


@pytest.mark.parametrize("condition", LEGACY_CONDITIONS, ids=lambda one: f"{one.type}={one.status}")
def test_default_conditions_have_karpenters_tolerations(condition: Any) -> None:
    minutes = 10 if condition.type == "AcceleratedHardwareReady" else 30
    harness = RepairHarness()
    harness.observe((condition.type, condition.status))
    name = f"{condition.type}={condition.status}"
    wait = harness.wait(minutes=minutes - 0.1)
    assert wait.do == "wait" and wait.until == after(minutes=minutes)
    assert wait.blocked_by == f"unhealthy, {name}: replace at {after(minutes=minutes).isoformat()}"
    assert harness.wait(minutes=0.1) == Repair(do="replace", condition=name)


def test_healthy_node_records_nothing() -> None:
    assert RepairHarness(within="1h").play("observes; wait 9h; nothing").state.health == Health()


def test_condition_with_the_shortest_toleration_counts() -> None:
    harness = RepairHarness()
    harness.observe(KERNEL, ("AcceleratedHardwareReady", "False"))
    assert harness.wait(minutes=10).condition == "AcceleratedHardwareReady=False"


@pytest.mark.parametrize("conditions", [(("KernelReady", "Unknown"),), (("MemoryPressure", "True"),)])
def test_other_conditions_cause_no_repair(conditions: tuple[tuple[str, str], ...]) -> None:
    harness = RepairHarness()
    harness.observe(*conditions)
    assert harness.wait(hours=5) == Repair()


def test_custom_conditions_replace_the_defaults_and_empty_list_disables_repair() -> None:
    custom_condition = {"type": "DiskWorn", "status": "True", "toleration": "5m"}
    harness = RepairHarness(conditions=[custom_condition])
    harness.observe(("DiskWorn", "True"), READY)
    assert harness.wait(minutes=5).condition == "DiskWorn=True"
    nothing = LifecycleRules.model_validate({"repair": {"conditions": []}})
    assert repair_conditions(nothing) == () and repair_conditions(None) == LEGACY_CONDITIONS == repair_conditions(
        LifecycleRules()
    )


FLAP = "observes Ready; wait 5m; decides wait; observes; wait 5m; nothing; "
LADDER: dict[str, Any] = {"steps": ["reboot", "replace"]}
REBOOTED = "observes Kernel; wait 30m; decides reboot; step; "
SCENARIOS: dict[str, tuple[dict[str, Any], str]] = {
    "a flap restarts the toleration": ({}, "observes Ready; wait 20m; observes; wait 1m; " * 10 + "nothing"),
    "within sums the time of all flaps": (
        {"within": "2h"},
        FLAP * 5 + "observes Ready; due 5m; wait 5m; decides replace",
    ),
    "time outside of within does not count": (
        {"within": "1h"},
        "observes Ready; wait 25m; observes; wait 60m; observes Ready; due 30m",
    ),
    "time leaves within as fast as new time is added": (
        {"within": "1h"},
        "observes Ready; wait 20m; observes; wait 35m; observes Ready; due 30m; wait 29m54s; decides wait; "
        "wait 6s; decides replace",
    ),
    "False and Unknown add up with within": (
        {"within": "1h"},
        "observes Ready; wait 20m; observes Unknown; wait 10m; decides replace",
    ),
    "change from False to Unknown restarts the toleration": (
        {},
        "observes Ready; wait 20m; observes Unknown; wait 10m; due 20m",
    ),
    "changed transition time without recovery is one interval": (
        {"within": "1h"},
        "observes Kernel; wait 20m; observes Kernel; wait 10m; decides replace",
    ),
    "healthy before the reboot happened": (
        LADDER,
        REBOOTED + "observes; wait 9m; decides wait; wait 1m; decides recovered",
    ),
    "failed reboot request is followed by the next step": (
        LADDER,
        "observes Kernel; wait 30m; step_fails; decides replace",
    ),
    "successful reboot ends the repair": (
        LADDER,
        REBOOTED
        + "wait 1m; decides wait; observes_since_noon Kernel boot-2; decides wait; observes boot-2; decides recovered; "
        "recovers; wait 5h; nothing",
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_repair_follows_its_rules(scenario: str) -> None:
    rules, script = SCENARIOS[scenario]
    RepairHarness(**rules).play(script)


@pytest.mark.parametrize("within", ["40m", "1h", "2h", "5h"])
@pytest.mark.parametrize("pattern", [(1, 9), (7, 3), (20, 35), (29, 1), (3, 3), (25, 60)])
def test_predicted_time_is_when_the_accumulated_time_is_reached(within: str, pattern: tuple[int, int]) -> None:
    """The expectation is counted minute by minute."""
    span = {"40m": 40, "1h": 60, "2h": 120, "5h": 300}[within]
    harness, history, minute = RepairHarness(within=within), list[bool](), 0
    while minute < 1000:
        unhealthy_now = minute % sum(pattern) < pattern[0]
        if not history or unhealthy_now != history[-1]:
            harness.observe(*((READY,) if unhealthy_now else ()))
        assert (harness.wait().do == "replace") == (unhealthy_now and sum(history[-span:]) >= 30), minute
        if harness.wait().do == "replace":
            return
        history.append(unhealthy_now)
        minute += 1
        harness.wait(minutes=1)


def test_recorded_intervals_are_limited() -> None:
    harness = RepairHarness(within="1000h").play("; ".join(["observes Ready; wait 1s; observes; wait 1s"] * 500))
    assert len(harness.state.health.intervals) == 100


def test_rebooted_node_reports_its_blocker() -> None:
    assert RepairHarness(**LADDER).play(REBOOTED + "wait 1m").wait().blocked_by == "rebooted for KernelReady=False"


def test_unsuccessful_reboot_is_followed_by_the_next_step() -> None:
    harness = RepairHarness(**LADDER, rebootFor="3m").play(REBOOTED + "wait 2m54s; decides wait; wait 6s")
    assert harness.wait() == Repair(do="replace", condition="KernelReady=False", rung=1)


def test_node_that_stays_notready_after_a_reboot_is_replaced() -> None:
    harness = RepairHarness(**LADDER, conditions=[{"type": "KernelReady", "status": "False", "toleration": "1m"}])
    harness.play("observes Kernel; wait 1m; step; observes")
    harness.state = harness.state.model_copy(
        update={"observed": harness.state.observed.model_copy(update={"node_ready": False})}
    )
    assert harness.wait(minutes=10).do == "replace"


RECOVERED = REBOOTED + "observes boot-2; recovers"


@pytest.mark.parametrize(
    ("within", "span", "step"),
    [
        ({}, "20m", "replace"),
        ({}, "60m", "reboot"),
        ({"within": "3h"}, "60m", "replace"),
        ({"within": "3h"}, "3h", "reboot"),
    ],
)
def test_relapse_within_the_period_continues_with_the_next_step(within: dict[str, str], span: str, step: str) -> None:
    script = f"{RECOVERED}; wait {span}; observes Kernel boot-2; wait 29m54s; decides wait; wait 6s; decides {step}"
    RepairHarness(**LADDER, **within).play(script)


def test_exhausted_steps_are_reported() -> None:
    assert RepairHarness(steps=["reboot"]).play(REBOOTED + "wait 1h").wait() == Repair(
        condition="KernelReady=False", blocked_by="unhealthy, KernelReady=False: reboot did not help"
    )


def test_blocked_repair_is_retried_later() -> None:
    harness = RepairHarness().play("observes Kernel; wait 30m")
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
def test_breaker_opens_above_the_limit(unhealthy: int, total: int, limit: str, open_: bool) -> None:
    message = decide_breaker(unhealthy, total, limit, where="of NodePool default")
    assert bool(message) is open_
    if message:
        assert (
            message.startswith(f"{unhealthy} of {total} nodes of NodePool default are unhealthy") and limit in message
        )


def test_node_is_unhealthy_by_condition_type_and_status() -> None:
    counting = [("Ready", "False"), ("Ready", "Unknown")]
    unready = node_conditions(Ready="Unknown", MemoryPressure="False")
    assert is_unhealthy(NodeFact(name="n", conditions=unready), counting)
    ready = node_conditions(Ready="True", KernelReady="False")
    assert not is_unhealthy(NodeFact(name="n", conditions=ready), counting)


@pytest.mark.parametrize(
    ("repair", "time"),
    [
        (None, None),
        ({"drain": "force", "drainFor": "5m"}, None),
        ({"drain": "graceful"}, timedelta(minutes=30)),
        ({"drain": "graceful", "drainFor": "5m"}, timedelta(minutes=5)),
    ],
)
def test_drain_grace_of_a_repair_requires_a_rule(repair: dict[str, Any] | None, time: timedelta | None) -> None:
    assert drain_grace(LifecycleRules.model_validate({"repair": repair}) if repair else None) == time


def test_state_with_health_survives_serialization() -> None:
    harness = RepairHarness(**LADDER, within="3h").play(RECOVERED)
    assert NodeClaimState.model_validate_json(harness.state.model_dump_json()) == harness.state


def test_node_that_another_controller_maintains_is_not_repaired() -> None:
    found = RepairHarness()
    found.observe(READY)
    assert found.wait(minutes=30).do == "replace"
    observed = found.state.observed.model_copy(update={"maintenance": "another controller has set the condition X"})
    found.state = found.state.model_copy(update={"observed": observed})
    assert found.wait() == Repair()


def rebooting(
    reboot: Reboot | None,
    *,
    now: datetime = NOW,
    observed: dict[str, Any] | None = None,
    mode: RepairMode = "reboot",
    step_at: datetime | None = None,
    boot_id: str = "",
    **state: Any,
) -> tuple[NodeClaimState, datetime]:
    """An unhealthy node that a LifecyclePolicy reboots, and the time of the decision."""
    health = Health(
        mode=mode,
        intervals=(ConditionInterval(type="Ready", status="False", since=NOW - timedelta(hours=1)),),
        condition="Ready=False",
        reboot=reboot,
        step_at=step_at,
        boot_id=boot_id,
    )
    unhealthy = (UnhealthyCondition(type="Ready", status="False", since=NOW - timedelta(hours=1)),)
    rules = interruption_rules(instanceStopping={"action": "ignore", "away": "30m"})
    rules = rules.model_copy(update={"repair": RepairRules.model_validate(LADDER)})
    fields = {"rules": rules, "node_ready": False, "unhealthy": unhealthy, **(observed or {})}
    return node(fields, health=health, **state), now


PENDING = Reboot(requested_at=NOW, condition="Ready=False", boot_id="boot-1", begun=True, grace=timedelta(minutes=10))
UNBOUNDED = PENDING.model_copy(update={"grace": None})
PAUSE = Pause(by="ops", reason="upgrade", until=after(hours=9))
STOPPING = tracked_interruptions(interruption_message("instanceStopping"))
REBOOTS: dict[str, tuple[tuple[NodeClaimState, datetime], str]] = {
    "in progress": (rebooting(PENDING), "reboot"),
    "first step failed": (rebooting(PENDING.model_copy(update={"begun": False})), "cancel"),
    "recovered": (rebooting(PENDING, observed={"unhealthy": (), "node_ready": True}), "cancel"),
    "must not be repaired": (rebooting(PENDING, observed={"do_not_repair": True}), "cancel"),
    "maintained by another controller": (rebooting(PENDING, observed={"maintenance": "it drains"}), "cancel"),
    "maintained by AWS": (rebooting(PENDING, interruptions=STOPPING), "cancel"),
    "maintained by AWS, starting": (
        rebooting(PENDING, phase=Phase.INITIALIZATION, interruptions=STOPPING),
        "reboot",
    ),
    "paused": (rebooting(PENDING, pause=PAUSE), "cancel"),
    "paused, in the legacy mode": (rebooting(PENDING, mode="legacy", pause=PAUSE), "reboot"),
    "permit revoked": (rebooting(PENDING, revocation="NodePool web is paused"), "cancel"),
    "permit revoked before the node starts again": (
        rebooting(PENDING, phase=Phase.INITIALIZATION, revocation="NodePool web is paused"),
        "reboot",
    ),
    "past the bound of the drain": (rebooting(PENDING, now=after(hours=2)), "reboot"),
    "without a bound": (rebooting(UNBOUNDED, now=after(minutes=59)), "reboot"),
    "without a bound, past the deadline of drains": (rebooting(UNBOUNDED, now=after(hours=1)), "fail"),
    "drained without a bound, past the deadline of drains": (
        rebooting(UNBOUNDED.model_copy(update={"drained": True}), now=after(hours=1)),
        "reboot",
    ),
    "due in a phase that needs no permit, paused": (rebooting(None, phase=Phase.INITIALIZATION, pause=PAUSE), "wait"),
}


@pytest.mark.parametrize("case", REBOOTS)
def test_reboot_that_ec2_has_not_accepted(case: str) -> None:
    (state, now), action = REBOOTS[case]
    assert decide_repair(state, now).do == action


def test_accepted_reboot_ends_in_time_during_maintenance() -> None:
    reboot = PENDING.model_copy(update={"issued": True})
    state, _ = rebooting(reboot, observed={"maintenance": "it drains"}, step_at=NOW, boot_id="boot-1")
    assert decide_repair(state, after(minutes=19)).until == after(minutes=20)
    assert decide_repair(state, after(minutes=20)).do == "fail"
    ended = state.model_copy(update={"health": with_reboot(state.health, None)})
    assert decide_repair(ended, after(minutes=20)) == Repair()
