"""How long NodeClaims and Nodes took to go."""

from datetime import timedelta

from tenure.metrics import NODECLAIMS_TERMINATION_DURATION, NODES_TERMINATION_DURATION
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tests.unit.workflows.meters import BORN, WHO, FakeMeter
from workflows.nodeclaim_context import NodeClaimContext

CLAIM_ENDED, NODE_ENDED = NODECLAIMS_TERMINATION_DURATION.name, NODES_TERMINATION_DURATION.name
POOL = ("nodepool", "general")


def pass_phases(meter: FakeMeter, state: NodeClaimState, *steps: tuple[Phase, int]) -> None:
    """Each phase is entered so many seconds after the one before."""
    nodeclaim_context = NodeClaimContext(state)
    for phase, seconds in steps:
        meter.time += timedelta(seconds=seconds)
        nodeclaim_context.transition_to(phase, "")


def test_a_node_takes_from_its_drains_begin_until_it_is_gone(meter: FakeMeter) -> None:
    state = NodeClaimState(identity=WHO, phase=Phase.READY, since=BORN, registered=True)
    pass_phases(meter, state, (Phase.DRAIN, 3600), (Phase.TERMINATION, 30), (Phase.DELETED, 15))
    assert meter.recorded == {(CLAIM_ENDED, POOL): 45.0, (NODE_ENDED, POOL): 45.0}


def test_a_drain_that_was_given_up_is_not_counted_in(meter: FakeMeter) -> None:
    state = NodeClaimState(identity=WHO, phase=Phase.READY, since=BORN, registered=True)
    aborted_drain = ((Phase.DRAIN, 60), (Phase.READY, 60))
    pass_phases(meter, state, *aborted_drain, (Phase.DRAIN, 600), (Phase.TERMINATION, 20), (Phase.DELETED, 5))
    assert meter.recorded[CLAIM_ENDED, POOL] == 25.0


def test_one_without_a_node_is_a_nodeclaim_alone(meter: FakeMeter) -> None:
    state = NodeClaimState(identity=WHO, phase=Phase.LAUNCH, since=BORN)
    pass_phases(meter, state, (Phase.TERMINATION, 300), (Phase.DELETED, 2))
    assert meter.recorded == {(CLAIM_ENDED, POOL): 2.0}
