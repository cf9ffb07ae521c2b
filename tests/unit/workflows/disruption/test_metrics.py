"""Karpenter's counters of disruption commands."""

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
TERMINATE_FIRST = registry.TERMINATE_FIRST_DECISIONS.name
VALIDATIONS = registry.VOLUNTARY_DISRUPTION_FAILED_VALIDATIONS.name
COMMANDS = registry.DISRUPTION_COMMANDS.name


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> FakeMeter:
    found = FakeMeter()
    monkeypatch.setattr(metrics, "workflow", found)
    return found


LABELS = (("consolidation_type", "multi"), ("decision", "replace"), ("reason", "underutilized"))


def test_command_is_counted_once_and_by_nodepool(counters: FakeMeter) -> None:
    both = make_proposal("a", "b", "c")
    spread = (*both.candidates[:2], both.candidates[2].model_copy(update={"pool": "gpu"}))
    metrics.count_command(both.model_copy(update={"candidates": spread}))
    assert counters.counted == {
        (DECISIONS, *LABELS): 1,
        (BY_NODEPOOL, *LABELS[:2], ("nodepool", "default"), LABELS[2]): 1,
        (BY_NODEPOOL, *LABELS[:2], ("nodepool", "gpu"), LABELS[2]): 1,
    }


def test_drift_has_no_consolidation_type(counters: FakeMeter) -> None:
    metrics.count_command(make_proposal("a", reason="Drifted", kind="drift", replacements=0))
    metrics.count_empty("default")
    drift = (("consolidation_type", ""), ("decision", "delete"), ("reason", "drifted"))
    empty = (("consolidation_type", "empty"), ("decision", "delete"), ("reason", "empty"))
    assert counters.counted[DECISIONS, *drift] == counters.counted[DECISIONS, *empty] == 1


def test_node_that_is_deleted_before_its_replacement_is_counted(counters: FakeMeter) -> None:
    proposal = make_proposal("a", reason="Drifted", kind="drift", replacements=0)
    metrics.count_command(proposal.model_copy(update={"terminate_first": "static-at-limit"}))
    decision = (("consolidation_type", ""), ("decision", "terminate-first"), ("reason", "drifted"))
    reason = (("nodepool", "default"), ("reason", "drifted"), ("terminate_first_reason", "static-at-limit"))
    assert counters.counted[DECISIONS, *decision] == counters.counted[TERMINATE_FIRST, *reason] == 1


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
def test_started_command_that_failed_counts_as_failure(
    counters: FakeMeter, ending: Ending, counted: tuple[Any, ...] | None
) -> None:
    metrics.count_ending(make_proposal("a"), CommandFinished(proposal_id="a", ending=ending))
    every = (COMMANDS, *LABELS[:2], ("ending", ending), LABELS[2])
    assert counters.counted == {every: 1, **({counted: 1} if counted else {})}
