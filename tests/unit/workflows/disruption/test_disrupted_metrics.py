"""Which NodeClaims count as disrupted, by which reason, and that each counts once."""

from collections import Counter
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.durations import parse_duration_or_none
from tenure.apis.lifecyclepolicy import LifecycleRules, RepairRules
from tenure.metrics import NODECLAIMS_DISRUPTED, NODECLAIMS_UNHEALTHY_DISRUPTED, PODS_DISRUPTION_INITIATED
from tenure.model.disruption.drain import DrainState
from tenure.model.launch import LaunchedInstance
from tenure.model.node_health import Health, RepairDue, RepairMode
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.observations import ObservedNodeClaim
from tests.unit.workflows.meters import BORN, WHO, FakeMeter
from workflows.metrics import count_pods
from workflows.nodeclaim_context import NodeClaimContext


def disrupted_state(
    disruption: str, *, phase: Phase = Phase.READY, observed_disruption: str = "", cancellable: bool = False
) -> NodeClaimState:
    launched = LaunchedInstance(
        claim_uid="uid-a",
        provider_id="aws:///a/i-1",
        instance_type="m5.large",
        zone="a",
        capacity_type="spot",
        image_id="ami-1",
    )
    return NodeClaimState(
        identity=WHO,
        phase=phase,
        since=BORN,
        disruption=disruption,
        launched=launched,
        observed=ObservedNodeClaim(disruption=observed_disruption),
        drain=DrainState(defers_deletion=True) if cancellable else None,
    )


def pass_phases(state: NodeClaimState, *phases: Phase) -> NodeClaimState:
    nodeclaim_context = NodeClaimContext(state)
    for phase in phases:
        nodeclaim_context.transition_to(phase, "")
    return nodeclaim_context.state


def count_by_reason(meter: FakeMeter) -> Counter[str]:
    return Counter({dict(where)["reason"]: times for (_, *where), times in disruption_counts(meter).items()})


def label_values(meter: FakeMeter, label: str) -> list[str]:
    return [dict(where)[label] for _, *where in disruption_counts(meter)]


def disruption_counts(meter: FakeMeter) -> dict[tuple[Any, ...], int]:
    return {key: times for key, times in meter.counted.items() if key[0] == NODECLAIMS_DISRUPTED.name}


@pytest.mark.parametrize(
    ("disruption", "reason"),
    [
        ("Empty", "empty"),
        ("Drifted", "drifted"),
        ("Underutilized", "underutilized"),
        ("Expired", "expired"),
        (labels.UNHEALTHY, "unhealthy"),
        ("GarbageCollected", "garbage_collected"),
        ("spot_interrupted", "spot_interrupted"),
    ],
)
def test_disrupted_node_is_counted_once_by_karpenter_reason(meter: FakeMeter, disruption: str, reason: str) -> None:
    pass_phases(disrupted_state(disruption), Phase.DRAIN, Phase.TERMINATION, Phase.DELETED)
    where = (
        ("capacity_type", "spot"),
        ("consolidation_policy", ""),
        ("nodepool", "general"),
        ("reason", reason),
        ("termination_mode", "graceful"),
    )
    assert disruption_counts(meter) == {(NODECLAIMS_DISRUPTED.name, *where): 1}


@pytest.mark.parametrize(
    ("disruption", "consolidation", "policy"),
    [
        ("Empty", "WhenEmpty/30s", "when_empty"),
        ("Underutilized", "WhenEmptyOrUnderutilized/0s", "when_empty_or_underutilized"),
        ("Underutilized", "Balanced/0s", "balanced"),
        ("Drifted", "Balanced/0s", ""),
        ("spot_interrupted", "WhenEmpty/30s", ""),
    ],
)
def test_consolidation_is_counted_by_policy(meter: FakeMeter, disruption: str, consolidation: str, policy: str) -> None:
    observed = ObservedNodeClaim(consolidation=consolidation)
    pass_phases(disrupted_state(disruption).model_copy(update={"observed": observed}), Phase.DRAIN)
    assert label_values(meter, "consolidation_policy") == [policy]


