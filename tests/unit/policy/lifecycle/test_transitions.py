"""The table of a node's life: every phase and every edge is mentioned here, and nothing else is allowed."""

from datetime import timedelta

import pytest

from tenure.model.nodeclaim.state import Deadlines, Phase
from tenure.policy.lifecycle.transitions import TRANSITIONS, deadline_of, may_follow
from tests.unit.policy.builders import NOW, after, before, node
from workflows.current_details import PHASE_ACTIVITY, PHASE_NEXT_STEP, PHASE_WAITS_FOR
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
    (Phase.TERMINATION, Phase.DELETED),
}
LIMITS = Deadlines(
    launch=timedelta(minutes=1),
    registration=timedelta(minutes=2),
    initialization=timedelta(minutes=3),
    drain=timedelta(minutes=4),
    termination=timedelta(minutes=5),
)
BORN = before(seconds=30)
DEADLINES = {
    Phase.LAUNCH: BORN + timedelta(minutes=1),
    Phase.REGISTRATION: BORN + timedelta(minutes=2),
    Phase.INITIALIZATION: after(minutes=3),
    Phase.READY: None,
    Phase.DRAIN: after(minutes=4),
    Phase.TERMINATION: after(minutes=5),
    Phase.DELETED: None,
}


def test_the_table_has_every_phase_and_exactly_these_edges() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert {(start, end) for start, ends in TRANSITIONS.items() for end in ends} == EDGES


@pytest.mark.parametrize("start", Phase)
@pytest.mark.parametrize("end", Phase)
def test_a_phase_follows_another_only_by_the_table(start: Phase, end: Phase) -> None:
    assert may_follow(start, end) is ((start, end) in EDGES)


def test_every_edge_says_who_causes_it() -> None:
    assert [edge for ends in TRANSITIONS.values() for edge in ends.values() if len(edge) < 20] == []


def test_every_phase_can_be_reached_from_launch_and_leads_to_the_end() -> None:
    for phase in Phase:
        assert phase in reachable(Phase.LAUNCH) and Phase.DELETED in reachable(phase)


def test_every_phase_but_the_last_is_performed_and_all_say_what_comes_next() -> None:
    assert set(PHASES) == set(Phase) - {Phase.DELETED}
    assert set(PHASE_ACTIVITY) == set(PHASE_WAITS_FOR) == set(PHASE_NEXT_STEP) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_deadlines_of_launch_and_registration_count_from_birth_and_the_others_from_entry(phase: Phase) -> None:
    assert deadline_of(node(born=BORN, deadlines=LIMITS), phase, NOW) == DEADLINES[phase]


def test_a_claim_that_launched_late_has_the_time_that_a_launch_in_its_last_minute_leaves() -> None:
    late = node(born=before(hours=1), deadlines=LIMITS)
    assert deadline_of(late, Phase.REGISTRATION, NOW) == after(minutes=1)


def test_the_default_deadlines_are_karpenters() -> None:
    assert Deadlines().launch == timedelta(minutes=5)
    assert Deadlines().registration == timedelta(minutes=15)


def reachable(start: Phase) -> set[Phase]:
    found, open_ones = {start}, [start]
    while open_ones:
        for phase in TRANSITIONS[open_ones.pop()]:
            if phase not in found:
                found.add(phase)
                open_ones.append(phase)
    return found
