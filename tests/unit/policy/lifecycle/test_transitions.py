"""The table of phase transitions: exactly the edges listed here are allowed."""

from datetime import timedelta

import pytest

from tenure.model.nodeclaim.state import Deadlines, Phase
from tenure.policy.lifecycle.transitions import deadline_of, may_follow
from tests.unit.policy.builders import NOW, after, before, node
from workflows.current_details import PHASE_NEXT_STEP, PHASE_WAITS_FOR
from workflows.nodeclaim import PHASES

EDGES = {
    (Phase.LAUNCH, Phase.REGISTRATION),
    (Phase.LAUNCH, Phase.INITIALIZATION),
    (Phase.LAUNCH, Phase.READY),
    (Phase.LAUNCH, Phase.TERMINATION),
    (Phase.REGISTRATION, Phase.INITIALIZATION),
    (Phase.REGISTRATION, Phase.TERMINATION),
    (Phase.INITIALIZATION, Phase.READY),
    (Phase.INITIALIZATION, Phase.DRAIN),
    (Phase.READY, Phase.INITIALIZATION),
    (Phase.READY, Phase.DRAIN),
    (Phase.DRAIN, Phase.TERMINATION),
    (Phase.DRAIN, Phase.READY),
    (Phase.DRAIN, Phase.INITIALIZATION),
    (Phase.TERMINATION, Phase.DELETED),
}
LIMITS = Deadlines(
    launch=timedelta(minutes=1),
    registration=timedelta(minutes=2),
    initialization=timedelta(minutes=3),
    drain=timedelta(minutes=4),
    termination=timedelta(minutes=5),
)
CREATED = before(seconds=30)
DEADLINES = {
    Phase.LAUNCH: CREATED + timedelta(minutes=1),
    Phase.REGISTRATION: CREATED + timedelta(minutes=2),
    Phase.INITIALIZATION: after(minutes=3),
    Phase.READY: None,
    Phase.DRAIN: after(minutes=4),
    Phase.TERMINATION: after(minutes=5),
    Phase.DELETED: None,
}


@pytest.mark.parametrize("start", Phase)
@pytest.mark.parametrize("end", Phase)
def test_phase_may_follow_only_by_the_table(start: Phase, end: Phase) -> None:
    assert may_follow(start, end) is ((start, end) in EDGES)


def test_every_phase_has_a_workflow_function_and_descriptions() -> None:
    assert set(PHASES) == set(Phase) - {Phase.DELETED}
    assert set(PHASE_WAITS_FOR) == set(PHASE_NEXT_STEP) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_launch_and_registration_deadlines_count_from_creation_others_from_entry(phase: Phase) -> None:
    assert deadline_of(node(created=CREATED, deadlines=LIMITS), phase, NOW) == DEADLINES[phase]


def test_registration_after_a_late_launch_has_the_remaining_minimum_time() -> None:
    late = node(created=before(hours=1), deadlines=LIMITS)
    assert deadline_of(late, Phase.REGISTRATION, NOW) == after(minutes=1)


def test_default_deadlines_are_those_of_karpenter() -> None:
    assert Deadlines().launch == timedelta(minutes=5)
    assert Deadlines().registration == timedelta(minutes=15)
