"""Which NodeClaims count as disrupted, as what, and that each counts once."""

from collections import Counter
from typing import Any

import pytest

from tenure.apis import labels
from tenure.model.disruption.drain import DrainState
from tenure.model.launch import Launched
from tenure.model.nodeclaim_state import ClaimState, Phase
from tenure.model.observations import ClaimSeen
from tests.unit.workflows.meters import BORN, WHO, Meter
from workflows.metrics import DISRUPTED
from workflows.nodeclaim_context import Life


def going(disruption: str, *, phase: Phase = Phase.READY, said: str = "", keep: bool = False) -> ClaimState:
    launched = Launched(
        claim_uid="uid-a",
        provider_id="aws:///a/i-1",
        instance_type="m5.large",
        zone="a",
        capacity_type="spot",
        image_id="ami-1",
    )
    return ClaimState(
        identity=WHO,
        phase=phase,
        since=BORN,
        disruption=disruption,
        launched=launched,
        seen=ClaimSeen(disruption=said),
        drain=DrainState(keep=True) if keep else None,
    )


def through(state: ClaimState, *phases: Phase) -> ClaimState:
    lived = Life(state)
    for phase in phases:
        lived.enter(phase, "")
    return lived.state


def counted(meter: Meter) -> Counter[str]:
    return Counter({dict(where)["reason"]: times for (_, *where), times in disrupted(meter).items()})


def disrupted(meter: Meter) -> dict[tuple[Any, ...], int]:
    return {key: times for key, times in meter.counted.items() if key[0] == DISRUPTED}


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
def test_a_node_that_goes_counts_once_by_karpenters_reason(meter: Meter, disruption: str, reason: str) -> None:
    through(going(disruption), Phase.DRAIN, Phase.TERMINATION, Phase.GONE)
    where = (("capacity_type", "spot"), ("nodepool", "general"), ("reason", reason))
    assert disrupted(meter) == {(DISRUPTED, *where): 1}


@pytest.mark.parametrize(
    ("disruption", "reason"),
    [
        ("InsufficientCapacity", "insufficient_capacity"),
        ("NodeClassNotReady", "nodeclass_not_ready"),
        ("LaunchTimeout", "launch_timeout"),
        ("RegistrationTimeout", "registration_timeout"),
    ],
)
def test_one_that_never_became_a_node_counts_too(meter: Meter, disruption: str, reason: str) -> None:
    through(going(disruption, phase=Phase.LAUNCH), Phase.TERMINATION, Phase.GONE)
    assert counted(meter) == {reason: 1}


@pytest.mark.parametrize("disruption", ["Deleted", "NodeClaimGone", labels.OVERPROVISIONED])
def test_what_a_person_or_a_static_pool_deletes_is_no_disruption(meter: Meter, disruption: str) -> None:
    through(going(disruption), Phase.DRAIN, Phase.TERMINATION, Phase.GONE)
    assert not disrupted(meter)


@pytest.mark.parametrize("phase", [Phase.INITIALIZATION, Phase.READY])
def test_what_a_command_deletes_counts_for_what_the_command_said(meter: Meter, phase: Phase) -> None:
    through(going("Deleted", phase=phase, said="Drifted"), Phase.DRAIN, Phase.TERMINATION, Phase.GONE)
    assert counted(meter) == {"drifted": 1}


def test_a_drain_that_may_be_given_up_counts_when_it_is_over(meter: Meter) -> None:
    state = through(going("Empty", keep=True), Phase.DRAIN, Phase.READY, Phase.DRAIN)
    assert not disrupted(meter)
    through(state.model_copy(update={"drain": None}), Phase.TERMINATION, Phase.GONE)
    assert counted(meter) == {"empty": 1}
