"""How long NodeClaims and Nodes took to go."""

from datetime import timedelta

from tenure.model.nodeclaim_state import ClaimState, Phase
from tests.unit.workflows.meters import BORN, WHO, Meter
from workflows.metrics import CLAIM_ENDED, NODE_ENDED
from workflows.nodeclaim_context import Life

POOL = ("nodepool", "general")


def through(meter: Meter, state: ClaimState, *steps: tuple[Phase, int]) -> None:
    """Each phase is entered so many seconds after the one before."""
    lived = Life(state)
    for phase, seconds in steps:
        meter.time += timedelta(seconds=seconds)
        lived.enter(phase, "")


def test_a_node_takes_from_its_drains_begin_until_it_is_gone(meter: Meter) -> None:
    state = ClaimState(identity=WHO, phase=Phase.READY, since=BORN, registered=True)
    through(meter, state, (Phase.DRAIN, 3600), (Phase.TERMINATION, 30), (Phase.GONE, 15))
    assert meter.recorded == {(CLAIM_ENDED, POOL): 45.0, (NODE_ENDED, POOL): 45.0}


def test_a_drain_that_was_given_up_is_not_counted_in(meter: Meter) -> None:
    state = ClaimState(identity=WHO, phase=Phase.READY, since=BORN, registered=True)
    away = ((Phase.DRAIN, 60), (Phase.READY, 60))
    through(meter, state, *away, (Phase.DRAIN, 600), (Phase.TERMINATION, 20), (Phase.GONE, 5))
    assert meter.recorded[CLAIM_ENDED, POOL] == 25.0


def test_one_without_a_node_is_a_nodeclaim_alone(meter: Meter) -> None:
    state = ClaimState(identity=WHO, phase=Phase.LAUNCH, since=BORN)
    through(meter, state, (Phase.TERMINATION, 300), (Phase.GONE, 2))
    assert meter.recorded == {(CLAIM_ENDED, POOL): 2.0}
