"""Conditions follow Karpenter: initial values, the root `Ready`, transition times, order and removal."""

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


def test_long_message_is_truncated() -> None:
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


def test_initial_conditions_are_unknown_since_the_creation_of_the_object() -> None:
    conditions = initial_conditions((), CLAIM, NOW)
    assert [one.type for one in conditions] == ["Launched", "Registered", "Initialized", "Ready"]
    assert {(one.status, one.reason) for one in conditions} == {("Unknown", "AwaitingReconciliation")}
    assert [one.last_transition_time for one in conditions] == [CREATED, CREATED, CREATED, NOW]


def test_first_condition_adds_the_missing_conditions() -> None:
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


def test_true_condition_without_reason_takes_its_type_as_reason() -> None:
    assert find_condition(set_status((), "Launched"), "Launched").reason == "Launched"
    assert find_condition(set_status((), "Launched", reason="Adopted"), "Launched").reason == "Adopted"


def test_unknown_condition_without_reason_is_awaiting_reconciliation() -> None:
    assert find_condition(set_status((), "Launched", "Unknown"), "Launched").reason == "AwaitingReconciliation"


def test_false_condition_requires_a_reason() -> None:
    with pytest.raises(ValueError, match="Launched: status False requires a reason"):
        set_status((), "Launched", "False")


def test_ready_is_false_when_one_dependent_is_false() -> None:
    conditions = set_status(all_true(), "Registered", "False", "MultipleNodesFound")
    assert ready_condition(conditions) == ("False", "UnhealthyDependents", "Registered=False")


def test_condition_that_is_no_dependent_does_not_change_ready() -> None:
    conditions = set_status(all_true(), "Drifted", "False", "Whatever")
    assert ready_condition(conditions) == ("True", "Ready", "")


def test_ready_message_lists_the_latest_transition_first() -> None:
    subject = Subject(labels.NODECLASS_CONDITIONS, 1, CREATED)
    conditions = set_status(all_true(subject), "SubnetsReady", "False", "SubnetsNotFound", subject=subject)
    conditions = set_status(conditions, "ValidationSucceeded", "False", "DependenciesNotReady", subject=subject)
    assert ready_condition(conditions) == (
        "False",
        "UnhealthyDependents",
        "ValidationSucceeded=False, SubnetsReady=False",
    )


def test_true_dependent_of_an_older_generation_counts_as_unknown() -> None:
    newer = Subject(CLAIM.dependents, 2, CREATED)
    conditions = set_status(all_true(), "Launched", subject=newer)
    assert ready_condition(conditions)[:2] == ("Unknown", "ReconcilingDependents")
    assert find_condition(conditions, "Ready").observed_generation == 2


def test_false_dependent_of_an_older_generation_counts_as_unknown() -> None:
    conditions = set_status(all_true(), "Launched", "False", "LaunchFailed")
    conditions = set_status(conditions, "Registered", subject=Subject(CLAIM.dependents, 2, CREATED))
    assert ready_condition(conditions)[:2] == ("Unknown", "ReconcilingDependents")


def test_transition_time_changes_only_with_the_status() -> None:
    conditions = set_status(all_true(), "Drifted", reason="AMIDrift")
    conditions = set_status(conditions, "Drifted", reason="SubnetDrift", now=LATER)
    assert find_condition(conditions, "Drifted").reason == "SubnetDrift"
    assert find_condition(conditions, "Drifted").last_transition_time == NOW
    conditions = set_status(conditions, "Drifted", "False", "Gone", now=LATER)
    assert find_condition(conditions, "Drifted").last_transition_time == LATER


def test_transition_time_has_whole_seconds() -> None:
    conditions = set_status((), "Launched", now=NOW + timedelta(microseconds=999))
    assert find_condition(conditions, "Launched").last_transition_time == NOW


def test_setting_an_unchanged_condition_is_a_noop() -> None:
    conditions = set_status(all_true(), "Drifted", reason="AMIDrift")
    assert set_status(conditions, "Drifted", reason="AMIDrift", now=LATER) == conditions


def test_conditions_are_sorted_by_transition_time_with_ready_last() -> None:
    conditions = set_status(all_true(), "Drained", "Unknown", "Draining", now=LATER)
    conditions = set_status(conditions, "Launched", "False", "LaunchFailed", now=LATER + timedelta(minutes=1))
    assert [one.type for one in conditions] == ["Registered", "Initialized", "Drained", "Launched", "Ready"]


def test_all_conditions_of_a_deleting_object_observe_its_last_generation() -> None:
    deleting = Subject(CLAIM.dependents, generation=7, created=CREATED, deleting=True)
    conditions = set_status(all_true(), "Drained", subject=deleting)
    assert {one.observed_generation for one in conditions} == {7}
    assert ready_condition(conditions) == ("True", "Ready", "")


def test_clearing_a_condition_sorts_the_others_by_type() -> None:
    conditions = set_status(set_status(all_true(), "Drifted", reason="AMIDrift"), "Consolidatable")
    cleared = clear_condition(conditions, CLAIM, "Drifted", now=LATER)
    assert [one.type for one in cleared] == ["Consolidatable", "Initialized", "Launched", "Ready", "Registered"]


def test_missing_node_is_not_ready_until_it_is_back() -> None:
    missing = set_status(all_true(), labels.NODE_MISSING, reason="NodeNotFound")
    assert ready_condition(missing) == ("False", "UnhealthyDependents", "tenure.sh/NodeMissing=True")
    cleared = clear_condition(missing, CLAIM, labels.NODE_MISSING, now=LATER)
    assert ready_condition(cleared) == ("True", "Ready", "")
    assert ready_condition(set_status(all_true(), labels.NODE_MISSING, "False", reason="Found"))[0] == "True"


def test_clearing_an_absent_condition_is_a_noop() -> None:
    conditions = all_true()
    assert clear_condition(conditions, CLAIM, "Drifted", now=LATER) == conditions


@pytest.mark.parametrize("condition_type", ("Launched", "Ready"))
def test_ready_and_its_dependents_cannot_be_cleared(condition_type: str) -> None:
    with pytest.raises(ValueError, match="set it to Unknown"):
        clear_condition(all_true(), CLAIM, condition_type, now=LATER)
