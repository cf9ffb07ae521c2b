"""A lost zone causes one signal for each of its nodes, and none for the others."""

from collections import Counter
from itertools import count

from tenure.controller.signals.signaller import Urgency
from tests.support.controller.builders import node, pod
from tests.unit.controller.signals.notifier_harness import NotifierHarness, build_notifier
from workflows import ids

NODES, LOST = 500, 170


def report_lost_zone(harness: NotifierHarness, *, ready: bool) -> None:
    harness.apply_objects("nodes", *(node(f"n{number}", of=f"c{number}", ready=ready) for number in range(LOST)))


def take_signals(harness: NotifierHarness) -> Counter[tuple[str, Urgency]]:
    found = Counter((one.workflow_id, one.urgency) for one in harness.signal_queue.signals)
    harness.signal_queue.signals.clear()
    return found


def test_lost_zone_causes_one_signal_for_each_of_its_nodes() -> None:
    harness = build_notifier()
    harness.numbers = count(1)
    for number in range(NODES):
        harness.add_running_node(f"c{number}", f"n{number}")
        harness.apply_objects("pods", pod(f"p{number}", on=f"n{number}"))
    harness.notify()
    take_signals(harness)
    expected = {(ids.nodeclaim("prod", f"c{number}", f"uid-c{number}"), Urgency.NODECLAIM): 1 for number in range(LOST)}
    for ready in (False, True):
        for seconds in (1, 2, 3):  # Kubelets and the node monitor repeat the same state.
            report_lost_zone(harness, ready=ready)
            harness.notify(seconds)
        signals = take_signals(harness)
        assert {key: number for key, number in signals.items() if key[1] is Urgency.NODECLAIM} == expected
        assert len(signals) <= LOST + 1, "the NodePool is signaled, too"
    harness.notify(600)
    assert not take_signals(harness)
