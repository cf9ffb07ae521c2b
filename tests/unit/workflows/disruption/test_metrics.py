"""Which of Karpenter's counters a command counts in."""

from typing import Any

import pytest

from tenure import metrics as registry
from tenure.model.disruption.commands import CommandFinished, Ending
from tests.support.workflows.commands import make_proposal
from tests.unit.workflows.meters import FakeMeter
from workflows import metrics

DECISIONS = registry.VOLUNTARY_DISRUPTION_DECISIONS.name
BY_NODEPOOL = registry.VOLUNTARY_DISRUPTION_DECISIONS_BY_NODEPOOL.name
FAILURES = registry.VOLUNTARY_DISRUPTION_QUEUE_FAILURES.name
VALIDATIONS = registry.VOLUNTARY_DISRUPTION_FAILED_VALIDATIONS.name
COMMANDS = registry.DISRUPTION_COMMANDS.name


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> FakeMeter:
    found = FakeMeter()
    monkeypatch.setattr(metrics, "workflow", found)
    return found


LABELS = (("consolidation_type", "multi"), ("decision", "replace"), ("reason", "underutilized"))


def test_a_command_counts_once_and_in_each_of_its_node_pools(counters: FakeMeter) -> None:
    both = make_proposal("a", "b", "c")
    spread = (*both.candidates[:2], both.candidates[2].model_copy(update={"pool": "gpu"}))
    metrics.count_command(both.model_copy(update={"candidates": spread}))
    assert counters.counted == {
        (DECISIONS, *LABELS): 1,
        (BY_NODEPOOL, *LABELS[:2], ("nodepool", "default"), LABELS[2]): 1,
        (BY_NODEPOOL, *LABELS[:2], ("nodepool", "gpu"), LABELS[2]): 1,
    }


def test_drift_has_no_consolidation_type_and_an_empty_node_goes_without_a_command(counters: FakeMeter) -> None:
    metrics.count_command(make_proposal("a", reason="Drifted", kind="drift", replacements=0))
    metrics.count_empty("default")
    drift = (("consolidation_type", ""), ("decision", "delete"), ("reason", "drifted"))
    empty = (("consolidation_type", "empty"), ("decision", "delete"), ("reason", "empty"))
    assert counters.counted[DECISIONS, *drift] == counters.counted[DECISIONS, *empty] == 1


@pytest.mark.parametrize(
    ("ending", "counted"),
    [
        ("done", None),
        ("cancelled", None),
        ("not permitted", None),
        ("held", (FAILURES, *LABELS)),
        ("failed", (FAILURES, *LABELS)),
        ("not replaced", (FAILURES, *LABELS)),
        ("stale", (VALIDATIONS, LABELS[0])),
    ],
)
def test_what_had_begun_and_came_to_nothing_has_failed(
    counters: FakeMeter, ending: Ending, counted: tuple[Any, ...] | None
) -> None:
    metrics.count_ending(make_proposal("a"), CommandFinished(proposal_id="a", ending=ending))
    every = (COMMANDS, *LABELS[:2], ("ending", ending), LABELS[2])
    assert counters.counted == {every: 1, **({counted: 1} if counted else {})}
