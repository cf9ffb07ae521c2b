"""Conditions as Karpenter keeps them: first appearance, what `Ready` says, transition times, order, clearing."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.apis import labels
from tenure.apis.conditions import Status, Subject, clear_condition, initial_conditions, set_condition
from tenure.apis.meta import Condition

CREATED = datetime(2025, 1, 1, tzinfo=UTC)
NOW = CREATED + timedelta(hours=1)
LATER = NOW + timedelta(minutes=1)
CLAIM = Subject(labels.NODECLAIM_CONDITIONS, generation=1, created=CREATED)

Conditions = tuple[Condition, ...]


def test_a_message_with_a_long_value_is_cut() -> None:
    found = set_condition((), CLAIM, labels.LAUNCHED, "False", now=NOW, reason="Failed", message="x" * 200_000)
    assert max(len(one.message) for one in found) < 5_000


def set_status(
    conditions: Conditions,
    condition_type: str,
    status: Status = "True",
    reason: str = "",
    *,
    now: datetime = NOW,
    subject: Subject = CLAIM,
) -> Conditions:
    return set_condition(conditions, subject, condition_type, status, reason=reason, now=now)


def find_condition(conditions: Conditions, condition_type: str) -> Condition:
    return next(one for one in conditions if one.type == condition_type)


def ready_condition(conditions: Conditions) -> tuple[str, str, str]:
    root = find_condition(conditions, "Ready")
    return root.status, root.reason, root.message


def all_true(subject: Subject = CLAIM) -> Conditions:
    conditions: Conditions = ()
    for dependent in subject.dependents:
        conditions = set_status(conditions, dependent, subject=subject)
    return conditions


def test_at_first_all_are_unknown_and_as_old_as_the_object() -> None:
    conditions = initial_conditions((), CLAIM, NOW)
    assert [one.type for one in conditions] == ["Launched", "Registered", "Initialized", "Ready"]
    assert {(one.status, one.reason) for one in conditions} == {("Unknown", "AwaitingReconciliation")}
    assert [one.last_transition_time for one in conditions] == [CREATED, CREATED, CREATED, NOW]


def test_setting_one_brings_the_others_along() -> None:
    conditions = set_status((), "Launched")
    assert [(one.type, one.status) for one in conditions] == [
        ("Registered", "Unknown"),
        ("Initialized", "Unknown"),
        ("Launched", "True"),
        ("Ready", "Unknown"),
    ]
    assert ready_condition(conditions) == (
        "Unknown",
        "ReconcilingDependents",
        "Initialized=Unknown, Registered=Unknown",
    )


def test_true_without_a_reason_has_the_types_name() -> None:
    assert find_condition(set_status((), "Launched"), "Launched").reason == "Launched"
    assert find_condition(set_status((), "Launched", reason="Adopted"), "Launched").reason == "Adopted"


def test_unknown_without_a_reason_awaits_reconciliation() -> None:
    assert find_condition(set_status((), "Launched", "Unknown"), "Launched").reason == "AwaitingReconciliation"


def test_false_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="Launched: status False requires a reason"):
        set_status((), "Launched", "False")


def test_ready_is_true_when_all_dependents_are() -> None:
    assert ready_condition(all_true()) == ("True", "Ready", "")


def test_ready_is_false_when_one_is_false() -> None:
    conditions = set_status(all_true(), "Registered", "False", "MultipleNodesFound")
    assert ready_condition(conditions) == ("False", "UnhealthyDependents", "Registered=False")


def test_a_condition_that_feeds_nothing_does_not_move_ready() -> None:
    conditions = set_status(all_true(), "Drifted", "False", "Whatever")
    assert ready_condition(conditions) == ("True", "Ready", "")


def test_the_latest_transition_comes_first_in_the_message() -> None:
    subject = Subject(labels.NODECLASS_CONDITIONS, 1, CREATED)
    conditions = set_status(all_true(subject), "SubnetsReady", "False", "SubnetsNotFound", subject=subject)
    conditions = set_status(conditions, "ValidationSucceeded", "False", "DependenciesNotReady", subject=subject)
    assert ready_condition(conditions) == (
        "False",
        "UnhealthyDependents",
        "ValidationSucceeded=False, SubnetsReady=False",
    )


def test_a_true_of_an_older_generation_is_not_enough() -> None:
    newer = Subject(CLAIM.dependents, 2, CREATED)
    conditions = set_status(all_true(), "Launched", subject=newer)
    assert ready_condition(conditions)[:2] == ("Unknown", "ReconcilingDependents")
    assert find_condition(conditions, "Ready").observed_generation == 2


def test_a_false_of_an_older_generation_no_longer_makes_it_false() -> None:
    conditions = set_status(all_true(), "Launched", "False", "LaunchFailed")
    conditions = set_status(conditions, "Registered", subject=Subject(CLAIM.dependents, 2, CREATED))
    assert ready_condition(conditions)[:2] == ("Unknown", "ReconcilingDependents")


def test_the_transition_time_moves_with_the_status_alone() -> None:
    conditions = set_status(all_true(), "Drifted", reason="AMIDrift")
    conditions = set_status(conditions, "Drifted", reason="SubnetDrift", now=LATER)
    assert find_condition(conditions, "Drifted").reason == "SubnetDrift"
    assert find_condition(conditions, "Drifted").last_transition_time == NOW
    conditions = set_status(conditions, "Drifted", "False", "Gone", now=LATER)
    assert find_condition(conditions, "Drifted").last_transition_time == LATER


def test_times_are_whole_seconds() -> None:
    conditions = set_status((), "Launched", now=NOW + timedelta(microseconds=999))
    assert find_condition(conditions, "Launched").last_transition_time == NOW


def test_setting_the_same_again_changes_nothing() -> None:
    conditions = set_status(all_true(), "Drifted", reason="AMIDrift")
    assert set_status(conditions, "Drifted", reason="AMIDrift", now=LATER) == conditions


def test_they_are_sorted_by_transition_time_with_ready_last() -> None:
    conditions = set_status(all_true(), "Drained", "Unknown", "Draining", now=LATER)
    conditions = set_status(conditions, "Launched", "False", "LaunchFailed", now=LATER + timedelta(minutes=1))
    assert [one.type for one in conditions] == ["Registered", "Initialized", "Drained", "Launched", "Ready"]


def test_of_a_deleting_object_all_speak_of_its_last_generation() -> None:
    deleting = Subject(CLAIM.dependents, generation=7, created=CREATED, deleting=True)
    conditions = set_status(all_true(), "Drained", subject=deleting)
    assert {one.observed_generation for one in conditions} == {7}
    assert ready_condition(conditions) == ("True", "Ready", "")


def test_clearing_sorts_the_rest_by_type() -> None:
    conditions = set_status(set_status(all_true(), "Drifted", reason="AMIDrift"), "Consolidatable")
    cleared = clear_condition(conditions, CLAIM, "Drifted")
    assert [one.type for one in cleared] == ["Consolidatable", "Initialized", "Launched", "Ready", "Registered"]


def test_clearing_what_is_not_there_changes_nothing() -> None:
    conditions = all_true()
    assert clear_condition(conditions, CLAIM, "Drifted") == conditions


@pytest.mark.parametrize("condition_type", ("Launched", "Ready"))
def test_what_feeds_ready_is_never_cleared(condition_type: str) -> None:
    with pytest.raises(ValueError, match="set it to Unknown"):
        clear_condition(all_true(), CLAIM, condition_type)