@pytest.mark.parametrize(
    ("grace_period", "mode"), [("", "graceful"), ("0s", "forceful"), ("1h", "eventual"), ("1h30m", "eventual")]
)
def test_termination_grace_period_determines_mode(meter: FakeMeter, grace_period: str, mode: str) -> None:
    identity = WHO.model_copy(update={"termination_grace_period": grace_period})
    pass_phases(disrupted_state("Drifted").model_copy(update={"identity": identity}), Phase.DRAIN)
    assert label_values(meter, "termination_mode") == [mode]


@pytest.mark.parametrize(("disruption", "pods"), [("Drifted", 3), ("Deleted", 0)])
def test_pods_of_a_disrupted_node_are_counted(meter: FakeMeter, disruption: str, pods: int) -> None:
    count_pods(disrupted_state(disruption), 3)
    assert sum(number for (name, *_), number in meter.counted.items() if name == PODS_DISRUPTION_INITIATED.name) == pods


@pytest.mark.parametrize(
    ("mode", "rules", "requested_grace", "expected_mode"),
    [
        ("legacy", {}, None, "forceful"),
        ("legacy", {"drain": "graceful"}, None, "eventual"),
        ("replace", {}, "10m", "eventual"),
        ("replace", {}, "0s", "forceful"),
        ("replace", {}, "", "graceful"),
    ],
)
def test_unhealthy_node_is_counted_by_condition_and_bound(
    meter: FakeMeter, mode: RepairMode, rules: dict[str, Any], requested_grace: str | None, expected_mode: str
) -> None:
    grace = parse_duration_or_none(requested_grace or "")
    due = RepairDue(condition="KernelReady=False", order_at=BORN, grace=grace, conditions=(), max_unhealthy="20%")
    health = Health(mode=mode, condition="KernelReady=False", requested=None if requested_grace is None else due)
    observed = ObservedNodeClaim(node_ready=True, rules=LifecycleRules(repair=RepairRules.model_validate(rules)))
    state = disrupted_state(labels.UNHEALTHY).model_copy(update={"health": health, "observed": observed})
    pass_phases(state, Phase.DRAIN, Phase.TERMINATION)
    where = (
        ("capacity_type", "spot"),
        ("condition", "kernel_ready"),
        ("image_id", "ami-1"),
        ("nodepool", "general"),
        ("termination_mode", expected_mode),
    )
    assert meter.counted[(NODECLAIMS_UNHEALTHY_DISRUPTED.name, *where)] == 1


@pytest.mark.parametrize(
    ("disruption", "reason"),
    [
        ("InsufficientCapacity", "insufficient_capacity"),
        ("NodeClassNotReady", "nodeclass_not_ready"),
        ("LaunchTimeout", "launch_timeout"),
        ("RegistrationTimeout", "registration_timeout"),
    ],
)
def test_nodeclaim_without_node_is_counted(meter: FakeMeter, disruption: str, reason: str) -> None:
    pass_phases(disrupted_state(disruption, phase=Phase.LAUNCH), Phase.TERMINATION, Phase.DELETED)
    assert count_by_reason(meter) == {reason: 1}


@pytest.mark.parametrize("disruption", ["Deleted", "NodeClaimGone", labels.OVERPROVISIONED])
def test_manual_and_static_deletions_are_not_counted(meter: FakeMeter, disruption: str) -> None:
    pass_phases(disrupted_state(disruption), Phase.DRAIN, Phase.TERMINATION, Phase.DELETED)
    assert not disruption_counts(meter)


@pytest.mark.parametrize("phase", [Phase.INITIALIZATION, Phase.READY])
def test_command_deletion_is_counted_by_command_reason(meter: FakeMeter, phase: Phase) -> None:
    pass_phases(
        disrupted_state("Deleted", phase=phase, observed_disruption="Drifted"),
        Phase.DRAIN,
        Phase.TERMINATION,
        Phase.DELETED,
    )
    assert count_by_reason(meter) == {"drifted": 1}


def test_cancellable_drain_is_counted_at_its_end(meter: FakeMeter) -> None:
    state = pass_phases(disrupted_state("Empty", cancellable=True), Phase.DRAIN, Phase.READY, Phase.DRAIN)
    assert not disruption_counts(meter)
    pass_phases(state.model_copy(update={"drain": None}), Phase.TERMINATION, Phase.DELETED)
    assert count_by_reason(meter) == {"empty": 1}
