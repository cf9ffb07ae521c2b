"""Termination duration metrics of NodeClaims and Nodes."""

from datetime import timedelta

from tenure.metrics import NODECLAIMS_TERMINATION_DURATION, NODES_TERMINATION_DURATION
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tests.unit.workflows.meters import BORN, WHO, FakeMeter
from workflows.nodeclaim_context import NodeClaimContext

CLAIM_ENDED, NODE_ENDED = NODECLAIMS_TERMINATION_DURATION.name, NODES_TERMINATION_DURATION.name
POOL = ("nodepool", "general")


def pass_phases(meter: FakeMeter, state: NodeClaimState, *steps: tuple[Phase, int]) -> None:
    """Enter each phase so many seconds after the previous one."""
    nodeclaim_context = NodeClaimContext(state)
    for phase, seconds in steps:
        meter.time += timedelta(seconds=seconds)
        nodeclaim_context.transition_to(phase, "")


def test_node_termination_duration_counts_from_drain_start(meter: FakeMeter) -> None:
    state = NodeClaimState(identity=WHO, phase=Phase.READY, since=BORN, registered=True)
    pass_phases(meter, state, (Phase.DRAIN, 3600), (Phase.TERMINATION, 30), (Phase.DELETED, 15))
    assert meter.recorded == {(CLAIM_ENDED, POOL): 45.0, (NODE_ENDED, POOL): 45.0}


def test_cancelled_drain_is_not_part_of_termination_duration(meter: FakeMeter) -> None:
    state = NodeClaimState(identity=WHO, phase=Phase.READY, since=BORN, registered=True)
    cancelled_drain = ((Phase.DRAIN, 60), (Phase.READY, 60))
    pass_phases(meter, state, *cancelled_drain, (Phase.DRAIN, 600), (Phase.TERMINATION, 20), (Phase.DELETED, 5))
    assert meter.recorded[CLAIM_ENDED, POOL] == 25.0


def test_nodeclaim_without_node_records_nodeclaim_duration_only(meter: FakeMeter) -> None:
    state = NodeClaimState(identity=WHO, phase=Phase.LAUNCH, since=BORN)
    pass_phases(meter, state, (Phase.TERMINATION, 300), (Phase.DELETED, 2))
    assert meter.recorded == {(CLAIM_ENDED, POOL): 2.0}
